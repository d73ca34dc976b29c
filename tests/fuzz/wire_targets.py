"""Decoders of what a peer sends to the remoting port: frames, headers, bodies, handles."""

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import lz4.frame
import msgspec
import zstandard

import sprocket.remoting.bodies
import sprocket.remoting.headers
from broker.message_id import decode_offset_message_id
from broker.pop.records import AckMsg, BatchAckMsg, PopCheckPoint
from broker.timer.recall_handle import RecallHandle
from sprocket.client.compression import Compression, compress, decompress
from sprocket.client.errors import BodyUnreadable
from sprocket.client.message import MessageQueue
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.errors import ProtocolError, RequestError
from sprocket.common.limits import MAX_INFLATED_BYTES
from sprocket.remoting.bodies.heartbeat import read_heartbeat
from sprocket.remoting.bodies.registration import RegisterBrokerBody, TopicConfigAndMapping
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec import codec_binary, codec_json
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, FrameDecoder, frame_prefix
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.message import properties as message_properties
from sprocket.remoting.message.pop_extra_info import (
    parse_handle,
    parse_msg_offsets,
    parse_order_counts,
    parse_start_offsets,
)
from sprocket.remoting.routes import Action, Resource, Route, RouteTable, UnroutableRequest
from tests.fuzz.hostile_requests import BODIES
from tests.fuzz.target import Target, pieces_of
from tests.send_headers import send_header

INFLATED_LIMIT = 50_000


def _accept(_: Request[object]) -> Response:
    return Response()


def structs_of(package: Any, base: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Every struct that the modules of a package declare, in one order."""
    found: dict[str, type[msgspec.Struct]] = {}
    for module in iter_modules(package.__path__):
        for name, value in vars(import_module(f"{package.__name__}.{module.name}")).items():
            if isinstance(value, type) and issubclass(value, base) and value is not base:
                found[f"{value.__module__}.{name}"] = value
    return [found[name] for name in sorted(found)]


HEADERS = structs_of(sprocket.remoting.headers, Header)
BODY_TYPES: list[Any] = [
    one for one in structs_of(sprocket.remoting.bodies, msgspec.Struct) if not getattr(one, "__parameters__", ())
] + [PopCheckPoint, AckMsg, BatchAckMsg, dict, list]
# One table for each header: their codes need not differ.
TABLES = [
    RouteTable([Route(RequestCode.SEND_MESSAGE_V2, header, _accept, Resource.TOPIC, Action.PUB)])  # type: ignore[arg-type]
    for header in HEADERS
]


# Frames


def frames(data: bytes) -> None:
    """The frames of a stream are the same however it is split, and no more is held than was fed."""

    def seen(pieces: list[bytes]) -> list[object]:
        decoder = FrameDecoder(max_frame_bytes=4096, max_header_bytes=1024)
        found: list[object] = []
        for piece in pieces:
            found += decoder.feed(piece)
            assert decoder.pending_bytes <= 4096 + 8 + len(piece)
        return [*found, (decoder.error and decoder.error.kind) or decoder.pending_bytes]

    # Also many frames of the same sizes.
    for stream in (data, data[:60] * 20 + data[60:120]):
        whole = seen([stream])
        assert seen(pieces_of(stream)) == whole
        assert seen([stream[at : at + 1] for at in range(len(stream))]) == whole


# Headers


def json_header(data: bytes) -> None:
    """Envelope and extFields of any bytes."""
    with suppress(ProtocolError):
        envelope = codec_json.decode_envelope(data)
        fields = codec_json.decode_ext_fields(envelope.ext_fields)
        assert all(isinstance(name, str) and isinstance(value, str) for name, value in fields.items())


def binary_header(data: bytes) -> None:
    """A header that can be read is read as the same again once it is written."""
    with suppress(ProtocolError):
        first = codec_binary.decode_header(data)
        again = codec_binary.decode_header(
            codec_binary.encode_header(first.code, first.opaque, first.flag, first.remark, first.ext_fields)
        )
        assert (again.code, again.opaque, again.flag) == (first.code, first.opaque, first.flag)
        assert (again.remark, again.ext_fields) == (first.remark, first.ext_fields)


def whole_header(data: bytes) -> None:
    """A request or a response of any table; what the peer wrote is never taken for what the connection sets."""
    number = int.from_bytes(data[:2], "big")
    table, serialization = TABLES[number // 2 % len(TABLES)], number & 1
    with suppress(ProtocolError, UnroutableRequest):
        decoded = table.decode((serialization, data[2:], b"the body"))
        if isinstance(decoded, ReceivedResponse):
            return
        assert decoded[1].body == b"the body"
        assert decoded[1].serialization == serialization


def request_fields(data: bytes) -> None:
    """Fields of any header class mean the same in both serializations, also once the decoder knows their shape."""
    if len(data) < 2:
        return
    number = int.from_bytes(data[:2], "big") % len(HEADERS)
    names = [field.encode_name for field in msgspec.structs.fields(HEADERS[number])]
    values = data[2:].decode("utf-8", "replace").split("\x1f")
    fields = {name: value for name, value in zip(names, values, strict=False) if value}
    table = TABLES[number]
    outcomes = [_outcome(table, encode_request(310, 7, fields, serialization=kind)) for kind in (JSON, ROCKETMQ)]
    again = _outcome(table, encode_request(310, 7, fields, serialization=ROCKETMQ))
    assert outcomes[0] == outcomes[1] == again, outcomes


def _outcome(table: RouteTable, prefix: bytes) -> object:
    (frame,) = FrameDecoder().feed(prefix)
    try:
        decoded = table.decode(frame)
    except UnroutableRequest as error:
        return error.code, error.remark
    except ProtocolError as error:
        return error.kind
    assert not isinstance(decoded, ReceivedResponse)
    return decoded[1].header


# Bodies


def json_bodies(data: bytes) -> None:
    """Each type of body of any text."""
    for kind in BODY_TYPES:
        with suppress(ProtocolError):
            loads(data, kind)


def heartbeat(data: bytes) -> None:
    """Heartbeats of all families of clients."""
    with suppress(ProtocolError):
        read_heartbeat(data)


def registration(data: bytes) -> None:
    """A body of REGISTER_BROKER, plain, compressed, and compressed by us."""
    version = 479 if data[:1] < b"\x80" else 400
    for body, is_compressed in ((data[1:], False), (data[1:], True), (zlib.compress(data[1:], 1), True)):
        with suppress(ProtocolError):
            RegisterBrokerBody.decode(body, is_compressed, version)


def topic_line(data: bytes) -> None:
    """One topic's line in a compressed registration."""
    with suppress(ProtocolError):
        TopicConfig.decode(data.decode("utf-8", "replace"))


# Messages


def properties(data: bytes) -> None:
    """Looking for one property finds what parsing all of them finds."""
    text = data.decode("utf-8", "replace")
    encoded = text.encode()
    parsed = message_properties.parse(text)
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "a", ""):
        found = message_properties.find_last(encoded, name.encode() + b"\x01") if name else None
        assert (found.decode() if found is not None else None) == (parsed.get(name) if name else None)
    assert message_properties.parse(message_properties.encode(parsed)) == parsed


def pulled_records(data: bytes) -> None:
    """The body of a pull's answer, as a client takes it."""
    with suppress(ProtocolError):
        for message in decode_records(data, MessageQueue("Orders", "broker-a", 0)):
            assert 0 < message.size_bytes <= len(data)
            with suppress(BodyUnreadable):  # which who reads it is told
                assert len(message.body) <= MAX_INFLATED_BYTES


def compressed_body(data: bytes) -> None:
    """Nothing inflates beyond the bound, whatever it says of itself."""
    if not data:
        return
    kinds = (0, *(kind.value for kind in Compression), 0x400, 0x500)
    with suppress(BodyUnreadable):
        body = decompress(data[1:], 1 | kinds[data[0] % len(kinds)], INFLATED_LIMIT)
        assert len(body) <= INFLATED_LIMIT


def handles(data: bytes) -> None:
    """Texts that clients return: handles of popped and recalled messages, message ids, a pop's three texts."""
    text = data.decode("utf-8", "replace")
    with suppress(RequestError):
        handle = parse_handle(text)
        assert parse_handle(handle.encode()) == handle
    for parse in (parse_start_offsets, parse_msg_offsets, parse_order_counts):
        with suppress(ProtocolError):
            parse(text)
    with suppress(ValueError):
        recalled = RecallHandle.decode(text)
        assert -1 <= recalled.deliver_ms < 10**19 or recalled.deliver_ms < 0
    with suppress(ValueError):
        decode_offset_message_id(text)


# Seeds

SEND = send_header(properties="TAGS\x01a\x02KEYS\x01k\x02UNIQ_KEY\x01u\x02")
REGISTRATION = RegisterBrokerBody(
    TopicConfigAndMapping({"Orders": TopicConfig("Orders"), "B": TopicConfig("B", attributes={"+a": "b"})}), ["f"]
)


def _headers() -> Iterator[bytes]:
    number = 2 * HEADERS.index(SendMessageRequestHeaderV2)
    for serialization in (JSON, ROCKETMQ):
        prefix = encode_request(310, 7, SEND, serialization=serialization)
        yield (number + serialization).to_bytes(2, "big") + prefix[8:]
    hidden = b',"#serialization":77,"#channel":{"a":[1]},"#body":"eHh4"}'
    yield number.to_bytes(2, "big") + encode_request(310, 7, SEND)[8:-1] + hidden
    yield b'\x00\x00{"code":310,"flag":1,"extFields":{"a":1,"b":true,"c":null},"extFields":null}'


def _frames() -> Iterator[bytes]:
    for serialization in (JSON, ROCKETMQ):
        prefix = encode_request(310, 7, SEND, body_bytes=4, serialization=serialization)
        yield (prefix + b"body") * 3
    for length in (0, -1, 4, 2**31 - 1):
        yield struct.pack(">i", length) + bytes(8)
    yield frame_prefix(0, 0, 0) * 5


HEADER_SEEDS = list(_headers())
FIELD_SEEDS = [
    number.to_bytes(2, "big")
    + "\x1f".join(["g", "Orders", "0", "-1", "true", "9223372036854775808", "٣", "x"] * 3).encode()
    for number in range(0, len(HEADERS), 7)
]
PIECES = [kind.value for kind in Compression]
BOMB = bytes(200_000)
COMPRESSED = [
    bytes([1 + number]) + compress(content, kind, 3)[0]
    for number, kind in enumerate(Compression)
    for content in (b"hello " * 50, BOMB)
] + [
    b"\x02" + lz4.frame.compress(BOMB, store_size=True),
    b"\x03" + zstandard.ZstdCompressor(write_content_size=False).compress(BOMB),
]
TEXTS = [
    b"0 1700000000000 60000 0 0 broker-a 0 5",
    b"0 0 5;1 1 7",
    b"0 0 1,2,3",
    b"0 qo0%5 2",
    b"7F00000100002A9F0000000000000010",
    RecallHandle("Orders", "broker-a", 1_700_000_000_000, "u").encode().encode(),
]
_HEAD = struct.pack(">iiiiiqqiq", 101, 0xDAA320A7 - (1 << 32), 0, 0, 0, 5, 0, 0, 0) + bytes(8) + bytes(8) + bytes(8)
PULLED = [(_HEAD + struct.pack(">iqi", 0, 0, 0) + b"\x01T\x00\x00")[:101]]
WIRE_TARGETS = [
    Target("frames", frames, list(_frames())),
    Target("json_header", json_header, [seed[1:] for seed in HEADER_SEEDS]),
    Target("binary_header", binary_header, [HEADER_SEEDS[1][1:]]),
    Target("whole_header", whole_header, HEADER_SEEDS),
    Target("request_fields", request_fields, FIELD_SEEDS),
    Target("json_bodies", json_bodies, [body for body in BODIES if len(body) < 4000], 400),
    Target("heartbeat", heartbeat, [body for body in BODIES if b"clientID" in body], 400),
    Target(
        "registration",
        registration,
        [
            b"\x00" + REGISTRATION.encode(False),
            b"\x00" + REGISTRATION.encode(True),
            b"\x00" + zlib.decompress(REGISTRATION.encode(True)),
        ],
        400,
    ),
    Target("topic_line", topic_line, [TopicConfig("B", attributes={"+a": "b"}).encode().encode()], 400),
    Target(
        "properties", properties, [b"TAGS\x01a\x02KEYS\x01k\x02UNIQ_KEY\x01u\x02", b"a\x01TAGS\x01b\x02TAGS\x01\x02"]
    ),
    Target("compressed_body", compressed_body, COMPRESSED),
    Target("handles", handles, TEXTS),
    Target("pulled_records", pulled_records, PULLED),
]
