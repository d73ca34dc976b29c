"""Connections that begin a request and never end it, that never read the answer, and more than there are places for."""

import asyncio
import socket

from sprocket.metrics.http_connections import HttpConnections
from tests.waiting import until

# More than the sockets of both ends hold.
ENDLESS = bytes(64 << 20)
HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Never-Ends: "


class Served(asyncio.Protocol):
    """What a server is to the table: answers each line, and tells the table so."""

    def __init__(self, table: HttpConnections) -> None:
        self._table = table

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\n"):
            with self._table.answering(self._transport):
                self._transport.write(ENDLESS if data == b"endless\n" else b"served\n")


async def serving(table: HttpConnections) -> tuple[asyncio.Server, int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: table.protocol(lambda: Served(table)), "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


class Slow(asyncio.Protocol):
    """A server whose answer to a head takes until `may_end`, whatever comes of the body."""

    def __init__(self, table: HttpConnections) -> None:
        self._table = table
        self.received = bytearray()
        self.may_end = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.received:
            self._answer = asyncio.get_running_loop().create_task(self._work())
        self.received += data

    async def _work(self) -> None:
        with self._table.answering(self._transport):
            await self.may_end.wait()
            self._transport.write(b"served\n")


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def ask(port: int, line: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect with a request that is there before the server knows the connection, however slow the machine is."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(line)
    sock.setblocking(False)
    return await asyncio.open_connection(sock=sock)


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return not await reader.read()
    except ConnectionError:
        return True


async def test_a_request_that_never_ends_is_closed_at_its_deadline_and_no_other() -> None:
    table = HttpConnections(8, head_limit_s=1, answer_limit_s=600)
    server, port = await serving(table)
    whole, whole_writer = await ask(port, b"whole\n")
    assert await whole.readline() == b"served\n"
    half, half_writer = await ask(port, HALF)
    silent, silent_writer = await connect(port)
    assert await ended(half) and await ended(silent)
    # A second request on a connection that was served has a deadline of its own.
    whole_writer.write(b"again\n")
    assert await whole.readline() == b"served\n"
    whole_writer.write(HALF)
    assert await ended(whole)
    await until(lambda: len(table) == 0)
    for writer in (half_writer, silent_writer, whole_writer):
        writer.close()
    server.close()


async def test_a_body_that_comes_after_its_head_is_no_new_request() -> None:
    table = HttpConnections(8, head_limit_s=0.5, answer_limit_s=600)
    slow = Slow(table)
    protocols = [slow, Served(table)]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: table.protocol(lambda: protocols.pop(0)), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await ask(port, b"head\n")
    await until(lambda: bytes(slow.received) == b"head\n")
    writer.write(b"body")
    await until(lambda: bytes(slow.received) == b"head\nbody")
    # Its limit begins later.
    silent, silent_writer = await connect(port)
    assert await ended(silent)
    slow.may_end.set()
    assert await reader.readline() == b"served\n"
    writer.write(HALF)
    assert await ended(reader)
    silent_writer.close()
    writer.close()
    server.close()


async def test_who_never_reads_the_answer_is_closed_at_its_deadline() -> None:
    table = HttpConnections(8, head_limit_s=600, answer_limit_s=1)
    server, port = await serving(table)
    _, writer = await connect(port)
    writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's
    writer.write(b"endless\n")
    await until(lambda: len(table) == 1)
    await until(lambda: len(table) == 0)
    writer.transport.abort()
    server.close()


async def test_one_more_connection_takes_the_place_of_the_oldest_without_a_request() -> None:
    table = HttpConnections(2, head_limit_s=600, answer_limit_s=600)
    server, port = await serving(table)
    first, first_writer = await connect(port)
    first_writer.write(b"whole\n")
    assert await first.readline() == b"served\n"
    second, second_writer = await connect(port)
    await until(lambda: len(table) == 2)
    third, third_writer = await connect(port)
    assert await ended(second)
    third_writer.write(b"whole\n")
    assert await third.readline() == b"served\n"
    fourth, fourth_writer = await connect(port)
    assert await ended(fourth)
    assert len(table) == 2
    for writer in (first_writer, second_writer, third_writer, fourth_writer):
        writer.close()
    server.close()
