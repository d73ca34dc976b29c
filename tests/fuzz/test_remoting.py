"""Any bytes: the decoders answer or raise ProtocolError, and never anything else."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import HeartbeatData
from sprocket.remoting.bodies.registration import RegisterBrokerBody
from sprocket.remoting.codec import codec_binary
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.framing import FrameDecoder, frame_prefix
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.routes import Action, Resource, Route, RouteTable, UnroutableRequest
from tests.tiers import examples


def accept(_: Request[object]) -> Response:
    return Response()


TABLE = RouteTable([Route(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, accept, Resource.TOPIC, Action.PUB)])
TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b'"',
    b'"code":310',
    b'{"code":310,"',
    b'extFields":',
    b'"a"',
    b"0",
    b"-1",
]
TOKENS += [b"1e400", b"null", b"true", b"\\u0000", b"\xc3\x28", b'"flag":1', b'"opaque":2147483648', b'{"b":"x"}']
JSON_LIKE = st.lists(st.sampled_from(TOKENS), max_size=30).map(b"".join)


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=400), st.integers(1, 50))
def test_stream(data: bytes, step: int) -> None:
    whole = run([data])
    pieces = run([data[at : at + step] for at in range(0, len(data), step)])
    assert whole == pieces


def run(pieces: list[bytes]) -> list[object]:
    decoder = FrameDecoder()
    seen: list[object] = [frame for piece in pieces for frame in decoder.feed(piece)]
    return [*seen, (decoder.error and decoder.error.kind) or decoder.pending_bytes]


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from([0, 1]), st.binary(max_size=200) | JSON_LIKE)
def test_header(serialization: int, header: bytes) -> None:
    (frame,) = FrameDecoder().feed(frame_prefix(serialization, len(header), 0) + header)
    with suppress(ProtocolError, UnroutableRequest):
        TABLE.decode(frame)


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=5), st.data())
def test_binary_header_with_flipped_bytes(fields: dict[str, str], data: st.DataObject) -> None:
    header = bytearray(codec_binary.encode_header(310, 1, 0, "r", fields))
    for _ in range(data.draw(st.integers(1, 4))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        codec_binary.decode_header(bytes(header))


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200) | JSON_LIKE)
def test_bodies(body: bytes) -> None:
    for decode in (
        lambda: loads(body, HeartbeatData),
        lambda: RegisterBrokerBody.decode(body, True, 479),
        lambda: RegisterBrokerBody.decode(body, False, 479),
    ):
        with suppress(ProtocolError):
            decode()
