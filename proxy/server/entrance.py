"""Entrance of a port that takes TLS and plain text: the first byte of a connection tells which (0x16, a handshake).

gRPC's ports take one of both, and RocketMQ's clients use either.  So connections are passed on to one of two ports of
this process, byte by byte.  A side that does not read stops the reading of the other.
Source: RocketMQ 5.3.3, `ProxyAndTlsProtocolNegotiator`.
"""

import asyncio
import logging
from typing import Final, cast

from sprocket.common.descriptors import DescriptorReserve
from sprocket.common.errors import ConfigError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.serving.listening import bound, reason_of, serve

logger = logging.getLogger(__name__)

_HANDSHAKE: Final = 0x16
# A connection that says nothing for this time is closed.
_SILENT_S: Final = 30.0
_LOOPBACK: Final = "127.0.0.1"
_NO_SOCKET: Final = -1


class Entrance:
    """Connections of one port, which are passed on to two ports of this process."""

    def __init__(self, descriptors: DescriptorReserve) -> None:
        self._descriptors = descriptors
        self._server: asyncio.Server | None = None
        self._visitors: set[_Visitor] = set()
        self._peers: dict[int, tuple[str, int]] = {}
        self.plain_port = 0
        self.tls_port = 0

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._visitors)

    async def bind(self, host: str, port: int, *, is_shared: bool) -> int:
        """Bind the port without serving it.  Return its number.  Raises ConfigError.

        If it is shared, other processes of the proxy bind it too.
        """
        try:
            self._server = await bound(lambda: _Visitor(self), host, port, backlog=1024, reuse_port=is_shared)
        except OSError as error:
            raise ConfigError(f"{host}:{port} cannot be listened on: {reason_of(error)}") from None
        return int(self._server.sockets[0].getsockname()[1])

    def pass_to(self, *, plain_port: int, tls_port: int) -> None:
        """Pass connections on to these ports."""
        self.plain_port, self.tls_port = plain_port, tls_port

    async def serve(self) -> None:
        """Accept connections.  Raises ConfigError."""
        assert self._server is not None
        try:
            await serve(self._server)
        except OSError as error:
            raise ConfigError(f"the port cannot be listened on: {reason_of(error)}") from None

    async def close(self) -> None:
        """Accept no more, and close every connection."""
        if self._server is not None:
            self._server.close()
        for visitor in list(self._visitors):
            visitor.close()

    def peer_behind(self, peer: tuple[str, int]) -> tuple[str, int]:
        """Return the client of a connection that was passed on; `peer` itself for another one."""
        return self._peers.get(peer[1], peer) if peer[0] == _LOOPBACK else peer

    def entered(self, visitor: "_Visitor", descriptor: int) -> bool:
        """Record a connection.  Return whether it may stay."""
        if descriptor >= 0 and not self._descriptors.has_room(descriptor):
            return False
        self._visitors.add(visitor)
        return True

    def passed_on(self, port: int, peer: tuple[str, int]) -> None:
        """Record the client behind the port of a connection that was passed on."""
        self._peers[port] = peer

    def left(self, visitor: "_Visitor", port: int) -> None:
        """Forget a connection."""
        self._visitors.discard(visitor)
        self._peers.pop(port, None)


class _Visitor(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._transport: asyncio.Transport | None = None
        self._inner: asyncio.Transport | None = None
        self._first = bytearray()
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        socket = transport.get_extra_info("socket")
        if not self._entrance.entered(self, _NO_SOCKET if socket is None else socket.fileno()):
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(_SILENT_S, self.close)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.write(data)
            return
        self._first += data
        if self._connecting is None and self._transport is not None:
            self._transport.pause_reading()
            self._connecting = asyncio.get_running_loop().create_task(self._pass_on())

    async def _pass_on(self) -> None:
        is_tls = self._first[0] == _HANDSHAKE
        port = self._entrance.tls_port if is_tls else self._entrance.plain_port
        assert self._transport is not None
        try:
            inner, _ = await asyncio.get_running_loop().create_connection(lambda: _Inner(self), _LOOPBACK, port)
        except OSError as error:
            peer_lines.warning(logger, "", "event=entrance_failed reason=%r", str(error))
            self.close()
            return
        self._inner = inner
        self._port = inner.get_extra_info("sockname")[1]
        peer = self._transport.get_extra_info("peername") or ("", 0)
        self._entrance.passed_on(self._port, (peer[0], peer[1]))
        if self._timer is not None:
            self._timer.cancel()
        if self._transport.is_closing():
            inner.close()
            self._entrance.left(self, self._port)
            return
        inner.write(bytes(self._first))
        self._first.clear()
        self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Write what gRPC answers."""
        if self._transport is not None:
            self._transport.write(data)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_reading()

    def resume_writing(self) -> None:
        if self._inner is not None and not self._inner.is_closing():
            self._inner.resume_reading()

    def inner_is_full(self, is_full: bool) -> None:
        """Stop reading while gRPC does not take what was read, or go on."""
        if self._transport is None or self._transport.is_closing():
            return
        if is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._inner is not None:
            self._inner.close()
        self._entrance.left(self, self._port)

    def close(self) -> None:
        """Close the connection once what is written has left."""
        if self._transport is not None:
            self._transport.close()


class _Inner(asyncio.Protocol):
    """The connection that a client's is passed on to."""

    def __init__(self, visitor: _Visitor) -> None:
        self._visitor = visitor

    def data_received(self, data: bytes) -> None:
        self._visitor.write(data)

    def pause_writing(self) -> None:
        self._visitor.inner_is_full(True)

    def resume_writing(self) -> None:
        self._visitor.inner_is_full(False)

    def connection_lost(self, error: Exception | None) -> None:
        self._visitor.close()
