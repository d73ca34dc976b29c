"""Frames and headers by the compiled engine beside the Python code: any bytes give the same requests and errors."""

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Final
from unittest.mock import patch

import msgspec

from sprocket.common.errors import ProtocolError
from sprocket.remoting import frames, framing
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.engine import header_decoder, response_encoder
from sprocket.remoting.frames import ResponseTemplate, encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, Frame, FrameDecoder
from sprocket.remoting.headers.base import Header, to_ext_fields
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from sprocket.remoting.routes import Action, Resource, Route, RouteTable, Traffic, UnroutableRequest
from tests.fuzz.target import Target, pieces_of

try:
    from sprocket.remoting import frames_native as compiled
    from sprocket.remoting import read_frames_native as read_frames
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

HEADERS: Final[dict[RequestCode, type[Header]]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.PULL_MESSAGE: PullMessageRequestHeader,
    RequestCode.POP_MESSAGE: PopMessageRequestHeader,
}
_BYTES_LIMIT: Final = 100_000


@cache
def table(is_native: bool) -> RouteTable:
    """Routes of the hot codes, decoded by one twin."""
    made = RouteTable(
        Route(code, header, lambda request: None, Resource.NONE, Action.NONE, Traffic.ADMIN)
        for code, header in HEADERS.items()
    )
    for code, entry in made.entries.items():
        entry.native = header_decoder(code, entry.header, compiled) if is_native else None
    return made


@contextmanager
def cutting(is_native: bool) -> Iterator[None]:
    """Let `FrameDecoder` cut with one twin."""
    with patch.object(framing, "_cut_compiled", read_frames.cut if is_native else None):
        yield


def cut(pieces: list[bytes], is_native: bool) -> list[Any]:
    """Everything that a decoder shows after each piece."""
    decoder = FrameDecoder(_BYTES_LIMIT, 2_000)
    with cutting(is_native):
        return [
            (
                list(decoder.feed(piece)), decoder.pending_bytes, decoder.has_large_header,
                decoder.error and (decoder.error.kind, decoder.error.detail),
            )
            for piece in pieces
        ]  # fmt: skip


def outcome(frame: Frame, is_native: bool) -> object:
    """What a table makes of one frame: a request, a response, or the words of an error."""
    try:
        decoded = table(is_native).decode(frame)
    except UnroutableRequest as error:
        return "unroutable", error.code, str(error)
    except ProtocolError as error:
        return "protocol", error.kind, error.detail
    return decoded if not isinstance(decoded, tuple) else (int(decoded[0].code), repr(decoded[1]))


def compare_headers(frame: Frame) -> bool:
    """Compare the twins' requests of one frame; return whether the compiled one took it."""
    assert outcome(frame, True) == outcome(frame, False)
    taken = [entry for entry in table(True).entries.values() if entry.native.request(*frame, None) is not None]
    if taken:
        pure = table(False).decode(frame)
        found = taken[0].native.request(*frame, None)
        assert isinstance(pure, tuple) and pure[0].code == taken[0].code
        # Types, too: 1 is not True.
        assert repr(found) == repr(pure[1]) and msgspec.structs.asdict(found) == msgspec.structs.asdict(pure[1])
    return bool(taken)


def compare_starts(found: framing.Frames) -> None:
    """Compare what names the routes of frames: of those that compiled code cut, and of a list of them."""
    frames = list(found)
    assert len(found) == len(frames)
    for index in range(len(frames)):
        serialization, header, _ = frames[index]
        start = serialization, header[: 15 if serialization == JSON else 2]
        assert read_frames.start_of(found, index) == read_frames.start_of(frames, index) == start
        assert framing.start_of(frames, index) == start


def wire_twins(data: bytes) -> None:
    """A stream in pieces, and each of its frames; then the bytes themselves as headers of both kinds."""
    if compiled is None:
        return
    for pieces in ([data], pieces_of(data)):
        pure = cut(pieces, False)
        assert cut(pieces, True) == pure
    found = FrameDecoder(_BYTES_LIMIT).feed(data)
    compare_starts(found)
    for frame in found:
        compare_headers(frame)
    for serialization in (JSON, ROCKETMQ):
        compare_headers((serialization, data, b""))


TEXTS: Final = (
    "", "a", "Orders", "null", "NULL", "true", "True", "false", "0", "1", "-1", "-0", "007", "12x", " 5", "5 ", "+5",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "999999999999999999", "1e3", "1.0",
    "TAGS\x01t\x02KEYS\x01k\x02", 'q"uo\\te/', "\t\n\r\b\f", "\x7f", "Zürich", "日本", "\U0001f600", "\x00", "x" * 70,
    "x" * 5000, "\x01" * 900,
)  # fmt: skip


def header_of(chance: random.Random, header: type[Header], fill: float) -> dict[str, str]:
    """Fields of a header: numbers for numbers at least, mostly."""
    fields = {}
    for field in msgspec.structs.fields(header):
        if field.required or chance.random() < fill:
            is_text = field.type is str or field.type == str | None
            usual = chance.choice(("Orders", "group-1", "UNIQ_KEY\x01A\x02")) if is_text else str(chance.randrange(99))
            if field.type in (bool, bool | None):
                usual = chance.choice(("true", "false"))
            fields[field.encode_name] = usual if chance.random() < 0.93 else chance.choice(TEXTS)
    return fields


def request_of(chance: random.Random) -> bytes:
    """A frame as some client would write it, or nearly."""
    code = chance.choice(list(HEADERS))
    fields = header_of(chance, HEADERS[code], chance.choice((0.3, 1.0)))
    if chance.random() < 0.1:
        fields[chance.choice(("unknown", "a", "topic", "#body"))] = chance.choice(TEXTS)
    body = chance.randbytes(chance.choice((0, 1, 200)))
    serialization = chance.choice((JSON, ROCKETMQ))
    frame = encode_request(
        int(code), chance.choice((0, 1, -1, 2**31 - 1, 77)), fields, len(body), oneway=chance.random() < 0.2,
        serialization=serialization,
    )  # fmt: skip
    if serialization == JSON and chance.random() < 0.3:
        frame = rewritten(chance, frame)
    return frame + body


def frame_of(chance: random.Random, code: RequestCode, header: Header, plain: float, *, oneway: bool) -> bytes:
    """A frame with this header and no body, as clients write it with the probability `plain`."""
    fields = to_ext_fields(header)
    if chance.random() > plain and chance.random() < 0.2:
        fields[chance.choice((*fields, "unknown"))] = chance.choice(TEXTS)
    serialization, opaque = chance.choice((JSON, ROCKETMQ)), chance.choice((0, 1, -1, 2**31 - 1, 77))
    frame = encode_request(code, opaque, fields, 0, oneway=oneway, serialization=serialization)
    if serialization == JSON and chance.random() > plain:
        frame = rewritten(chance, frame)
    return frame


def rewritten(chance: random.Random, frame: bytes) -> bytes:
    """The frame with another JSON text for the same or nearly the same header."""
    document = msgspec.json.decode(frame[8:])
    items = list(document.items())
    chance.shuffle(items)
    extra = chance.choice(({}, {"remark": None}, {"serializeTypeCurrentRPC": "JSON"}, {"#answered": 1}, {"x": [1]}))
    text = msgspec.json.encode({**dict(items), **extra})
    if chance.random() < 0.2:
        text = msgspec.json.format(text, indent=chance.choice((1, 2)))
    (length, word) = struct.unpack(">iI", frame[:8])
    return struct.pack(">iI", length - (word & 0xFFFFFF) + len(text), len(text)) + text


# The last has a form that the compiled encoder leaves to the Python code.
FORMATS: Final = ("%b", "%d", "AB%016X", "%016X", "10%%b%b")


def template_of(chance: random.Random) -> tuple[ResponseTemplate, tuple[bytes | int, ...]]:
    """A template of any shape, and values for it."""
    formats = {f"name{index}": chance.choice(FORMATS) for index in range(chance.randrange(6))}
    values = tuple(value_of(chance, form) for form in formats.values())
    constants = {"MSG_REGION": "Default%Region", "TRACE_ON": "true"} if chance.random() < 0.5 else None
    remark = chance.choice((None, "", 'with 100% and "quotes"', "FOUND"))
    return ResponseTemplate(chance.choice((0, 1, 19, -7, 32767)), formats, constants, remark), values


def value_of(chance: random.Random, form: str) -> bytes | int:
    """A number of any size or a text of any length."""
    if form.endswith("%b"):
        return b"k" * chance.choice((0, 1, 36, 255, 300, 5000))
    number = chance.choice((0, 1, 9, 10, 2**31, 2**63 - 1, chance.randrange(2**40)))
    return -number if form == "%d" and chance.random() < 0.3 else number


@contextmanager
def encoding(is_native: bool) -> Iterator[None]:
    """Let new templates encode with one twin."""
    before = frames.response_encoder
    frames.response_encoder = partial(response_encoder, engine=compiled if is_native else None)
    try:
        yield
    finally:
        frames.response_encoder = before


def response_twins(data: bytes) -> None:
    """Responses of a template that `data` chooses, for several opaques and sizes of bodies."""
    if compiled is None:
        return
    with encoding(False):
        pure, values = template_of(random.Random(data))
    with encoding(True):
        native, _ = template_of(random.Random(data))
    assert pure.encoder is None
    for serialization in (JSON, ROCKETMQ):
        for opaque in (0, -1, 2**31 - 1, -(2**31), len(data)):
            for body_bytes in (0, 1, 4 << 20):
                expected = pure.frame(serialization, opaque, values, body_bytes)
                assert native.frame(serialization, opaque, values, body_bytes) == expected


_SEEDS: Final = [b"".join(request_of(random.Random(seed)) for seed in range(at, at + 3)) for at in range(0, 12, 3)]

ENGINE_WIRE_TARGETS: Final = (
    Target("wire_twins", wire_twins, _SEEDS, 4096),
    Target("response_twins", response_twins, [b"", b"1", b"22"], 4096),
)
