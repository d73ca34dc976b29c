"""What all connections of a server hold together: frames that are not whole, and answers that nobody reads."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from functools import partial
from typing import cast

import pytest

from sprocket.common import limits
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.flow.unsent_output import UnsentOutput
from sprocket.remoting.frames import encode_request
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from tests.waiting import until

KIB = 1024
BIG = bytes(600 * KIB)


def big(_: Request[object]) -> Response:
    return Response(body=BIG)


@pytest.fixture
async def server() -> AsyncIterator[RemotingServer]:
    table = RouteTable([Route(RequestCode.HEART_BEAT, NoHeader, big, Resource.NONE, Action.NONE)])
    server = RemotingServer(table, ConnectionSettings("127.0.0.1"))
    await server.start()
    yield server
    await server.stop()


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
    # Connections without held bytes are not affected, and nothing is left when they close.
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


async def silent_peer(server: RemotingServer) -> asyncio.StreamWriter:
    """A connection that the server knows, and that reads nothing."""
    known = len(server.channels)
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        peer.connect(("127.0.0.1", server.port))
        _, writer = await asyncio.open_connection(sock=peer.dup(), limit=KIB)
    cast(asyncio.Transport, writer.transport).pause_reading()
    writer.write(encode_request(RequestCode.QUERY_MESSAGE, 1, oneway=True))
    await until(lambda: len(server.channels) > known)
    return writer


@pytest.mark.parametrize("pause_bytes", [KIB, limits.WRITE_PAUSE_BYTES])
async def test_what_is_pushed_to_those_who_do_not_read_is_bounded_too(
    server: RemotingServer, monkeypatch: pytest.MonkeyPatch, pause_bytes: int
) -> None:
    monkeypatch.setattr(limits, "WRITE_PAUSE_BYTES", pause_bytes)
    monkeypatch.setattr(limits, "MAX_UNSENT_BYTES", 3000 * KIB)
    peers = [await silent_peer(server) for _ in range(12)]
    client = RemotingClient()
    address = f"127.0.0.1:{server.port}"
    most = 0
    # None holds much: all are in one state, stalled or not, long before all together hold too much.
    while server.counters.stalled < 3:
        for channel in list(server.channels.values()):
            channel.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, body=BIG[: 50 * KIB])
        await asyncio.sleep(0)
        most = max(most, sum(channel.unsent_bytes for channel in server.channels.values()))
    assert 2000 * KIB < most <= 3000 * KIB + len(peers) * 51 * KIB
    await until(lambda: len(server.channels) == len(peers) - server.counters.stalled)
    assert (await client.invoke(address, RequestCode.HEART_BEAT)).body == BIG
    await client.close()
    for writer in peers:
        writer.transport.abort()
    await until(lambda: not server.channels)
    assert server.counters.unsent_bytes == 0


async def test_an_idle_peer_that_does_not_read_is_closed_in_the_end(server: RemotingServer) -> None:
    writer = await silent_peer(server)
    (channel,) = server.channels.values()
    while not channel.unsent_bytes:
        channel.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, body=BIG)
        await asyncio.sleep(0.01)
    now = asyncio.get_running_loop().time()
    server.sweep(now + 121)
    assert server.counters.idle_closed == 1
    server.sweep(now + 121 + limits.WRITE_STALL_S)
    await until(lambda: not server.channels)
    writer.transport.abort()


def test_what_is_left_of_earlier_writes_says_since_when() -> None:
    counters, called = ChannelCounters(), list[int]()
    output = UnsentOutput(counters, lambda: called.append(counters.unsent_bytes))
    output.written(0, 100, 1.0)
    output.written(40, 100, 2.0)
    assert (output.since, output.size_bytes, counters.unsent_bytes) == (1.0, 140, 140)
    output.written(0, 30, 3.0)
    assert (output.since, counters.unsent_bytes) == (3.0, 30)
    output.looked_at(10)
    assert output.since == 3.0
    output.looked_at(0)
    assert output.since is None
    assert (counters.unsent_bytes, called) == (0, [])
    output.written(0, limits.MAX_UNSENT_BYTES + 1, 4.0)
    output.written(limits.MAX_UNSENT_BYTES - 8, 8, 5.0)
    assert called == [limits.MAX_UNSENT_BYTES + 1]


def is_stalled_or_gone(server: RemotingServer, number: int) -> bool:
    """Whether the newest of `number` + 1 connections does not read its answers."""
    stalled = sum(channel.stalled_at is not None for channel in server.channels.values())
    return stalled + server.counters.stalled > number
