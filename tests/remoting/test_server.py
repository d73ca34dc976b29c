"""The server on real sockets: batches, garbage, slow readers, requests in both directions."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sprocket.common import limits
from sprocket.common.errors import RequestError
from sprocket.remoting.client import ConnectFailed, RemotingClient, RemotingTimeout, split_address
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.frames import NotEncodable, encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, frame_prefix
from sprocket.remoting.headers.client import UnregisterClientRequestHeader
from sprocket.remoting.pending import ConnectionLost
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings


class Echo:
    """Handlers that show what the server does."""

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.oneways: list[bytes] = []
        self.held: list[Request[Any]] = []

    def table(self) -> RouteTable:
        def route(code: RequestCode, handle: Any) -> Route:
            return Route(code, NoHeader, handle, Resource.NONE, Action.NONE)

        return RouteTable(
            [
                Route(RequestCode.SEND_MESSAGE, NoHeader, None, Resource.NONE, Action.NONE, batch=self.batch),
                route(RequestCode.HEART_BEAT, self.echo),
                route(RequestCode.PULL_MESSAGE, self.hold),
                route(RequestCode.QUERY_MESSAGE, self.later),
                route(RequestCode.GET_BROKER_CONFIG, self.refuse),
                route(RequestCode.GET_MAX_OFFSET, self.crash),
                route(RequestCode.GET_MIN_OFFSET, self.big),
                route(RequestCode.CHECK_CLIENT_CONFIG, self.ask_back),
            ]
        )

    def batch(self, requests: list[Request[Any]]) -> None:
        self.runs.append(len(requests))
        for request in requests:
            request.channel.reply(request, Response(body=request.body))

    def echo(self, request: Request[Any]) -> Response:
        if request.is_oneway:
            self.oneways.append(request.body)
        return Response(body=request.body)

    def hold(self, request: Request[Any]) -> None:
        self.held.append(request)

    async def later(self, request: Request[Any]) -> Response:
        await asyncio.sleep(0)
        return Response(remark="later")

    def refuse(self, request: Request[Any]) -> Response:
        raise RequestError(ResponseCode.NO_PERMISSION, "not for you")

    def crash(self, request: Request[Any]) -> Response:
        raise ZeroDivisionError("a bug")

    def big(self, request: Request[Any]) -> Response:
        return Response(body=bytes(1024 * 1024))

    async def ask_back(self, request: Request[Any]) -> Response:
        answer = await request.channel.request(RequestCode.HEART_BEAT, body=b"you?", timeout_s=60)
        return Response(body=b"peer said " + answer.body)


@asynccontextmanager
async def serving(echo: Echo, **options: Any) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(echo.table(), ConnectionSettings("127.0.0.1"), **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def client_of(server: RemotingServer, **options: Any) -> AsyncIterator[tuple[RemotingClient, str]]:
    client = RemotingClient(**options)
    try:
        yield client, f"127.0.0.1:{server.port}"
    finally:
        await client.close()


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
async def test_call_and_answer(serialization: int) -> None:
    async with serving(Echo()) as server, client_of(server, serialization=serialization) as (client, address):
        response = await client.invoke(address, RequestCode.HEART_BEAT, body=b"hello")
        assert (response.code, response.body) == (0, b"hello")
        assert (await client.invoke(address, RequestCode.QUERY_MESSAGE)).remark == "later"


@pytest.mark.parametrize("later", [False, True])
async def test_response_that_cannot_be_encoded_harms_no_other(later: bool) -> None:
    """A lone surrogate has no form in UTF-8: that request is answered with an error, its neighbours as they should."""

    class Odd(Echo):
        def refuse(self, request: Request[Any]) -> Any:
            odd = Response(remark="\ud800")

            async def soon() -> Response:
                return odd

            return soon() if later else odd

    async with serving(Odd()) as server, client_of(server) as (client, address):
        before, odd, after = await asyncio.gather(
            client.invoke(address, RequestCode.HEART_BEAT, body=b"before", timeout_s=30.0),
            client.invoke(address, RequestCode.GET_BROKER_CONFIG, timeout_s=30.0),
            client.invoke(address, RequestCode.HEART_BEAT, body=b"after", timeout_s=30.0),
        )
        assert (before.body, after.body) == (b"before", b"after")
        assert odd.code == ResponseCode.SYSTEM_ERROR
        assert "cannot be encoded" in (odd.remark or "")


async def test_request_that_cannot_be_encoded_harms_no_other() -> None:
    async with serving(Echo()) as server, client_of(server) as (client, address):
        good = [client.invoke(address, RequestCode.HEART_BEAT, body=b"%d" % n, timeout_s=30.0) for n in range(3)]
        bad = [client.invoke(address, RequestCode.HEART_BEAT, body=odd) for odd in ("text", [b"x"], None)]  # type: ignore[arg-type]
        outcomes = await asyncio.gather(*good, *bad, return_exceptions=True)
        assert [outcome.body for outcome in outcomes[:3]] == [b"0", b"1", b"2"]  # type: ignore[union-attr]
        assert [type(outcome) for outcome in outcomes[3:]] == [NotEncodable] * 3
        wide = await client.invoke(address, RequestCode.HEART_BEAT, body=memoryview(b"12345678").cast("I"))
        assert wide.body == b"12345678"


async def test_one_read_is_one_batch_and_order_is_kept() -> None:
    echo = Echo()
    async with serving(echo) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        sends = [encode_request(10, opaque) for opaque in range(1, 65)]
        other = encode_request(34, 100)
        writer.write(b"".join([*sends[:40], other, *sends[40:]]))
        opaques = [await read_opaque(reader) for _ in range(65)]
        assert opaques == [*range(1, 41), 100, *range(41, 65)]
        assert echo.runs == [40, 24]
        writer.close()


async def read_opaque(reader: asyncio.StreamReader) -> int:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(length)
    header = frame[4 : 4 + (int.from_bytes(frame[:4], "big") & 0xFFFFFF)]
    return int(header.split(b'"opaque":')[1].split(b",")[0])


async def test_errors_of_handlers_are_answers() -> None:
    async with serving(Echo()) as server, client_of(server) as (client, address):
        refused = await client.invoke(address, RequestCode.GET_BROKER_CONFIG)
        assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "not for you")
        crashed = await client.invoke(address, RequestCode.GET_MAX_OFFSET)
        assert (crashed.code, crashed.remark) == (ResponseCode.SYSTEM_ERROR, "ZeroDivisionError: a bug")
        unknown = await client.invoke(address, RequestCode.POP_MESSAGE)
        assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "POP_MESSAGE" in (unknown.remark or "")


async def test_oneway_gets_no_answer() -> None:
    echo = Echo()
    async with serving(echo) as server, client_of(server) as (client, address):
        await client.notify(address, RequestCode.HEART_BEAT, body=b"quiet")
        assert (await client.invoke(address, RequestCode.HEART_BEAT, body=b"x")).body == b"x"
        assert echo.oneways == [b"quiet"]


async def test_a_server_can_ask_its_client() -> None:
    mine = [Route(RequestCode.HEART_BEAT, NoHeader, lambda _: Response(body=b"me"), Resource.NONE, Action.NONE)]
    async with serving(Echo()) as server, client_of(server, routes=mine) as (client, address):
        assert (await client.invoke(address, RequestCode.CHECK_CLIENT_CONFIG)).body == b"peer said me"


async def test_timeout_and_lost_connection() -> None:
    echo = Echo()
    async with serving(echo) as server, client_of(server) as (client, address):
        with pytest.raises(RemotingTimeout):
            await client.invoke(address, RequestCode.PULL_MESSAGE, timeout_s=0.05)
        waiting = asyncio.ensure_future(client.invoke(address, RequestCode.PULL_MESSAGE, timeout_s=60))
        while len(echo.held) < 2:
            await asyncio.sleep(0.01)
        echo.held[0].channel.close()
        with pytest.raises(ConnectionLost):
            await waiting
        # The next call opens a new connection.
        assert (await client.invoke(address, RequestCode.HEART_BEAT, body=b"again")).body == b"again"


async def test_nobody_there() -> None:
    client = RemotingClient()
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1"):
        await client.invoke("127.0.0.1:1", RequestCode.HEART_BEAT)
    with pytest.raises(ConnectFailed, match="is not host:port"):
        await client.invoke("nonsense", RequestCode.HEART_BEAT)
    await client.close()


GARBAGE = [
    b"GET / HTTP/1.1\r\n\r\n",
    struct.pack(">i", 0),
    struct.pack(">i", -1),
    struct.pack(">i", 2**31 - 1),
    frame_prefix(JSON, 100, 0)[:4] + struct.pack(">I", 0xFFFFFF),
    frame_prefix(7, 2, 0) + b"{}",
    frame_prefix(JSON, 4, 0) + b'{"co',
    frame_prefix(ROCKETMQ, 3, 0) + b"abc",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_closes_its_own_connection_only(garbage: bytes) -> None:
    async with serving(Echo()) as server, client_of(server) as (client, address):
        assert (await client.invoke(address, RequestCode.HEART_BEAT, body=b"1")).body == b"1"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(garbage)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        assert sum(server.counters.protocol_errors.values()) == 1
        assert (await client.invoke(address, RequestCode.HEART_BEAT, body=b"2")).body == b"2"


async def test_what_came_before_the_garbage_is_answered() -> None:
    async with serving(Echo()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(encode_request(34, 5) + frame_prefix(JSON, 1, 0) + b"{")
        assert await read_opaque(reader) == 5
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


async def test_a_peer_that_does_not_read_is_paused_then_closed() -> None:
    async with serving(Echo()) as server, client_of(server) as (client, address):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.transport.pause_reading()
        writer.write(b"".join(encode_request(31, opaque) for opaque in range(2000)))
        while not any(channel.stalled_at for channel in server.channels.values()):
            await asyncio.sleep(0.01)
        (stalled,) = (channel for channel in server.channels.values() if channel.stalled_at)
        transport = stalled._transport
        assert transport is not None
        # Of 2,000 MiB that were asked for, only a bounded part is held: what was not yet too much, and one flush more.
        assert transport.get_write_buffer_size() < 2 * limits.WRITE_PAUSE_BYTES + 2 * 1024 * 1024
        assert (await client.invoke(address, RequestCode.HEART_BEAT, body=b"ok")).body == b"ok"
        server.sweep(asyncio.get_running_loop().time() + limits.WRITE_STALL_S + 1)
        while stalled.is_closed is False:
            await asyncio.sleep(0.01)
        writer.transport.abort()


async def test_a_slow_reader_gets_everything_in_the_end() -> None:
    async with serving(Echo()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(b"".join(encode_request(31, opaque) for opaque in range(30)))
        assert [await read_opaque(reader) for _ in range(30)] == list(range(30))
        writer.close()


async def test_idle_and_half_received_connections_are_swept() -> None:
    async with serving(Echo()) as server:
        idle = await asyncio.open_connection("127.0.0.1", server.port)
        half = await asyncio.open_connection("127.0.0.1", server.port)
        half[1].write(encode_request(34, 1)[:-1])
        while not any(channel.partial_at for channel in server.channels.values()):
            await asyncio.sleep(0.01)
        now = asyncio.get_running_loop().time()
        server.sweep(now + limits.FRAME_DEADLINE_S + 1)
        assert await asyncio.wait_for(half[0].read(), 60) == b""
        assert server.counters.protocol_errors == {"frame_deadline": 1}
        server.sweep(now + 121)
        assert await asyncio.wait_for(idle[0].read(), 60) == b""
        for _, writer in (idle, half):
            writer.close()


async def test_closed_channels_are_reported_once() -> None:
    closed: list[int] = []
    async with serving(Echo()) as server:
        server.on_close.append(lambda channel: closed.append(channel.id))
        async with client_of(server) as (client, address):
            await client.invoke(address, RequestCode.HEART_BEAT)
        while not closed:
            await asyncio.sleep(0.01)
    assert len(closed) == 1
    assert server.channels == {}


async def test_header_of_a_response() -> None:
    async with serving(Echo()) as server, client_of(server) as (client, address):
        header = UnregisterClientRequestHeader(client_id="c")
        response = await client.invoke(address, RequestCode.HEART_BEAT, header)
        assert response.ext_fields == {}


def test_addresses() -> None:
    assert split_address("a:1") == ("a", 1)
    assert split_address("[::1]:65535") == ("::1", 65535)
    for bad in ("", "a", "a:", ":1", "a:0", "a:65536", "a:x", "grpc://a:1"):
        with pytest.raises(ValueError, match="host:port"):
            split_address(bad)


async def test_a_client_forgets_connections_that_have_ended() -> None:
    async with serving(Echo()) as server, client_of(server) as (client, address):
        for _ in range(3):
            channel = await client.channel(address)
            assert client.open_channel(address) is channel
            channel.close()
            async with asyncio.timeout(60):
                while client._channels:
                    await asyncio.sleep(0)
            assert client.open_channel(address) is None
        assert (await client.invoke(address, RequestCode.HEART_BEAT, body=b"again")).body == b"again"
        assert list(client._channels) == [address]


async def test_the_end_of_an_old_connection_keeps_the_new_one() -> None:
    async with serving(Echo()) as server, client_of(server) as (client, address):
        old = await client.channel(address)
        new = client._channels[address] = await RemotingClient().channel(address)
        client._closed_channel(address, old)
        assert await client.channel(address) is new
        new.close()
