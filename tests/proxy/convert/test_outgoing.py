"""Messages that are encoded without protobuf's objects say what protobuf's objects say, with both engines."""

import gzip
import string
import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.convert.outgoing import encoded_topic, encoder
from proxy.convert.outgoing import outgoing as command_message
from proxy.convert.reserved import RESERVED
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.engine.choice import native
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import SysFlag
from tests.proxy.convert.reference import outgoing

_native: Any = native("sprocket.grpc_wire.message_writer_native")
_ENCODERS = [encoder(wire.ReceiveMessageResponse, engine) for engine in (None, _native)[: 1 + (_native is not None)]]
_COMPRESSED = int(SysFlag.COMPRESSED)
_NOW_MS = 1_800_000_000_123
_HANDLE = "0 1700000000000 60000 0 0 broker-a 0 7 4711"
_V4, _V6 = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F]), bytes(15) + b"\x01\x00\x00\x2a\x9f"
_SPECIAL = [
    names.TAGS, names.KEYS, names.SHARDING_KEY, "TRACE_CONTEXT", "__BORNHOST", names.WAIT, names.UNIQ_KEY, names.DELAY,
    names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TRANSACTION_PREPARED, names.PRIORITY,
    names.LITE_TOPIC, "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", names.PRODUCER_GROUP, names.CLUSTER,
    names.IDEMPOTENCE_ID, names.TRANSACTION_CHECK_TIMES,
]  # fmt: skip
_NAMES = st.text(string.ascii_letters + "äß语", min_size=1, max_size=12).map(str.encode)
_TEXTS = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), max_size=200).map(str.encode)
_SPECIAL_VALUES = st.sampled_from(
    [b"true", b"TRUE", b"1", b"-1", b"3", b"1700000000000", b"99999999999999999999", b"a b", b" a", "٣".encode(), b" "]
)
_USUAL = st.lists(st.tuples(st.one_of(st.sampled_from(_SPECIAL[:7]).map(str.encode), _NAMES), _TEXTS), max_size=9)
_ODD = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(_SPECIAL).map(str.encode), st.sampled_from(_SPECIAL).map(str.encode), _NAMES),
        st.one_of(_TEXTS, _SPECIAL_VALUES, _SPECIAL_VALUES),
    ),
    max_size=9,
)
_PIECES = st.one_of(
    st.sampled_from([b"\x01", b"\x02", b"\x01", b"\x02", b"\xff", b"\xed\xa0\x80", b"\0"]),
    st.sampled_from(_SPECIAL).map(str.encode), _NAMES, st.binary(max_size=9),
)  # fmt: skip
_LONG = st.integers(-(1 << 63), (1 << 63) - 1)
_NUMBERS = st.fixed_dictionaries({
    "born_ms": st.one_of(st.integers(0, 1 << 42), _LONG), "stored_ms": st.one_of(st.integers(0, 1 << 42), _LONG),
    "queue_id": st.integers(-(1 << 31), (1 << 31) - 1), "offset": st.one_of(st.integers(0, 5000), _LONG),
    "times": st.one_of(st.integers(0, 20), st.integers(-(1 << 31), (1 << 31) - 2)),
})  # fmt: skip


def _encoded(items: "list[tuple[bytes, bytes]]") -> bytes:
    return b"".join(name + b"\x01" + value + b"\x02" for name, value in items)


def _message(
    properties: bytes, body: bytes = b"hello", *, sys_flag: int = 0, host: bytes = _V4, **numbers: int
) -> ReceivedMessage:
    fields = {"born_ms": 1_700_000_000_001, "stored_ms": 1_700_000_000_002, "queue_id": 0, "offset": 7, "times": 0}
    fields.update(numbers)
    return ReceivedMessage(
        topic="Orders",
        queue=MessageQueue("Orders", "broker-a", fields["queue_id"]),
        queue_offset=fields["offset"],
        physical_offset=4711,
        body=body,
        raw_properties=properties,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=fields["born_ms"],
        born_host=host,
        store_timestamp_ms=fields["stored_ms"],
        store_host=host,
        reconsume_times=fields["times"],
        size_bytes=100,
    )


def _same(properties: bytes, *args: Any, topic: str = "Orders", handle: str | None = _HANDLE, **fields: Any) -> Any:
    """Check what the encoders make of a message, and return what protobuf does."""
    expected = outgoing(_message(properties, *args, **fields), topic, handle, _NOW_MS)
    for encode in _ENCODERS:
        encoded = encode(_message(properties, *args, **fields), encoded_topic(topic), handle, _NOW_MS)
        assert wire.ReceiveMessageResponse.FromString(encoded) == wire.ReceiveMessageResponse(message=expected)
        found = [item.partition(b"\x01")[0] for item in properties.split(b"\x02")]
        if len(set(found)) == len(found):
            # Without the order of a map's entries, the bytes are the same too.
            assert len(encoded) == wire.ReceiveMessageResponse(message=expected).ByteSize()
    return expected


@given(
    _USUAL.map(_encoded), st.binary(max_size=300),
    st.one_of(st.none(), st.text(string.printable.strip(), min_size=1, max_size=300)), _NUMBERS,
    st.sampled_from([_V4, _V6]),
)  # fmt: skip
def test_any_usual_message(
    properties: bytes, body: bytes, handle: str | None, numbers: dict[str, int], host: bytes
) -> None:
    _same(properties, body, host=host, handle=handle, **numbers)


@example(_encoded([(b"__BORNHOST", "\u2003a".encode())]))
@example(_encoded([(b"UNIQ_KEY", b"")]))
@example(_encoded([(b"UNIQ_KEY", b"first"), (b"UNIQ_KEY", b"of the batch"), (b"WAIT", b"true")]))
@example(_encoded([(b"UNIQ_KEY", b""), (b"UNIQ_KEY", b"of the batch")]))
@example(b"UNIQ_KEY\x01id\x02KEYS\x01 a  b \x02last\x01without an end")
@given(_ODD.map(_encoded))
def test_any_properties(properties: bytes) -> None:
    _same(properties)


@given(st.lists(_PIECES, max_size=40).map(b"".join))
def test_bytes_that_are_no_properties(properties: bytes) -> None:
    _same(b"UNIQ_KEY\x01id\x02" + properties)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 4095, 4096, 1 << 14, 1 << 21])
def test_bodies_and_lengths_around_the_limits_of_varints(size: int) -> None:
    _same(_encoded([(b"UNIQ_KEY", b"id")]), bytes(size))
    for name in (b"name", b"KEYS", b"TRACE_CONTEXT", b"__SHARDINGKEY"):
        _same(_encoded([(b"UNIQ_KEY", b"id"), (name, b"v" * min(size, 1 << 15))]), b"")


@pytest.mark.parametrize(
    "piece", [b"a\x01b\x02", b"a\x01b\x02\x02", b"KEYS\x01 \x02", b"\x01\x02", b"__SHARDINGKEY\x01a\x02"]
)
@pytest.mark.parametrize("size", [60_000, 100_000])
def test_most_properties_that_a_record_can_have(piece: bytes, size: int) -> None:
    _same(b"UNIQ_KEY\x01id\x02" + piece * (size // len(piece)))
    _same(b"UNIQ_KEY\x01id\x02KEYS\x01" + b" " * size)


def test_topic_of_a_namespace_has_two_parts() -> None:
    found = _same(_encoded([(b"UNIQ_KEY", b"id")]), topic="team%Orders").topic
    assert (found.resource_namespace, found.name) == ("team", "Orders")


def test_properties_of_the_protocol_are_hidden() -> None:
    own = [(name.encode(), b"1") for name in sorted(RESERVED - {names.UNIQ_KEY})]
    found = _same(_encoded([*own, (b"UNIQ_KEY", b"id"), (b"colour", b"red")]))
    assert dict(found.user_properties) == {"colour": "red"}


@pytest.mark.parametrize(
    ("properties", "field", "value"),
    [
        ({names.PRIORITY: "3"}, "priority", 3),
        ({names.LITE_TOPIC: "chat"}, "lite_topic", "chat"),
        ({names.TRANSACTION_PREPARED: "true"}, "message_type", wire.TRANSACTION),
        ({names.DELAY: "3"}, "message_type", wire.DELAY),
        ({names.SHARDING_KEY: "a"}, "message_type", wire.FIFO),
    ],
)
def test_kinds_of_messages(properties: dict[str, str], field: str, value: Any) -> None:
    system = _same(names.encode({names.UNIQ_KEY: "id", **properties}).encode()).system_properties
    assert getattr(system, field) == value


def test_times_of_delivery() -> None:
    for properties, at_ms in [
        ({names.TIMER_DELIVER_MS: "1700000000000"}, 1_700_000_000_000),
        ({names.TIMER_DELAY_SEC: "3"}, _NOW_MS + 3000),
        ({names.TIMER_DELAY_MS: "3"}, 0),
    ]:
        system = _same(names.encode({names.UNIQ_KEY: "id", **properties}).encode()).system_properties
        assert system.delivery_timestamp.ToMilliseconds() == at_ms


def test_dead_letter_names_its_origin() -> None:
    properties = {names.UNIQ_KEY: "id", "DLQ_ORIGIN_TOPIC": "Orders", "DLQ_ORIGIN_MESSAGE_ID": "origin"}
    assert _same(names.encode(properties).encode()).system_properties.dead_letter_queue.message_id == "origin"


@pytest.mark.parametrize("body", [zlib.compress(b"hello"), gzip.compress(b"hello", mtime=0), b"damaged"])
def test_compressed_bodies(body: bytes) -> None:
    found = _same(_encoded([(b"UNIQ_KEY", b"id")]), body, sys_flag=_COMPRESSED)
    is_inflated = found.system_properties.body_encoding == wire.IDENTITY
    assert found.body == (b"hello" if is_inflated else body)


def test_message_of_a_command_has_no_handle() -> None:
    properties = _encoded([(b"UNIQ_KEY", b"id"), (b"colour", b"red")])
    found = command_message(_message(properties), "Orders", _NOW_MS)
    assert found == outgoing(_message(properties), "Orders", None, _NOW_MS)
    assert not found.system_properties.HasField("receipt_handle")


@pytest.mark.skipif(_native is None, reason="the compiled engine is not in use")
def test_compiled_engine_encodes_the_usual_message_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    message = _message(_encoded([(b"UNIQ_KEY", b"id"), (b"TAGS", b"red"), (b"KEYS", b"a b"), (b"size", b"XL")]))
    encoded = _ENCODERS[1](message, encoded_topic("Orders"), _HANDLE, _NOW_MS)
    # Pure Python would have parsed the properties.
    assert encoded and message._properties is None
