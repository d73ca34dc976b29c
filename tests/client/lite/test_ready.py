"""Order of waiting messages, without a broker."""

from sprocket.client.lite.ready import LiteReady
from sprocket.client.message import ReceivedMessage
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.pop_extra_info import NORMAL, PopHandle


def popped(lite_topic: str, offset: int, broker: str = "b") -> PoppedMessage:
    message = ReceivedMessage(
        topic="T", queue=MessageQueue("T", broker, 0), queue_offset=offset, physical_offset=0, body=b"x",
        raw_properties=names.encode({names.LITE_TOPIC: lite_topic}).encode(), flag=0, sys_flag=0, born_timestamp_ms=0,
        born_host=bytes(8), store_timestamp_ms=0, store_host=bytes(8), reconsume_times=0, size_bytes=0,
    )  # fmt: skip
    return PoppedMessage(message, "T", PopHandle(0, 0, 0, 0, NORMAL, broker, 0, offset), 60.0)


def test_a_lite_topic_gives_its_next_message_when_the_one_before_is_settled() -> None:
    ready = LiteReady()
    a0, a1, b0 = popped("a", 0), popped("a", 1), popped("b", 0)
    assert ready.extend([a0, a1, b0]) == []
    assert len(ready) == 2 and list(ready) == [a0, a1, b0]
    assert [ready.popleft(), ready.popleft()] == [a0, b0]
    assert len(ready) == 0 and list(ready) == [a1]
    ready.settled(a0)
    ready.settled(a0)
    assert ready.popleft() is a1
    ready.settled(b0)
    ready.settled(a1)
    assert len(ready) == 0


def test_what_follows_a_rejected_message_is_given_up() -> None:
    ready = LiteReady()
    a0, a1, a2 = (popped("a", offset) for offset in range(3))
    ready.extend([a0, a1, a2])
    assert ready.popleft() is a0
    assert ready.rejected(a1) == []
    assert ready.rejected(a0) == [a1, a2]
    assert len(ready) == 0 and list(ready) == []


def test_a_delivery_replaces_what_the_broker_delivered_before_and_no_other_broker() -> None:
    ready = LiteReady()
    old = [popped("a", 0), popped("a", 1)]
    other = popped("a", 0, "c")
    ready.extend([*old, other])
    assert ready.popleft() is old[0]
    new = popped("a", 0)
    assert ready.extend([new]) == old
    ready.settled(old[0])
    assert {ready.popleft(), ready.popleft()} == {new, other}


def test_a_lite_topic_that_is_left_gives_nothing_more() -> None:
    ready = LiteReady()
    a0, b0 = popped("a", 0), popped("b", 0)
    ready.extend([a0, b0])
    assert ready.left("a") == [a0] and ready.left("a") == []
    assert ready.popleft() is b0
    ready.clear()
    assert len(ready) == 0
