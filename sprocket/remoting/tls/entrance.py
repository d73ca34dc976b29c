"""Entrance of connections: their first byte tells TLS (0x16, a handshake) from plain; nothing is parsed before it.

Source: RocketMQ 5.3.3, `NettyRemotingServer.TlsModeHandler`.  Different here: a handshake is bounded in time and bytes.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from sprocket.common import limits
from sprocket.common.descriptors import DescriptorReserve
from sprocket.common.errors import ConfigError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.tls.connection import TlsConnection
from sprocket.remoting.tls.watch import ServerTls

logger = logging.getLogger(__name__)

_HANDSHAKE: Final = 0x16
_NOT_ENTERED: Final = {
    "tls": "tls.server.mode = disabled",
    "plain": "tls.server.mode = enforcing",
}


class Entrance:
    """Table of the connections of one port that have not sent their first byte or finished their handshake.

    `admit` makes the protocol of a connection.  A peer may be silent for `silent_s`; `count` gets the kind of each
    refusal.  Without `tls` connections are plain, and TLS is refused.  At most `max_waiting` connections wait; one more
    takes the place of the oldest silent one, of a host that `is_known` does not name if there is one.
    """

    def __init__(
        self,
        tls: ServerTls | None,
        admit: Callable[[], asyncio.BaseProtocol],
        *,
        silent_s: float,
        count: Callable[[str], None] = lambda kind: None,
        allows_plain: bool = False,
        handshake_s: float = limits.TLS_HANDSHAKE_S,
        max_waiting: int | None = None,
        is_known: Callable[[str], bool] = lambda host: False,
        descriptors: DescriptorReserve | None = None,
    ) -> None:
        self._tls = tls
        self._admit = admit
        self._silent_s = silent_s
        self._count = count
        self._allows_plain = allows_plain
        self._handshake_s = handshake_s
        self._max_waiting = max_waiting
        self._is_known = is_known
        self._descriptors = descriptors or DescriptorReserve()
        # Deadline of each, loop time.
        self._waiting: dict[_Visitor | TlsConnection, float] = {}

    def visitor(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Visitor(self)

    def __len__(self) -> int:
        """Return the number of waiting connections."""
        return len(self._waiting)

    @property
    def takes_tls(self) -> bool:
        """Whether a connection may be TLS."""
        return self._tls is not None and self._tls.is_offered

    @property
    def _takes_plain(self) -> bool:
        return self._tls is None or not self._tls.is_enforcing or self._allows_plain

    def sweep(self, now: float) -> int:
        """Close expired connections at loop time `now`, and reload files.  Return how many were silent."""
        if self._tls is not None:
            self._tls.reload()
        late = [one for one, until in self._waiting.items() if now > until]
        for one in late:
            if isinstance(one, TlsConnection):
                self._refuse(one, "tls_handshake", f"not done in {self._handshake_s:g} s")
            else:
                self.left(one)
            one.abort()
        return sum(isinstance(one, _Visitor) for one in late)

    def close(self) -> None:
        """Close all waiting connections."""
        for one in list(self._waiting):
            self.left(one)
            one.abort()

    # Called by waiting connections

    def came(self, visitor: "_Visitor") -> None:
        """Register a new connection; close another one if too many wait."""
        if self._max_waiting is not None and len(self._waiting) >= self._max_waiting:
            loser = min(self._waiting, key=self._rank)
            _log_refusal("waiting", loser.peer, "too many wait")
            self.left(loser)
            loser.abort()
        self._waiting[visitor] = asyncio.get_running_loop().time() + self._silent_s

    def _rank(self, one: "_Visitor | TlsConnection") -> tuple[bool, bool]:
        """Return the order in which waiting connections lose their places; those of one rank by their age."""
        return isinstance(one, TlsConnection), self._is_known(one.peer[0])

    def has_descriptors(self, transport: asyncio.BaseTransport) -> bool:
        """Return whether a connection leaves enough descriptors for files."""
        socket = transport.get_extra_info("socket")
        return socket is None or self._descriptors.has_room(socket.fileno())

    def left(self, one: "_Visitor | TlsConnection") -> None:
        """Remove a connection that waits no longer."""
        self._waiting.pop(one, None)

    def first_read(self, visitor: "_Visitor", transport: asyncio.Transport, data: bytes) -> None:
        """Admit or refuse the connection by its first byte."""
        self.left(visitor)
        is_tls = data[0] == _HANDSHAKE
        if not (self.takes_tls if is_tls else self._takes_plain):
            kind = "tls" if is_tls else "plain"
            self._count(f"{kind}_refused")
            _log_refusal(kind, visitor.peer, _NOT_ENTERED[kind])
            transport.abort()
            return
        protocol = self._secured(visitor, transport) if is_tls else cast(asyncio.Protocol, self._admit())
        if protocol is None:
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    def _secured(self, visitor: "_Visitor", transport: asyncio.Transport) -> TlsConnection | None:
        assert self._tls is not None
        try:
            context = self._tls.context()
        except ConfigError as error:
            peer_lines.error(logger, visitor.peer, "event=tls_unusable peer=%s:%s reason=%r", *visitor.peer, str(error))
            transport.abort()
            return None
        connection = TlsConnection(context, self._admit, self._shaken)
        self._waiting[connection] = asyncio.get_running_loop().time() + self._handshake_s
        return connection

    def _shaken(self, connection: TlsConnection, failure: str | None) -> None:
        if failure:
            self._refuse(connection, "tls_handshake", failure)
        self.left(connection)

    def _refuse(self, connection: TlsConnection, kind: str, reason: str) -> None:
        self._count(kind)
        self.left(connection)
        _log_refusal(kind, connection.peer, reason)


def _log_refusal(kind: str, peer: tuple[str, int], reason: str) -> None:
    peer_lines.warning(logger, peer, "event=connection_refused kind=%s peer=%s:%s reason=%r", kind, *peer, reason)


class _Visitor(asyncio.Protocol):
    """Connection that has sent nothing yet."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._transport: asyncio.Transport | None = None
        self.peer: tuple[str, int] = ("", 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = (transport.get_extra_info("peername") or ("", 0))[:2]
        if not self._entrance.has_descriptors(transport):
            self.abort()
        else:
            self._entrance.came(self)

    def data_received(self, data: bytes) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            self._entrance.first_read(self, transport, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._entrance.left(self)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
