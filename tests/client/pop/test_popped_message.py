"""A pop's answer becomes messages with handles."""

import struct

import pytest

from sprocket.client.pop.popped_message import popped_messages
from sprocket.common.errors import ProtocolError
from sprocket.remoting.headers.pop import PopMessageResponseHeader
from sprocket.remoting.message import properties as message_properties
from sprocket.remoting.message.pop_extra_info import PopHandle
from tests.client.java_vectors import RECORD_IPV4

QUEUE_ID_AT, QUEUE_OFFSET_AT = 12, 20


def record(queue_id: int, queue_offset: int) -> bytes:
    """Java's record, elsewhere."""
    data = bytearray(RECORD_IPV4)
    struct.pack_into(">i", data, QUEUE_ID_AT, queue_id)
    struct.pack_into(">q", data, QUEUE_OFFSET_AT, queue_offset)
    return bytes(data)


def answer(**fields: object) -> PopMessageResponseHeader:
    values = {"pop_time": 1_700_000_000_000, "invisible_time": 30_000, "revive_qid": 2, "rest_num": 0} | fields
    return PopMessageResponseHeader(**values)  # type: ignore[arg-type]


def test_handles_of_several_queues() -> None:
    body = record(0, 5) + record(1, 9) + record(0, 7)
    header = answer(start_offset_info="0 0 5;0 1 9", msg_offset_info="0 0 5,7;0 1 9")
    first, other, second = popped_messages(body, header, "TopicTest", "broker-a", 100.0)
    assert first.handle == PopHandle(5, 1_700_000_000_000, 30_000, 2, "0", "broker-a", 0, 5)
    assert second.handle == PopHandle(5, 1_700_000_000_000, 30_000, 2, "0", "broker-a", 0, 7)
    assert other.handle == PopHandle(9, 1_700_000_000_000, 30_000, 2, "0", "broker-a", 1, 9)
    assert (first.topic, first.invisible_until, first.queue.queue_id) == ("TopicTest", 130.0, 0)
    assert first.body == first.message.body


def test_old_brokers_say_no_offsets() -> None:
    body = record(0, 5) + record(0, 6)
    handles = [popped.handle for popped in popped_messages(body, answer(), "TopicTest", "broker-a", 0.0)]
    assert [(handle.first_offset, handle.queue_offset) for handle in handles] == [(5, 5), (5, 6)]


def test_attempts_of_ordered_messages_are_counted() -> None:
    body = record(0, 5) + record(0, 6) + record(1, 1)
    header = answer(
        start_offset_info="0 0 5;0 1 1",
        msg_offset_info="0 0 5,6;0 1 1",
        order_count_info="0 qo0%5 3;0 1 2",
        revive_qid=999,
    )
    popped = popped_messages(body, header, "TopicTest", "broker-a", 0.0)
    assert [message.reconsume_times for message in popped] == [3, popped[1].message.reconsume_times, 2]
    assert all(message.handle.is_ordered for message in popped)


def test_handle_that_the_broker_wrote_into_a_retried_message_holds() -> None:
    own = PopHandle(3, 1_700_000_000_001, 5_000, 1, "2", "broker-b", 0, 4)
    (plain,) = popped_messages(record(0, 4), answer(), "TopicTest", "broker-a", 0.0)
    raw = message_properties.encode({**plain.properties, "POP_CK": own.encode()}).encode()
    old = plain.message._raw_properties
    at = RECORD_IPV4.rfind(old)
    data = bytearray(record(0, 4)[: at - 2] + len(raw).to_bytes(2, "big") + raw)
    struct.pack_into(">i", data, 0, len(data))
    header = answer(start_offset_info="1 0 3", msg_offset_info="1 0 4")
    (popped,) = popped_messages(bytes(data), header, "TopicTest", "broker-a", 0.0)
    assert popped.handle == own


@pytest.mark.parametrize("cut", [1, 15, 60])
def test_cut_answer_is_an_error(cut: int) -> None:
    with pytest.raises(ProtocolError):
        popped_messages(RECORD_IPV4[:-cut], answer(), "TopicTest", "broker-a", 0.0)


def test_size_that_would_stand_still_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="size 0"):
        popped_messages(bytes(64), answer(), "TopicTest", "broker-a", 0.0)
