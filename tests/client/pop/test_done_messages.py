"""Messages that were acknowledged are known for a time."""

from sprocket.client.pop.done_messages import DoneMessages
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.remoting.message.pop_extra_info import PopHandle
from tests.client.pull.test_process_queue import message
from tests.clock import ManualClock


def popped(offset: int) -> PoppedMessage:
    return PoppedMessage(message(offset), "TopicTest", PopHandle(offset, 0, 0, 0, "0", "b", 0, offset), 60.0)


def test_a_message_is_known_until_a_time_after_its_acknowledgement() -> None:
    clock = ManualClock()
    done = DoneMessages(clock.monotonic, 10.0)
    one = popped(1)
    assert one not in done
    done.add(one)
    clock.advance(1000.0)
    assert popped(1) in done  # no broker has the acknowledgement yet
    done.acknowledged(one)
    clock.advance(9.0)
    assert popped(1) in done
    clock.advance(2.0)
    assert popped(1) not in done


def test_another_message_with_the_same_identity_is_not_known() -> None:
    done = DoneMessages(ManualClock().monotonic, 10.0)
    done.add(popped(1))
    assert popped(2) not in done


def test_without_a_time_nothing_is_known() -> None:
    done = DoneMessages(ManualClock().monotonic, 0.0)
    done.add(popped(1))
    done.acknowledged(popped(1))
    assert popped(1) not in done


def test_the_oldest_of_very_many_is_forgotten() -> None:
    done = DoneMessages(ManualClock().monotonic, 10.0)
    for number in range(4097):
        one = popped(1)
        one.message.born_timestamp_ms = number
        done.add(one)
    first, second = popped(1), popped(1)
    first.message.born_timestamp_ms, second.message.born_timestamp_ms = 0, 1
    assert first not in done
    assert second in done
