"""A route may put work off to the end of the turn: nothing overtakes it, and no end of a connection loses it."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress

import pytest

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.frames import encode_request, encode_response
from sprocket.remoting.framing import Frame, FrameDecoder
from sprocket.remoting.routes import Action, FramesChannel, NoHeader, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ServerTls

_PUT_OFF, _AT_ONCE = RequestCode.HEART_BEAT, RequestCode.QUERY_MESSAGE


class PutOff:
    """Answers its requests when `settle` is called, which it never calls itself."""

    def __init__(self) -> None:
        self.waiting: list[tuple[FramesChannel, int]] = []
        self.served: list[str] = []

    def serve(self, frames: list[Frame], index: int, channel: FramesChannel, /) -> int:
        count = 0
        for _, header, _ in frames[index:]:
            if b'"code":%d,' % _PUT_OFF not in header:
                break
            count += 1
        self.waiting += [(channel, count)]
        return count

    def _settle(self) -> None:
        waiting, self.waiting = self.waiting, []
        for channel, count in waiting:
            self.served += ["put off"] * count
            frames = b"".join(bytes(piece) for _ in range(count) for piece in encode_response(Response(0), 1, 0))
            channel.answer_frames(_PUT_OFF, count, frames, 0, channel.read_at, was_later=False)

    @property
    def settle(self) -> Callable[[], None]:
        return self._settle

    def at_once(self, request: Request[NoHeader]) -> Response:
        self.served.append("at once")
        return Response(0)

    def batch(self, run: list[Request[NoHeader]]) -> None:
        raise AssertionError("all are usual")


def server_of(handler: PutOff, tls: ServerTls | None) -> RemotingServer:
    routes = [
        Route(_PUT_OFF, NoHeader, None, Resource.NONE, Action.NONE, batch=handler.batch, frames=handler),
        Route(_AT_ONCE, NoHeader, handler.at_once, Resource.NONE, Action.NONE),
    ]
    return RemotingServer(RouteTable(routes), ConnectionSettings("127.0.0.1"), tls=tls)


def requests(*codes: RequestCode) -> bytes:
    return b"".join(encode_request(code, number, None, 0) for number, code in enumerate(codes))


async def answers_to(server: RemotingServer, content: bytes, *, is_tls: bool) -> int:
    """Send `content` and the end of the stream in one write; return how many responses arrive."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    decoder = FrameDecoder()
    if not is_tls:
        writer.write(content)
        writer.write_eof()
        return len(decoder.feed(await reader.read()))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(1 << 16))
    tls.write(content)
    with suppress(ssl.SSLWantReadError):  # the alert is made; the server's has yet to come
        tls.unwrap()
    writer.write(outgoing.read())
    plain = b""
    while data := await reader.read(1 << 16):
        incoming.write(data)
    with suppress(ssl.SSLZeroReturnError, ssl.SSLWantReadError):
        while piece := tls.read(1 << 16):
            plain += piece
    writer.close()
    return len(decoder.feed(plain))


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
async def test_the_end_of_the_stream_in_the_same_read_loses_no_response(is_tls: bool) -> None:
    handler = PutOff()
    tls = ServerTls(TlsSettings(config_file=None)) if is_tls else None
    server = server_of(handler, tls)
    await server.start()
    try:
        assert await answers_to(server, requests(_PUT_OFF, _PUT_OFF, _PUT_OFF), is_tls=is_tls) == 3
        assert handler.served == ["put off"] * 3
    finally:
        await server.stop()


async def test_another_request_comes_after_what_was_put_off() -> None:
    handler = PutOff()
    server = server_of(handler, None)
    await server.start()
    try:
        content = requests(_PUT_OFF, _PUT_OFF, _AT_ONCE, _PUT_OFF)
        assert await answers_to(server, content, is_tls=False) == 4
        assert handler.served == ["put off", "put off", "at once", "put off"]
    finally:
        await server.stop()


async def test_a_frame_that_ends_the_connection_comes_after_what_was_put_off() -> None:
    handler = PutOff()
    server = server_of(handler, None)
    await server.start()
    try:
        assert await answers_to(server, requests(_PUT_OFF, _PUT_OFF) + b"\xff" * 8, is_tls=False) == 2
    finally:
        await server.stop()
