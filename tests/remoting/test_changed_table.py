"""A server whose routes change while connections are open: nothing is lost, and nothing reaches the old routes."""

import asyncio
from typing import Any

import pytest

from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import Frame
from sprocket.remoting.serving.listening import KeptPort
from tests.remoting.test_server import Echo, client_of, read_opaque, serving

_BIG = int(RequestCode.GET_MIN_OFFSET)


class Later(Echo):
    """The routes after the change."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def echo(self, request: Request[Any]) -> Response:
        self.count += 1
        return Response(body=b"later " + request.body)

    def big(self, request: Request[Any]) -> Response:
        self.count += 1
        return super().big(request)


@pytest.mark.parametrize("is_guarded", [False, True])
async def test_requests_wait_and_are_served_by_the_new_routes(is_guarded: bool) -> None:
    old, new = Echo(), Later()
    seen: list[int] = []

    def guard(frame: Frame, channel: Any) -> Any:
        seen.append(1)
        return new.table().decode(frame)

    async with serving(old) as server, client_of(server) as (client, address), client_of(server) as (other, _):
        assert (await client.invoke(address, RequestCode.HEART_BEAT, body=b"1")).body == b"1"
        server.hold()
        asked = [asyncio.create_task(client.invoke(address, RequestCode.HEART_BEAT, body=b"%d" % n)) for n in range(5)]
        # A connection that is opened meanwhile.
        asked.append(asyncio.create_task(other.invoke(address, RequestCode.HEART_BEAT, body=b"5")))
        await asyncio.sleep(0.05)
        assert not any(one.done() for one in asked)
        server.serve(new.table().behind(guard) if is_guarded else new.table())
        assert [(await one).body for one in asked] == [b"later %d" % n for n in range(6)]
        assert len(seen) == (6 if is_guarded else 0)
        assert (await client.invoke(address, RequestCode.HEART_BEAT, body=b"9")).body == b"later 9"


async def test_a_request_that_its_handler_has_not_answered_is_refused_once() -> None:
    started = asyncio.Event()

    class Slow(Echo):
        async def later(self, request: Request[Any]) -> Response:
            started.set()
            await asyncio.sleep(60)
            return Response()

    async with serving(Slow()) as server, client_of(server) as (client, address):
        asked = asyncio.create_task(client.invoke(address, RequestCode.QUERY_MESSAGE))
        await started.wait()
        server.hold()
        answer = await asked
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and "try again" in (answer.remark or "")
        server.serve(Echo().table())
        assert (await client.invoke(address, RequestCode.QUERY_MESSAGE)).remark == "later"


async def test_a_peer_that_does_not_read_gets_its_rest_from_the_new_routes() -> None:
    old, new = Echo(), Later()
    async with serving(old) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        count = 40
        writer.write(b"".join(encode_request(_BIG, opaque) for opaque in range(1, count + 1)))
        async with asyncio.timeout(30):
            while not any(channel.stalled_at for channel in server.channels.values()):
                await asyncio.sleep(0.01)
        server.hold()
        await asyncio.sleep(0.05)
        server.serve(new.table())
        assert [await read_opaque(reader) for _ in range(count)] == list(range(1, count + 1))
        assert 0 < new.count < count
        writer.close()


async def test_a_connection_that_ends_meanwhile_is_forgotten() -> None:
    async with serving(Echo()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(encode_request(34, 1))
        assert await read_opaque(reader) == 1
        server.hold()
        writer.write(encode_request(34, 2))
        await writer.drain()
        writer.transport.abort()
        await asyncio.sleep(0.05)
        server.serve(Echo().table())
        async with asyncio.timeout(30):
            while server.channels:
                await asyncio.sleep(0.01)


async def test_what_arrives_before_the_stop_is_dropped_and_earlier_requests_are_answered() -> None:
    """Connections end in order: with unread bytes the system would end them with a reset, and lose responses."""
    echo = Echo()
    async with serving(echo) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        hold, again = encode_request(RequestCode.PULL_MESSAGE, 1), encode_request(RequestCode.HEART_BEAT, 2)
        writer.write(hold)
        async with asyncio.timeout(30):
            while not echo.held:
                await asyncio.sleep(0.01)
        server.hold(drops=True)
        # One that was opened meanwhile, too.
        newcomer, other = await asyncio.open_connection("127.0.0.1", server.port)
        (channel,) = server.channels.values()
        before = channel.read_at
        writer.write(again * 100)
        other.write(again * 100)
        async with asyncio.timeout(30):
            while channel.read_at == before or len(server.channels) < 2:
                await asyncio.sleep(0.01)
        echo.held[0].channel.reply(echo.held[0], Response(body=bytes(1024 * 1024)))
        assert await read_opaque(reader) == 1
        await server.stop()
        assert await reader.read() == await newcomer.read() == b""
        writer.close()
        other.close()


async def test_a_kept_port_changes_hands() -> None:
    class Says(asyncio.Protocol):
        def __init__(self, text: bytes) -> None:
            self.text = text

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport) or hasattr(transport, "write")
            transport.write(self.text)  # type: ignore[attr-defined]
            transport.close()

    async def said() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        found = await reader.read()
        writer.close()
        return found

    port = KeptPort()
    number = await port.bind("127.0.0.1", 0)
    assert await port.bind("127.0.0.1", 0) == number
    with pytest.raises(OSError):
        await said()
    for text in (b"one", b"two"):
        await port.serve(lambda text=text: Says(text))  # type: ignore[misc]
        assert await said() == text
        port.leave()
        assert await said() == b""
    port.close()
    with pytest.raises(OSError):
        await said()
