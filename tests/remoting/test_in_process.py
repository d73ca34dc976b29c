"""A client and a server of one process, connected without a socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sprocket.common import limits
from sprocket.remoting.client import ConnectFailed, ConnectionLost, RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.framing import Frame
from sprocket.remoting.in_process import Connect, connect
from sprocket.remoting.routes import Action, NoHeader, Resource, Route
from sprocket.remoting.server import RemotingServer
from tests.remoting.test_server import Echo, serving

# Nothing listens there: who reaches it used no socket.
_ADDRESS = "127.0.0.1:1"


@asynccontextmanager
async def connected(server: RemotingServer) -> AsyncIterator[RemotingClient]:
    """A client that finds `server` in its process."""

    def in_process(address: str) -> Connect | None:
        return server.connect if address == _ADDRESS else None

    async def asked_back(request: Request[Any]) -> Response:
        return Response(body=b"client")

    routes = [Route(RequestCode.CHECK_TRANSACTION_STATE, NoHeader, asked_back, Resource.NONE, Action.NONE)]
    client = RemotingClient(routes, in_process=in_process)
    try:
        yield client
    finally:
        await client.close()


async def test_requests_of_one_turn_are_one_read_and_are_answered_in_order() -> None:
    echo = Echo()
    async with serving(echo) as server, connected(server) as client:
        channel = await client.channel(_ADDRESS)
        sends = [channel.request(RequestCode.SEND_MESSAGE, body=b"%d" % n, timeout_s=5) for n in range(40)]
        assert [(await one).body for one in sends] == [b"%d" % n for n in range(40)]
        # The first leaves alone, since nothing else is outstanding then.
        assert echo.runs in ([40], [1, 39])


async def test_other_addresses_are_reached_by_socket() -> None:
    async with serving(Echo()) as server, connected(server) as client:
        address = f"127.0.0.1:{server.port}"
        assert (await client.invoke(address, RequestCode.HEART_BEAT, body=b"1")).body == b"1"
        with pytest.raises(ConnectFailed):
            await client.invoke("127.0.0.1:2", RequestCode.HEART_BEAT)


async def test_the_server_asks_the_client() -> None:
    async with serving(Echo()) as server, connected(server) as client:
        await client.invoke(_ADDRESS, RequestCode.HEART_BEAT)
        (channel,) = server.channels.values()
        assert (await channel.request(RequestCode.CHECK_TRANSACTION_STATE, timeout_s=5)).body == b"client"


async def test_large_bodies_pass_both_ways() -> None:
    async with serving(Echo()) as server, connected(server) as client:
        bodies = [bytes([n]) * (limits.MAX_MESSAGE_BYTES + n) for n in range(3)]
        answers = [client.invoke(_ADDRESS, RequestCode.HEART_BEAT, body=body, timeout_s=20) for body in bodies]
        assert [answer.body for answer in await asyncio.gather(*answers)] == bodies


async def test_the_guard_sees_requests_by_socket_alone_also_after_a_change_of_the_routes() -> None:
    seen: list[int] = []
    echo = Echo()
    table = echo.table()

    def guard(frame: Frame, channel: Any) -> Any:
        seen.append(1)
        return table.decode(frame)

    async with serving(echo) as server, connected(server) as client:
        for _ in range(2):
            server.hold()
            asked = asyncio.create_task(client.invoke(_ADDRESS, RequestCode.HEART_BEAT, body=b"1"))
            await asyncio.sleep(0.02)
            assert not asked.done()
            server.serve(table.behind(guard))
            assert (await asked).body == b"1" and not seen
        await client.invoke(f"127.0.0.1:{server.port}", RequestCode.HEART_BEAT)
        assert seen == [1]


async def test_the_end_of_either_side_is_seen_by_the_other() -> None:
    async with serving(Echo()) as server:
        async with connected(server) as client:
            asked = asyncio.create_task(client.invoke(_ADDRESS, RequestCode.PULL_MESSAGE))
            await asyncio.sleep(0.02)
            (channel,) = server.channels.values()
            channel.close()
            with pytest.raises(ConnectionLost):
                await asked
            assert (await client.invoke(_ADDRESS, RequestCode.HEART_BEAT)).code == 0  # on a new connection
            channel = await client.channel(_ADDRESS)
            answer = channel.request(RequestCode.HEART_BEAT, body=b"last", timeout_s=5)
            await asyncio.sleep(0)
            channel.close()
        with pytest.raises(ConnectionLost):
            await answer
        await _turns()
        assert not server.channels


class Recorder(asyncio.Protocol):
    """What a transport calls, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        if data == b"fail":
            raise ValueError("of a test")
        self.data += data

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")


def _pair() -> tuple[Recorder, Recorder]:
    one, two = Recorder(), Recorder()
    connect(one, two)
    return one, two


async def _turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_a_writer_is_told_to_pause_while_the_other_end_does_not_read() -> None:
    one, two = _pair()
    one.transport.set_write_buffer_limits(high=10)
    two.transport.pause_reading()
    one.transport.write(b"0123456789")
    assert one.calls == [] and one.transport.get_write_buffer_size() == 10
    one.transport.write(memoryview(b"ab"))
    assert one.calls == ["pause"]
    await _turns()
    assert two.data == b""
    two.transport.resume_reading()
    await _turns()
    assert (one.calls, two.data) == (["pause", "resume"], b"0123456789ab")


async def test_a_close_lets_the_other_end_read_the_rest_and_an_abort_does_not() -> None:
    for end, expected in (("close", b"rest"), ("abort", b"")):
        one, two = _pair()
        one.transport.write(b"rest")
        getattr(one.transport, end)()
        one.transport.write(b"too late")
        await _turns()
        assert (two.data, one.calls, two.calls) == (expected, ["lost"], ["lost"])
        assert one.transport.is_closing() and two.transport.is_closing()


async def test_both_ends_may_close_at_once_and_twice() -> None:
    one, two = _pair()
    for end in (one, two, one):
        end.transport.close()
    await _turns()
    assert (one.calls, two.calls) == (["lost"], ["lost"])


async def test_a_protocol_that_fails_loses_its_connection_and_is_reported() -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    one, two = _pair()
    one.transport.write(b"fail")
    await _turns()
    assert (one.calls, two.calls) == (["lost"], ["lost"])
    assert [str(error) for error in told] == ["of a test"]
