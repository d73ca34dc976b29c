"""The calling side: connections to servers by address, opened on first use and shared."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from sprocket.common.cancellation import outcome_of
from sprocket.common.errors import ClientError, ConfigError
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.command import Buffer, ReceivedResponse
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.framing import JSON
from sprocket.remoting.headers.base import Header
from sprocket.remoting.in_process import Connect, InProcess, nowhere
from sprocket.remoting.pending import ConnectionLost, RemotingTimeout
from sprocket.remoting.renewed_token import RenewedToken
from sprocket.remoting.routes import Route, RouteTable
from sprocket.remoting.tls.watch import ClientTls

__all__ = ["ConnectFailed", "ConnectionLost", "ConnectionRefused", "RemotingClient", "RemotingTimeout", "split_address"]

CONNECT_TIMEOUT_S = 3.0
# A peer that takes no more data must not hold up the end of a program.
_CLOSE_LIMIT_S = 0.5
Prover = Callable[[RemotingChannel, str], Awaitable[None]]
Introduce = Callable[[RemotingChannel], Awaitable[None]]


class ConnectFailed(ClientError):
    """No connection to `address`; nothing was sent."""

    def __init__(self, text: str, address: str = "") -> None:
        super().__init__(text)
        self.address = address


class ConnectionRefused(ConnectFailed):
    """Nothing listens at `address`."""


OTHER_LOOP: Final = (
    "the client is used in another event loop than before; make a new one in each loop, or run the whole program in one"
    " asyncio.run()"
)


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` in two; an IPv6 host may stand in brackets.  Raises ValueError, also for a scheme."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or "/" in host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


def _is_refused(error: Exception) -> bool:
    """Whether every address of the host refused; asyncio tells of several of them only in the text of one OSError."""
    if isinstance(error, ConnectionRefusedError):
        return True
    text = str(error)
    return 0 < text.count("[Errno ") == text.count(f"[Errno {errno.ECONNREFUSED}]")


def _reason(error: Exception) -> str:
    """Return the cause; errors of the resolver, which have negative numbers, without the number."""
    if isinstance(error, OSError) and error.errno is not None and error.errno < 0:
        return str(error.strerror)
    return str(error)


async def _or_closed(step: Awaitable[None], channel: RemotingChannel) -> None:
    """Do a step of a new connection; close it if the step fails."""
    try:
        await step
    except BaseException:
        channel.close()
        raise


class RemotingClient:
    """Client of any number of servers; `routes` serve the requests that servers send.

    With `credentials` every request is signed, with `tls` every connection is TLS.  `prover` makes the server of a new
    connection prove its identity, and raises ConnectFailed; nothing is signed before.  `introduce` then tells the
    server, before any other request, for whom this client is, and raises ClientError.  `on_open` and `on_close` get the
    address of each connection that opens or closes.  `in_process` knows the servers in this process: connections with
    them are neither signed nor TLS, and the server need not prove anything.
    """

    def __init__(
        self,
        routes: list[Route] | None = None,
        *,
        serialization: int = JSON,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        tls: ClientTls | None = None,
        credentials: Credentials | None = None,
        prover: Prover | None = None,
        introduce: Introduce | None = None,
        on_open: Callable[[str], None] | None = None,
        on_close: Callable[[str], None] | None = None,
        in_process: InProcess = nowhere,
    ) -> None:
        self._in_process = in_process
        self._on_open = on_open
        self._on_close = on_close
        self._table = RouteTable(routes or [])
        self._serialization = serialization
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        self.credentials = credentials
        self._prover = prover
        self._introduce = introduce
        self._channels: dict[str, RemotingChannel] = {}
        self._connecting: dict[str, asyncio.Task[RemotingChannel]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None  # of the first use
        self._closed = False
        self._emptied = asyncio.Event()  # the last connection has left the table of a closed client
        self.counters = ChannelCounters()

    def check_loop(self) -> None:
        """Raise ClientError in another event loop than the first: the connections would never answer there."""
        loop = asyncio._get_running_loop()  # None in a thread without one, which only reads
        if self._loop is None:
            self._loop = loop
        elif loop is not None and self._loop is not loop:
            raise ClientError(OTHER_LOOP)

    async def channel(self, address: str) -> RemotingChannel:
        """Return an open connection to `address`.  Raises ConnectFailed, and ClientError as `check_loop`."""
        self.check_loop()
        channel = self._channels.get(address)
        if channel is not None and not channel.is_closed:
            return channel
        if self._closed:
            raise ConnectFailed(f"{address}: the client is closed")
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(address))
            self._connecting[address] = task
            task.add_done_callback(lambda _: self._connecting.pop(address, None))
        return await outcome_of(task, ConnectFailed(f"{address}: the client is closed"))

    @property
    def has_waiting(self) -> bool:
        """Whether a connection is being opened, or a request waits for its response."""
        return bool(self._connecting) or any(channel.has_waiting for channel in self._channels.values())

    def open_channel(self, address: str) -> RemotingChannel | None:
        """Return the connection to `address` if it is open now."""
        channel = self._channels.get(address)
        return None if channel is None or channel.is_closed else channel

    async def _connect(self, address: str) -> RemotingChannel:
        if isinstance(self.credentials, RenewedToken):
            await self.credentials.ready()
        connect = self._in_process(address)
        channel = await self._connect_by_socket(address) if connect is None else self._connect_here(address, connect)
        if self._introduce is not None:
            await _or_closed(self._introduce(channel), channel)
        if not channel.is_closed:  # the peer may have closed it in the same turn of the loop
            self._channels[address] = channel
        if self._on_open is not None:
            self._on_open(address)
        return channel

    def _connect_here(self, address: str, connect: Connect) -> RemotingChannel:
        channel = self._new_channel(address, None)
        connect(channel)
        return channel

    def _new_channel(self, address: str, credentials: Credentials | None) -> RemotingChannel:
        return RemotingChannel(
            self._table,
            self.counters,
            on_close=lambda closed: self._closed_channel(address, closed),
            pause_reads=False,
            credentials=credentials,
        )

    async def _connect_by_socket(self, address: str) -> RemotingChannel:
        """Return a connection whose server has proved its identity, if it must.  Raises ConnectFailed."""
        credentials = self.credentials if self._prover is None else None
        try:
            host, port = split_address(address)
            context = None if self._tls is None else self._tls.context()
            async with asyncio.timeout(self._connect_timeout_s):
                _, channel = await asyncio.get_running_loop().create_connection(
                    lambda: self._new_channel(address, credentials),
                    host,
                    port,
                    ssl=context,
                    server_hostname=None if context is None else host,
                )
        except TimeoutError:
            raise ConnectFailed(f"connect to {address}: no answer in {self._connect_timeout_s} s", address) from None
        except (OSError, ValueError, ConfigError) as error:
            if _is_refused(error):
                raise ConnectionRefused(f"connect to {address}: connection refused", address) from None
            raise ConnectFailed(f"connect to {address}: {_reason(error)}", address) from None
        await self._prove(channel, address)
        return channel

    async def _prove(self, channel: RemotingChannel, address: str) -> None:
        if self._prover is None:
            return
        await _or_closed(self._prover(channel, address), channel)
        channel.sign_with(self.credentials)

    def _closed_channel(self, address: str, channel: RemotingChannel) -> None:
        if self._channels.get(address) is channel:
            del self._channels[address]
            if self._closed and not self._channels:
                self._emptied.set()
        if self._on_close is not None:
            self._on_close(address)

    async def invoke(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        *,
        timeout_s: float = 3.0,
    ) -> ReceivedResponse:
        """Send a request and wait for its response, whatever its code.

        Raises ConnectFailed (nothing was sent), ConnectionLost or RemotingTimeout (the outcome is unknown).
        """
        channel = await self.channel(address)
        return await channel.request(code, header, body, timeout_s=timeout_s, serialization=self._serialization)

    async def notify(self, address: str, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """Send a oneway request.  Raises ConnectFailed."""
        channel = await self.channel(address)
        channel.notify(code, header, body)

    async def close(self) -> None:
        """Close every connection; waiting requests get ConnectionLost."""
        self._closed = True
        for task in list(self._connecting.values()):
            task.cancel()
        # A channel that has closed leaves the table.
        for channel in list(self._channels.values()):
            channel.close()
        if self._channels:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_LIMIT_S):
                    await self._emptied.wait()
        for channel in list(self._channels.values()):
            channel.abort("client_close")
