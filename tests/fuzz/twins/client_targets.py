"""What our client does for each request, in its fast and in its general form: the same result for any input."""

import random
from itertools import count
from typing import Any, Final

import msgspec

from sprocket.client.errors import IllegalMessage
from sprocket.client.message import Message
from sprocket.client.send.send_header import SendHeader
from sprocket.client.send.send_request import PLAIN, SendRequest, SendSettings, compiled_requests, single_request
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codec.codec_json import decode_response, encode_header
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.frames import NotEncodable
from sprocket.remoting.framing import JSON
from sprocket.remoting.routes import open_frame
from tests.fuzz.target import Target

try:
    from sprocket.client.send import sends_native as compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

_SETTINGS: Final = SendSettings(max_message_size=6000)
_QUEUE: Final = MessageQueue("Orders", "broker-a", 3)
_FIELDS: Final = SendRequest("Orders", b"", "", "").ext_fields("G", _SETTINGS, _QUEUE, 0)
_NUMBERS: Final = (0, 1, -1, 7, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**63)
# The general decoder leaves the language out, which nothing reads.
_ANSWER: Final = ("code", "opaque", "version", "remark", "ext_fields", "body")
_ATTRIBUTES: Final = tuple(name for name in Message.__slots__ if name != "topic")


def _new_id() -> Any:
    numbers = count()
    return lambda: f"{next(numbers):032X}"


def message_of(chance: random.Random, data: bytes) -> Message:
    """A message whose attributes `data` chooses, most of them as they usually are."""
    texts = [data.decode("latin-1"), data.decode(errors="replace"), data[:40].hex(), "", "TagA"]
    message = Message("Orders", b"body")
    message.body = chance.choice((data, data, b"x", bytearray(data), data * chance.randrange(1, 300)))
    message.tags, message.keys = chance.choice(texts), chance.choice(texts)
    if chance.random() < 0.2:
        values = (*texts, *_NUMBERS, None, True, {"k": texts[1]}, [texts[1]])
        setattr(message, chance.choice(_ATTRIBUTES), chance.choice(values))
    return message


def _parts(request: SendRequest) -> list[Any]:
    return [getattr(request, name) for name in SendRequest.__slots__]


def request_twins(data: bytes) -> None:
    """Messages that `data` chooses: the compiled maker of requests makes the request of Python, or leaves it."""
    if compiled is None:
        return
    usual = compiled_requests(_SETTINGS, compiled)
    assert usual is not None
    chance = random.Random(data)
    for _ in range(8):
        message = message_of(chance, data)
        made = usual(message, _new_id())
        if made is None:
            continue
        try:
            expected = single_request(message, _SETTINGS, _new_id())
        except IllegalMessage as refused:
            raise AssertionError(f"Python refuses what the compiled code takes: {refused}") from None
        assert _parts(made) == _parts(expected)


def _prefix(header: SendHeader, arguments: tuple[Any, ...]) -> bytes | None:
    try:
        return header.prefix(*arguments)
    except NotEncodable:
        return None


def header_twins(data: bytes) -> None:
    """Headers of sends whose properties are `data`, with numbers of any size: both encoders make the same bytes."""
    if compiled is None:
        return
    chance = random.Random(data)
    pure, native = (SendHeader(PLAIN, _FIELDS, engine) for engine in (None, compiled))
    texts = (data.decode("latin-1"), data.decode(errors="replace"), data.decode("utf-16-le", "replace"))
    for text in texts:
        small = tuple(chance.choice(_NUMBERS[:6]) for _ in range(4))
        arguments = (*small, text, chance.choice((0, 1, 4 << 20)))
        expected = _prefix(pure, arguments)
        assert expected is not None
        assert _prefix(native, arguments) == expected
        # A number beyond its width is refused, or encoded as Python does.
        wide = (*(chance.choice(_NUMBERS) for _ in range(4)), text, 1)
        assert _prefix(native, wide) in (None, _prefix(pure, wide))


def answer_twins(data: bytes) -> None:
    """Headers of responses: what the fast decoder takes, the general one reads as the same response."""
    chance = random.Random(data)
    fields = {data[:9].decode("latin-1"): data.decode(errors="replace"), "msgId": "0A"}
    made = encode_header(chance.choice((0, 1, 19)), chance.choice(_NUMBERS[:6]), chance.choice((0, 1, 3)), None, fields)
    document = msgspec.json.decode(made)
    member = chance.choice(("code", "flag", "opaque", "version", "remark", "extFields", "language", "x"))
    values = (*_NUMBERS[:9], "1", "text", None, True, 1.0, {}, {"a": 1}, {"a": None}, [], data.decode("latin-1"))
    document[member] = chance.choice(values)
    for header in (data, made, msgspec.json.encode(document), made[: len(data)] + data, made + data):
        response = decode_response(header)
        if response is None:
            continue
        try:
            expected = open_frame((JSON, header, b""))
        except ProtocolError as error:
            raise AssertionError(f"the general decoder refuses {header!r}: {error}") from None
        assert isinstance(expected, ReceivedResponse)
        for name in _ANSWER:
            assert getattr(response, name) == getattr(expected, name), (name, header)


_SEEDS: Final = [b"TagA", "Größe \u2028 日本 \U0001f680".encode(), b'a"\\\x01\x02\x1f', bytes(range(256))]

ENGINE_CLIENT_TARGETS: Final = (
    Target("request_twins", request_twins, _SEEDS, 1 << 16),
    Target("header_twins", header_twins, _SEEDS, 1 << 16),
    Target("answer_twins", answer_twins, [*_SEEDS, encode_header(0, 1, 1, None, {"a": "b"})], 4096),
)
