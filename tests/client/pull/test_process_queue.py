"""What may be committed is always the smallest offset that is not acknowledged."""

import random

from sprocket.client.message import ReceivedMessage
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.bodies.client import MessageQueue
from tests.client.java_vectors import RECORD_IPV4

QUEUE = MessageQueue("TopicTest", "broker-a", 3)


def message(offset: int) -> ReceivedMessage:
    (decoded,) = decode_records(RECORD_IPV4, QUEUE, offset - 42)
    return decoded


def test_nothing_may_be_committed_before_a_broker_has_answered() -> None:
    held = ProcessQueue(QUEUE, 10)
    assert held.commit_offset is None
    held.put([], 12)
    assert held.commit_offset == 12


def test_commit_stays_before_the_first_that_is_not_acknowledged() -> None:
    held = ProcessQueue(QUEUE, 10)
    first, second, third = (message(offset) for offset in (10, 11, 13))
    held.put([first, second, third], 14)
    assert held.acknowledge(second)
    assert (held.commit_offset, held.count, held.span) == (10, 2, 3)
    assert held.acknowledge(first)
    assert held.commit_offset == 13  # 12 did not match the subscription
    assert held.acknowledge(third)
    assert (held.commit_offset, held.count, held.size_bytes, held.span) == (14, 0, 0, 0)


def test_second_acknowledgement_and_that_of_a_dropped_queue_count_nothing() -> None:
    held = ProcessQueue(QUEUE, 10)
    first, second = message(10), message(11)
    held.put([first, second], 12)
    assert held.acknowledge(second)
    assert not held.acknowledge(second)
    assert held.acknowledge(first)
    assert not held.acknowledge(first)
    later = message(12)
    held.put([later], 13)
    held.drop()
    assert not held.acknowledge(later)


def test_any_order_of_acknowledgements_agrees_with_a_plain_set() -> None:
    chance = random.Random(7)
    for _ in range(50):
        held = ProcessQueue(QUEUE, 0)
        offsets = sorted(chance.sample(range(200), 60))
        messages = [message(offset) for offset in offsets]
        held.put(messages, 200)
        left = set(offsets)
        chance.shuffle(messages)
        for acknowledged in messages:
            assert held.acknowledge(acknowledged)
            left.discard(acknowledged.queue_offset)
            assert held.commit_offset == min(left, default=200)
            assert held.count == len(left)
