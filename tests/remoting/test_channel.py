"""The connection under the event loop that servers run on."""

import asyncio
import inspect
import socket
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from sprocket.common.errors import SprocketError
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.frames import encode_request, encode_response
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, RouteTable, Steps
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings


async def _echo_once(body: bytes) -> bytes:
    def echo(request: Request[NoHeader]) -> Response:
        return Response(body=request.body)

    route = Route(RequestCode.HEART_BEAT, NoHeader, echo, Resource.NONE, Action.NONE)
    server, client = RemotingServer(RouteTable([route]), ConnectionSettings("127.0.0.1")), RemotingClient()
    await server.start()
    try:
        response = await client.invoke(f"127.0.0.1:{server.port}", RequestCode.HEART_BEAT, body=body)
    finally:
        await client.close()
        await server.stop()
    return response.body


def test_serves_and_asks_under_uvloop() -> None:
    # uvloop's transports do not derive from asyncio.Transport, and its writes take other paths for large bodies.
    for size in (0, 5, 300_000):
        assert uvloop.run(_echo_once(b"x" * size)) == b"x" * size


async def _answered_in_pieces(pieces: list[bytes]) -> bytes:
    def answer(request: Request[NoHeader]) -> None:
        head, *_ = encode_response(Response(body=b"".join(pieces)), request.opaque, request.serialization)
        request.channel.answer(request, head, *pieces)

    route = Route(RequestCode.HEART_BEAT, NoHeader, answer, Resource.NONE, Action.NONE)
    server, client = RemotingServer(RouteTable([route]), ConnectionSettings("127.0.0.1")), RemotingClient()
    await server.start()
    try:
        response = await client.invoke(f"127.0.0.1:{server.port}", RequestCode.HEART_BEAT)
    finally:
        await client.close()
        await server.stop()
    return response.body


def test_pieces_of_every_size_arrive_in_their_order() -> None:
    sizes = [300, 40_000, 1, 16_383, 16_384, 70_000, 5, 16_000, 16_000, 16_000, 16_000, 16_000, 0, 200_000, 7, 8]
    pieces = [bytes([97 + number]) * size for number, size in enumerate(sizes)]
    assert uvloop.run(_answered_in_pieces(pieces)) == b"".join(pieces)


async def test_a_handler_whose_connection_ends_before_its_first_step_leaves_nothing_unawaited() -> None:
    async def wait(request: Request[NoHeader]) -> Response:
        return Response(body=request.body)

    handlers = list[Coroutine[Any, Any, Response]]()

    def begin(request: Request[NoHeader]) -> Coroutine[Any, Any, Response]:
        handlers.append(wait(request))
        asyncio.get_running_loop().call_soon(request.channel.connection_lost, None)
        return handlers[0]

    route = Route(RequestCode.HEART_BEAT, NoHeader, begin, Resource.NONE, Action.NONE)
    server, client = RemotingServer(RouteTable([route]), ConnectionSettings("127.0.0.1")), RemotingClient()
    await server.start()
    try:
        with pytest.raises(SprocketError):
            await client.invoke(f"127.0.0.1:{server.port}", RequestCode.HEART_BEAT, timeout_s=0.2)
    finally:
        await client.close()
        await server.stop()
    assert inspect.getcoroutinestate(handlers[0]) == inspect.CORO_CLOSED


@pytest.mark.parametrize("has_begun", [False, True])
async def test_handlers_do_nothing_more_for_a_connection_that_has_closed(has_begun: bool) -> None:
    begun, made, ready = [0], [0], asyncio.Event()

    def answer() -> Steps:
        made[0] += 1
        yield
        return Response()

    async def handle(request: Request[NoHeader]) -> Steps:
        begun[0] += 1
        await ready.wait()
        return answer()

    channel = RemotingChannel(
        RouteTable([Route(RequestCode.HEART_BEAT, NoHeader, handle, Resource.NONE, Action.NONE)]), ChannelCounters()
    )
    channel.data_received(b"".join(encode_request(RequestCode.HEART_BEAT, number) for number in range(200)))
    while has_begun and begun[0] < 200:
        await asyncio.sleep(0)
    ready.set()
    channel.connection_lost(None)
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
    assert (begun, made) == ([200 if has_begun else 0], [0])


async def _served_beside_a_flood(count: int) -> list[str]:
    """Return who was served, one after the other, when a neighbour asks while the first large request is served."""
    served = list[str]()

    def serve(request: Request[NoHeader]) -> Response:
        if not served:
            neighbour.sendall(encode_request(RequestCode.HEART_BEAT, 1, {}, 0))
        served.append("flood" if request.body else "neighbour")
        return Response()

    route = Route(RequestCode.HEART_BEAT, NoHeader, serve, Resource.NONE, Action.NONE)
    server = RemotingServer(RouteTable([route]), ConnectionSettings("127.0.0.1"))
    await server.start()
    body = b"x" * 250_000
    content = (encode_request(RequestCode.HEART_BEAT, 1, {}, len(body)) + body) * count
    address = "127.0.0.1", server.port
    with socket.create_connection(address) as neighbour, socket.create_connection(address) as flood:
        await asyncio.to_thread(flood.sendall, content)
        while len(served) <= count:
            await asyncio.sleep(0.01)
    await server.stop()
    return served


def test_uvloop_does_not_read_one_connection_again_and_again_while_others_wait() -> None:
    served = uvloop.run(_served_beside_a_flood(40))
    assert served.index("neighbour") <= 3
