"""The compiled reader of requests accepts, refuses and finds what protobuf's library does."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from sprocket.engine.choice import native
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.encoding import number, octets, varint
from sprocket.grpc_wire.reader import reader

_native: Any = native("sprocket.grpc_wire.reader_native")
pytestmark = pytest.mark.skipif(_native is None, reason="pure Python reads with protobuf's library")

_KINDS = [
    wire.SendMessageRequest, wire.AckMessageRequest, wire.ChangeInvisibleDurationRequest, wire.ReceiveMessageRequest
]  # fmt: skip
_READERS = {} if _native is None else {kind: reader(kind, _native) for kind in _KINDS}
_SIZED = 2
# Numbers of fields that are there, that are not, and that no field may have.
_NUMBERS = st.one_of(st.integers(1, 24), st.sampled_from([0, 63, 64, 536_870_911]))
_VALUES = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1), st.sampled_from([1 << 31, 1 << 32, 1 << 63]))
_TEXTS = st.one_of(st.text(max_size=9).map(str.encode), st.binary(max_size=4))


def _padded(value: int, pad: int) -> bytes:
    """A number with zeros behind it, which a parser may refuse."""
    encoded = varint(value)
    return encoded if not pad else encoded[:-1] + bytes([encoded[-1] | 0x80]) + b"\x80" * (pad - 1) + b"\0"


def _field(numbers: "tuple[int, int, int, int, int]", content: bytes, value: int) -> bytes:
    """A field of any wire type, with padded numbers."""
    field, wire_type, pad, value_pad, shift = numbers
    tag = _padded(field << 3 | wire_type, pad)
    if wire_type == 0:
        return tag + _padded(value, value_pad)
    if wire_type == _SIZED:
        return tag + _padded(max(0, len(content) + shift), value_pad) + content
    if wire_type == 3:
        return tag + content + varint((field + shift) << 3 | 4)
    return tag + content


_PADS = st.sampled_from([0, 0, 0, 0, 0, 0, 1, 3, 4, 9])
_HEADS = st.tuples(
    _NUMBERS, st.sampled_from([0, 2, 2, 2, 2, 3, 1, 5, 4, 6]), _PADS, _PADS, st.sampled_from([0] * 12 + [1, -1, 7])
)
_MESSAGES = st.recursive(
    st.builds(_field, _HEADS, _TEXTS, _VALUES),
    lambda inner: st.builds(
        _field,
        st.tuples(st.integers(1, 24), st.sampled_from([2, 2, 2, 3]), _PADS, _PADS, st.just(0)),
        st.lists(inner, max_size=4).map(b"".join), _VALUES,
    ),
    max_leaves=12,
)  # fmt: skip


def _compare(kind: Any, data: bytes) -> bool:
    """Check that both read the same; return whether they accept it."""
    try:
        expected = kind.FromString(data)
    except DecodeError:
        with pytest.raises(ValueError):
            _READERS[kind](data)
        return False
    _same(expected, _READERS[kind](data))
    return True


def _same(expected: Any, found: Any) -> None:
    assert type(found).__name__ == expected.DESCRIPTOR.name
    for field in expected.DESCRIPTOR.fields:
        value, other = getattr(expected, field.name), getattr(found, field.name)
        if field.has_presence:
            assert found.HasField(field.name) == expected.HasField(field.name), field.name
        if field.type != field.TYPE_MESSAGE:
            assert (list(other) if field.is_repeated else other) == (list(value) if field.is_repeated else value)
        elif field.message_type.GetOptions().map_entry:
            assert dict(other) == dict(value)
        elif field.is_repeated:
            assert len(other) == len(value)
            for one, two in zip(value, other, strict=True):
                _same(one, two)
        else:
            _same(value, other)


@example(wire.SendMessageRequest, b"\x0b\0\0\x0c")  # the number 0 passes in a group that is not known
@given(st.sampled_from(_KINDS), st.lists(_MESSAGES, max_size=4).map(b"".join))
def test_any_fields(kind: Any, data: bytes) -> None:
    _compare(kind, data)


def _message(system: bytes, rest: bytes) -> bytes:
    return octets(b"\x0a", octets(b"\x1a", system) + rest)


@given(
    st.lists(_MESSAGES, max_size=4).map(b"".join), st.lists(_MESSAGES, max_size=3).map(b"".join),
    st.lists(st.lists(_MESSAGES, max_size=3).map(b"".join), max_size=3),
)  # fmt: skip
def test_messages_of_a_send(system: bytes, more: bytes, entries: list[bytes]) -> None:
    """Nested messages, each of which comes twice, and entries of a map."""
    rest = b"".join([octets(b"\x12", entry) for entry in entries]) + octets(b"\x1a", more) + octets(b"\x0a", more)
    _compare(wire.SendMessageRequest, _message(system, rest))


@given(st.data())
def test_mutated_sends(data: st.DataObject) -> None:
    system = wire.SystemProperties(
        tag="tag", keys=["one", "zwei", "三"], message_id="01AB", message_type=wire.FIFO, message_group="group",
        born_host="host", delivery_attempt=3, trace_context="trace", body_encoding=wire.GZIP, priority=-1,
    )  # fmt: skip
    system.born_timestamp.seconds, system.delivery_timestamp.nanos = -1, 999
    message = wire.Message(topic=wire.Resource(name="T"), user_properties={"a": "b", "ä": ""}, body=b"body" * 9)
    message.system_properties.CopyFrom(system)
    octets_ = bytearray(wire.SendMessageRequest(messages=[message, message]).SerializeToString())
    assert _compare(wire.SendMessageRequest, bytes(octets_))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(octets_) - 1))
        octets_[place] = data.draw(st.integers(0, 255))
    _compare(wire.SendMessageRequest, bytes(octets_[: data.draw(st.integers(0, len(octets_)))]))


@given(st.data())
def test_mutated_receives(data: st.DataObject) -> None:
    queue = wire.MessageQueue(
        topic=wire.Resource(name="T"), id=-1, broker=wire.Broker(name="broker-a"),
        accept_message_types=[wire.NORMAL, wire.FIFO, 300],
    )  # fmt: skip
    request = wire.ReceiveMessageRequest(
        group=wire.Resource(name="G"), message_queue=queue, batch_size=32, auto_renew=True, attempt_id="attempt",
        filter_expression=wire.FilterExpression(type=wire.SQL, expression="a > 5"),
    )  # fmt: skip
    request.invisible_duration.seconds, request.long_polling_timeout.nanos = 60, 1
    octets_ = bytearray(request.SerializeToString())
    assert _compare(wire.ReceiveMessageRequest, bytes(octets_))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(octets_) - 1))
        octets_[place] = data.draw(st.integers(0, 255))
    _compare(wire.ReceiveMessageRequest, bytes(octets_[: data.draw(st.integers(0, len(octets_)))]))


_TYPES = st.lists(st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1)), max_size=6)


@given(_TYPES, _TYPES, st.integers(-9, 0))
def test_repeated_numbers_packed_or_not(packed: list[int], single: list[int], cut: int) -> None:
    number_ = wire.MessageQueue.DESCRIPTOR.fields_by_name["accept_message_types"].number
    inner = b"".join(map(varint, packed))
    inner = inner[: len(inner) + cut] if cut else inner
    queue = octets(varint(number_ << 3 | _SIZED), inner) + b"".join(
        varint(number_ << 3) + varint(one) for one in single
    )
    _compare(wire.ReceiveMessageRequest, octets(b"\x12", queue))


def test_receive_with_thousands_of_numbers_is_left_to_protobuf() -> None:
    number_ = wire.MessageQueue.DESCRIPTOR.fields_by_name["accept_message_types"].number
    data = octets(b"\x12", octets(varint(number_ << 3 | _SIZED), b"\x01" * 100_000))
    assert isinstance(_READERS[wire.ReceiveMessageRequest](data), wire.ReceiveMessageRequest)


@pytest.mark.parametrize("depth", [1, 95, 96, 97, 98, 99, 100, 101, 5000])
def test_groups_in_groups(depth: int) -> None:
    groups = number(50 << 3 | 3) * depth + number(50 << 3 | 4) * depth
    for data in (groups, octets(b"\x0a", groups), _message(groups, b""), octets(b"\x0a", octets(b"\x12", groups))):
        _compare(wire.SendMessageRequest, data)


def test_equal_messages() -> None:
    read = _READERS[wire.AckMessageRequest]
    empty, named, other = (read(octets(b"\x0a", octets(b"\x12", name))) for name in (b"", b"a", b"b"))
    assert empty == read(b"") and named != empty and named != other
    assert named == read(octets(b"\x0a", octets(b"\x12", b"b")) + octets(b"\x0a", octets(b"\x12", b"a")))


@pytest.mark.parametrize(("part", "is_plain"), [(b"\x0a\x00" * 1024, True), (b"\x0a\x00" * 100_000, False)])
def test_request_with_thousands_of_parts_takes_no_more_memory_than_protobuf(part: bytes, is_plain: bool) -> None:
    found = _READERS[wire.SendMessageRequest](part)
    assert len(found.messages) == len(part) // 2
    assert isinstance(found, wire.SendMessageRequest) != is_plain
    with pytest.raises((ValueError, DecodeError)):
        _READERS[wire.SendMessageRequest](part + b"\x0a")
