"""Bytes of received messages that are made without protobuf say the same as protobuf's."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.convert.outgoing import COMPRESSED, outgoing
from proxy.convert.received_bytes import encode_received, encoded_topic
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.message import properties as names

_HANDLE = "0 1700000000000 60000 0 0 broker-a 0 7 4711"
_V4, _V6 = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F]), bytes(15) + b"\x01\x00\x00\x2a\x9f"
_NAMES = st.text(string.ascii_letters + "äß语", min_size=1, max_size=12)
_VALUES = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=300)
_USUAL = st.sampled_from([names.TAGS, names.KEYS, names.SHARDING_KEY, "TRACE_CONTEXT", "__BORNHOST", names.WAIT])
_PROPERTIES = st.dictionaries(st.one_of(_USUAL, _NAMES), _VALUES, max_size=8)


def _message(
    properties: dict[str, str], body: bytes = b"hello", *, sys_flag: int = 0, host: bytes = _V4, **numbers: int
) -> ReceivedMessage:
    fields = {"born_ms": 1_700_000_000_001, "stored_ms": 1_700_000_000_002, "queue_id": 0, "offset": 7, "times": 0}
    fields.update(numbers)
    return ReceivedMessage(
        topic="Orders",
        queue=MessageQueue("Orders", "broker-a", fields["queue_id"]),
        queue_offset=fields["offset"],
        physical_offset=4711,
        body=body,
        raw_properties=names.encode(properties).encode(),
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=fields["born_ms"],
        born_host=host,
        store_timestamp_ms=fields["stored_ms"],
        store_host=host,
        reconsume_times=fields["times"],
        size_bytes=100,
    )


def _same(message: ReceivedMessage, topic: str = "Orders", handle: str = _HANDLE) -> None:
    encoded = encode_received(message, encoded_topic(topic), handle)
    assert encoded is not None
    expected = wire.ReceiveMessageResponse(message=outgoing(message, topic, handle, 0))
    assert wire.ReceiveMessageResponse.FromString(encoded) == expected
    # Without the order of a map's entries, the bytes are the same too.
    assert len(encoded) == expected.ByteSize()


@given(
    _PROPERTIES, st.binary(max_size=300), st.text(string.printable.strip(), min_size=1, max_size=300),
    st.fixed_dictionaries({
        "born_ms": st.integers(0, (1 << 45) - 1), "stored_ms": st.integers(0, (1 << 45) - 1),
        "queue_id": st.integers(0, (1 << 31) - 1), "offset": st.integers(0, (1 << 63) - 1),
        "times": st.integers(0, (1 << 31) - 2),
    }),
    st.sampled_from([_V4, _V6]),
)  # fmt: skip
def test_any_usual_message(
    properties: dict[str, str], body: bytes, handle: str, numbers: dict[str, int], host: bytes
) -> None:
    _same(_message(properties, body, host=host, **numbers), handle=handle)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 4095, 4096, 1 << 14, 1 << 21])
def test_bodies_and_lengths_around_the_limits_of_varints(size: int) -> None:
    _same(_message({names.UNIQ_KEY: "id"}, bytes(size)))
    _same(_message({"name": "v" * min(size, 1 << 14) or "v"}, b""))


def test_a_topic_of_a_namespace_has_two_parts() -> None:
    _same(_message({}), topic="team%Orders")


@pytest.mark.parametrize(
    "message",
    [
        _message({}, sys_flag=COMPRESSED),
        _message({names.DELAY: "3"}),
        _message({names.TIMER_DELIVER_MS: "1700000000000"}),
        _message({names.TIMER_DELAY_SEC: "3"}),
        _message({names.TIMER_DELAY_MS: "3"}),
        _message({names.PRIORITY: "3"}),
        _message({names.LITE_TOPIC: "chat"}),
        _message({names.TRANSACTION_PREPARED: "true"}),
        _message({"DLQ_ORIGIN_TOPIC": "Orders", "DLQ_ORIGIN_MESSAGE_ID": "id"}),
        _message({}, born_ms=-1),
        _message({}, stored_ms=1 << 45),
        _message({}, queue_id=-1),
        _message({}, times=-1),
    ],
)
def test_other_messages_are_left_to_protobuf(message: ReceivedMessage) -> None:
    assert encode_received(message, encoded_topic("Orders"), _HANDLE) is None
