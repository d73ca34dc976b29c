"""A server in the test's process, on a free port of this machine, and the connections to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.base import Header
from tests.clock import ManualClock
from tests.loop_syncs import loop_syncs

WAIT_S = 60.0


class Server(Protocol):
    """What a name server, a controller and a broker have in common."""

    @property
    def port(self) -> int: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class ServerSite:
    """A server, a clock that the test turns, and the connections to the server.  Subclasses make `server`."""

    server: Server

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clients: list[RemotingClient] = []
        self.client = self.connection()

    def connection(self) -> RemotingClient:
        self.clients.append(RemotingClient())
        return self.clients[-1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def ask(
        self,
        code: RequestCode,
        of: Header | None = None,
        content: bytes = b"",
        expect: ResponseCode = ResponseCode.SUCCESS,
        by: RemotingClient | None = None,
    ) -> ReceivedResponse:
        """Ask over the first connection, or `by` another; the answer must have the code `expect`."""
        response = await (by or self.client).invoke(self.address, code, of, content, timeout_s=WAIT_S)
        assert response.code == expect, response.remark
        return response


S = TypeVar("S", bound=ServerSite)


@asynccontextmanager
async def started(site: S) -> AsyncIterator[S]:
    """Start the server, and stop it in the end.  Meanwhile it syncs nothing on the loop."""
    await site.server.start()
    try:
        with loop_syncs() as syncs:
            yield site
    finally:
        for client in site.clients:
            await client.close()
        await site.server.stop()
    assert not syncs, "\n".join(syncs)
