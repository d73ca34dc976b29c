"""Connections that begin a request and never end it, and more connections than the dashboard has places for."""

import asyncio

import pytest

from dashboard import connections
from dashboard.connections import Connections
from sprocket.testing import Broker
from tests.dashboard.rig import running

HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Never-Ends: "


class Served(asyncio.Protocol):
    """What aiohttp is to the table: answers each line, and tells the table that a request arrived."""

    def __init__(self, table: Connections) -> None:
        self._table = table

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\n"):
            self._table.arrived(self._transport)
            self._transport.write(b"served\n")


async def serving(table: Connections) -> tuple[asyncio.Server, int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: table.protocol(lambda: Served(table)), "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return not await reader.read()
    except ConnectionError:
        return True


async def test_a_request_that_never_ends_is_closed_at_its_deadline_and_no_other() -> None:
    table = Connections()
    server, port = await serving(table)
    half, half_writer = await connect(port)
    silent, silent_writer = await connect(port)
    whole, whole_writer = await connect(port)
    half_writer.write(HALF)
    whole_writer.write(b"whole\n")
    assert await whole.readline() == b"served\n"
    while len(table) < 3:
        await asyncio.sleep(0.01)
    now = asyncio.get_running_loop().time()
    table.close_late(now)
    assert len(table) == 3
    table.close_late(now + connections.HEAD_LIMIT_S + 1)
    assert await ended(half) and await ended(silent)
    # A second request on a connection that was served has a deadline of its own.
    whole_writer.write(b"again\n")
    assert await whole.readline() == b"served\n"
    whole_writer.write(HALF)
    while await asyncio.sleep(0.01, len(table)) != 1:
        pass
    await asyncio.sleep(0.05)
    table.close_late(asyncio.get_running_loop().time() + connections.HEAD_LIMIT_S + 1)
    assert await ended(whole)
    for writer in (half_writer, silent_writer, whole_writer):
        writer.close()
    server.close()


async def test_connections_beyond_the_limit_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    table = Connections()
    server, port = await serving(table)
    first, second = await connect(port), await connect(port)
    while len(table) < 2:
        await asyncio.sleep(0.01)
    third, third_writer = await connect(port)
    assert await ended(third)
    first[1].close()
    second[1].close()
    third_writer.close()
    server.close()


async def test_half_requests_leave_the_dashboard_to_others(broker: Broker) -> None:
    async with running(broker.namesrv) as (dashboard, visitor):
        writers = [(await connect(dashboard.port))[1] for _ in range(64)]
        for writer in writers:
            writer.write(HALF)
        assert (await visitor.get("/")).status == 200
        for writer in writers:
            writer.close()
