"""The master's port for slaves: one `MasterLink` for each connection, driven by the event loop.

A piece of the log goes from the mapping to the socket; what a slow slave has not taken yet is bounded by the
transport's buffer.  Source: RocketMQ 5.3.3, `DefaultHAService`, `AcceptSocketService`.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Final, cast

from ha.master_link import LinkRules, Log, MasterLink
from ha.replicas import Replicas
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, ProtocolError

logger = logging.getLogger(__name__)

# Bytes on their way to one slave before the log is read on for it.
_AHEAD_BYTES: Final = 4 * 1024 * 1024
# Slaves of one master are few; more connections than this are somebody else's mistake.
_MOST_SLAVES: Final = 64


class SlaveConnection(asyncio.Protocol):
    """One slave that is connected."""

    def __init__(self, listener: "SlaveListener") -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = False
        self.peer: tuple[str, int] = ("", 0)
        self.link = listener.new_link()

    @property
    def address(self) -> str:
        """``host:port`` of the slave's end."""
        return f"{self.peer[0]}:{self.peer[1]}"

    @property
    def identity(self) -> Hashable:
        """What tells this slave from others, however often it is connected."""
        return self.peer[0]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_AHEAD_BYTES)
        self.peer = (transport.get_extra_info("peername") or ("", 0))[:2]
        if not self._listener.joined(self):
            self.close("too many slaves")
            return
        self._tick()

    def data_received(self, data: bytes) -> None:
        listener, link = self._listener, self.link
        is_first = link.requested_offset is None
        try:
            has_acked = link.received(data, listener.now())
        except ProtocolError as error:
            self.close(error.detail)
            return
        if is_first and link.requested_offset is not None:
            logger.info(
                "event=slave_joined slave=%s log_end=%d from=%d", self.address, link.requested_offset, link.next_offset
            )
        if has_acked:
            listener.acknowledged(self)
        if is_first:
            self.pump()

    def pump(self) -> None:
        """Write what there is, as far as the slave takes it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        now = self._listener.now()
        while not self._is_full and (buffers := self.link.next_piece(now)):
            for buffer in buffers:
                transport.write(buffer)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.pump()

    def _tick(self) -> None:
        now = self._listener.now()
        if self.link.is_expired(now):
            self.close("silent for too long")
            return
        self.pump()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(self.link.wait_s(now), 0.01), self._tick)

    def close(self, reason: str) -> None:
        """End the connection, at once."""
        if self._transport is not None and not self._transport.is_closing():
            logger.warning("event=slave_closed slave=%s reason=%r", self.address, reason)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._listener.left(self)


class SlaveListener:
    """Listens for slaves, and keeps what they have acknowledged.  Lives in the event loop's thread.

    `on_acknowledged` is called when a slave has more than before, or has gone.
    """

    def __init__(
        self, rules: LinkRules, log: Log, replicas: Replicas, clock: Clock, on_acknowledged: Callable[[], None]
    ) -> None:
        self._rules = rules
        self._log = log
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._on_acknowledged = on_acknowledged
        self._is_pumping = False
        # What the log held at the start, or was sent since, to connections that have ended.
        self._known_offset = 0
        self.replicas = replicas
        # In the order in which they came.
        self.connections: list[SlaveConnection] = []

    async def start(self, host: str, port: int) -> int:
        """Listen; the port that is listened on.  Raises ConfigError if it cannot be had.

        What the log holds by now is what slaves may have from before.
        """
        self._known_offset = self._log.end_offset
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: SlaveConnection(self), host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"haListenPort = {port}: cannot listen on {host}:{port}: {reason}") from None
        bound: int = self._server.sockets[0].getsockname()[1]
        logger.info("event=ha_listening address=%s:%d", host, bound)
        return bound

    def stop(self) -> None:
        """Listen no longer, and end all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.close("the master stops")

    def log_grew(self) -> None:
        """There is more to send: all slaves get it in the next turn of the loop."""
        if self.connections and not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump_all)

    def _pump_all(self) -> None:
        self._is_pumping = False
        for connection in list(self.connections):
            connection.pump()

    # For the connections

    def now(self) -> float:
        """Of the monotonic clock, seconds."""
        return self._clock.monotonic()

    def new_link(self) -> MasterLink:
        return MasterLink(self._rules, self._log, self.now(), self.known_offset)

    def known_offset(self) -> int:
        """No slave can have more of this log: it ended here at the start, or was sent up to here since."""
        return max([self._known_offset, *(connection.link.next_offset for connection in self.connections)])

    def joined(self, connection: SlaveConnection) -> bool:
        """Whether there is room for one more."""
        if len(self.connections) >= _MOST_SLAVES:
            return False
        self.connections.append(connection)
        return True

    def acknowledged(self, connection: SlaveConnection) -> None:
        link = connection.link
        self.replicas.acknowledged(
            connection.identity, connection, link.acked_offset, self._log.end_offset, self.now(), link.flushed_offset
        )
        self._on_acknowledged()

    def left(self, connection: SlaveConnection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self._known_offset = max(self._known_offset, connection.link.next_offset)
            self.replicas.left(connection.identity, connection)
            logger.info("event=slave_left slave=%s acked=%d", connection.address, connection.link.acked_offset)
            self._on_acknowledged()
