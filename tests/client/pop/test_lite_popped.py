"""A pop of lite topics becomes messages with handles, as RocketMQ's client makes them."""

import struct

import pytest

from sprocket.client.pop.lite_popped import lite_popped_messages
from sprocket.common.errors import ProtocolError
from sprocket.remoting.headers.lite import PopLiteMessageResponseHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.pop_extra_info import PopHandle
from tests.client.java_vectors import RECORD_IPV4
from tests.client.pop.test_popped_message import record

_HEADER = PopLiteMessageResponseHeader(pop_time=1_700_000_000_000, invisible_time=30_000, revive_qid=999)


def lite_record(**properties: str) -> bytes:
    """Java's record with these properties instead of its own."""
    body = record(0, 5)
    at = _properties_at(body)
    encoded = names.encode(properties).encode()
    made = bytearray(body[:at] + struct.pack(">h", len(encoded)) + encoded)
    struct.pack_into(">i", made, 0, len(made))
    return bytes(made)


def _properties_at(data: bytes) -> int:
    """The place of the length of the properties in a record of IPv4 hosts."""
    body_at = 4 * 5 + 8 * 2 + 4 + 8 + 8 + 8 + 8 + 4 + 8
    topic_at = body_at + 4 + int.from_bytes(data[body_at : body_at + 4], "big")
    return topic_at + 1 + data[topic_at]


def of_lite(lite: str, offset: int, queue: str = "", parent: str = "TopicTest") -> bytes:
    return lite_record(
        **{
            names.LITE_TOPIC: lite,
            names.INNER_MULTI_DISPATCH: queue or f"%LMQ%${parent}${lite}",
            names.INNER_MULTI_QUEUE_OFFSET: str(offset),
        }
    )


def test_handles_have_the_offsets_in_the_light_queues() -> None:
    body = of_lite("chat", 7) + of_lite("chat", 8) + of_lite("other", 0)
    found = lite_popped_messages(body, _HEADER, "TopicTest", "broker-a", 100.0)
    assert [one.handle for one in found] == [
        PopHandle(0, 1_700_000_000_000, 30_000, 999, "0", "broker-a", 0, offset) for offset in (7, 8, 0)
    ]
    assert [one.queue_offset for one in found] == [7, 8, 0]
    assert [one.properties[names.LITE_TOPIC] for one in found] == ["chat", "chat", "other"]
    assert {(one.topic, one.invisible_until, one.reconsume_times) for one in found} == {("TopicTest", 130.0, 0)}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("1;2", [1, 2]),
        ("0 qo0%5 3;", [3, 0]),
        ("x;-1", [0, 0]),
        ("1", [0, 0]),
        (f"{'9' * 20};1", [0, 1]),
        (None, [0, 0]),
    ],
)
def test_earlier_deliveries_are_counted_as_the_broker_says(text: str | None, counts: list[int]) -> None:
    header = PopLiteMessageResponseHeader(pop_time=1, invisible_time=1, revive_qid=999, order_count_info=text)
    found = lite_popped_messages(of_lite("a", 1) + of_lite("a", 2), header, "TopicTest", "broker-a", 0.0)
    assert [one.reconsume_times for one in found] == counts


@pytest.mark.parametrize(
    "body",
    [
        RECORD_IPV4,
        of_lite("chat", 1, parent="Other"),
        lite_record(**{names.LITE_TOPIC: "chat", names.INNER_MULTI_DISPATCH: "%LMQ%$TopicTest$chat"}),
        lite_record(
            **{
                names.LITE_TOPIC: "chat", names.INNER_MULTI_DISPATCH: "%LMQ%$TopicTest$chat",
                names.INNER_MULTI_QUEUE_OFFSET: "x",
            }
        ),
        of_lite("chat", 1)[:-3],
    ],
)  # fmt: skip
def test_answer_whose_messages_nobody_could_acknowledge_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        lite_popped_messages(body, _HEADER, "TopicTest", "broker-a", 0.0)
