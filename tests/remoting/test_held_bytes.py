"""What all connections of a server hold together: frames that are not whole, and answers that nobody reads."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Request, Response
from remoting.frames import encode_request
from remoting.routes import Action, NoHeader, Resource, Route, RouteTable
from remoting.server import RemotingServer
from sprocket.common import limits

KIB = 1024
BIG = bytes(600 * KIB)


def big(_: Request[object]) -> Response:
    return Response(body=BIG)


@pytest.fixture
async def server() -> AsyncIterator[RemotingServer]:
    table = RouteTable([Route(RequestCode.HEART_BEAT, NoHeader, big, Resource.NONE, Action.NONE)])
    server = RemotingServer(table, host="127.0.0.1")
    await server.start()
    yield server
    await server.stop()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


async def half_frame(server: RemotingServer, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    before = server.counters.received_bytes
    writer.write(struct.pack(">iI", 15 * 1024 * KIB, 100) + bytes(size))
    await until(lambda: server.counters.received_bytes >= before + size)
    return reader, writer


async def test_of_half_frames_the_oldest_go(server: RemotingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PARTIAL_BYTES", 1000 * KIB)
    client = RemotingClient()
    address = f"127.0.0.1:{server.port}"
    await client.invoke(address, RequestCode.HEART_BEAT)
    peers = [await half_frame(server, 300 * KIB) for _ in range(3)]
    assert server.counters.partial_bytes > 900 * KIB
    peers += [await half_frame(server, 300 * KIB) for _ in range(2)]
    assert [await asyncio.wait_for(reader.read(), 60) for reader, _ in peers[:2]] == [b"", b""]
    assert server.counters.partial_bytes <= 1000 * KIB
    assert len(server.channels) == 4
    # Who holds nothing is not concerned, and nothing is left over when they go.
    assert (await client.invoke(address, RequestCode.HEART_BEAT)).body == BIG
    for _, writer in peers:
        writer.transport.abort()
    await until(lambda: len(server.channels) == 1)
    assert server.counters.partial_bytes == 0
    await client.close()


async def test_of_those_who_do_not_read_the_oldest_go(server: RemotingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_PAUSE_BYTES", 64 * KIB)
    monkeypatch.setattr(limits, "MAX_UNSENT_BYTES", 1000 * KIB)
    peers: list[asyncio.StreamWriter] = []
    # How much of its last answer a peer leaves unsent depends on the buffers of its sockets: over 64 KiB, under 700.
    while not server.counters.stalled and len(peers) < 1000 // 64 + 1:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=KIB)
        writer.transport.pause_reading()
        peers.append(writer)
        # More than the sockets' buffers take.
        writer.write(b"".join(encode_request(RequestCode.HEART_BEAT, opaque) for opaque in range(200)))
        await until(partial(is_stalled_or_gone, server, len(peers) - 1))
    # The first made room; the last one is still waited for.
    gone = server.counters.stalled
    assert 1 <= gone < len(peers)
    assert sum(channel.unsent_bytes for channel in server.channels.values()) <= 1000 * KIB
    await until(lambda: len(server.channels) == len(peers) - gone)
    ports = [writer.transport.get_extra_info("sockname")[1] for writer in peers]
    assert [channel.peer[1] for channel in server.channels.values()] == ports[gone:]
    client = RemotingClient()
    assert (await client.invoke(f"127.0.0.1:{server.port}", RequestCode.HEART_BEAT)).body == BIG
    await client.close()
    for writer in peers:
        writer.transport.abort()


def is_stalled_or_gone(server: RemotingServer, number: int) -> bool:
    """Whether the newest of `number` + 1 connections does not read its answers."""
    stalled = sum(channel.stalled_at is not None for channel in server.channels.values())
    return stalled + server.counters.stalled > number
