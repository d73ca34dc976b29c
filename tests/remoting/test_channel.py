"""The connection under the event loop that servers run on."""

import uvloop

from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Request, Response
from remoting.routes import Action, NoHeader, Resource, Route, RouteTable
from remoting.server import RemotingServer


async def _echo_once(body: bytes) -> bytes:
    def echo(request: Request[NoHeader]) -> Response:
        return Response(body=request.body)

    route = Route(RequestCode.HEART_BEAT, NoHeader, echo, Resource.NONE, Action.NONE)
    server, client = RemotingServer(RouteTable([route]), host="127.0.0.1"), RemotingClient()
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
