"""The slave's connection to its master, reopened whenever it ends.

Source: RocketMQ 5.3.3, `DefaultHAClient.run`.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final, Protocol, cast

from ha.slave_link import ReplicaLog, SlaveLink, SlaveRules
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, DiskFailed, ProtocolError, RestartNeeded, SprocketError, StoreError
from sprocket.common.logs.peer_lines import peer_lines

logger = logging.getLogger(__name__)

# `DefaultHAClient.closeMasterAndWait`
RETRY_S: Final = 5.0
_CONNECT_LIMIT_S: Final = 5.0
# Bounds of one read.  A larger read costs less per byte, but the event loop serves no one else meanwhile.  The size is
# adapted until a full read takes between `_SHORT_S` and `_LONG_S`.
_MIN_READ_BYTES: Final = 256 * 1024
_MAX_READ_BYTES: Final = 4 * 1024 * 1024
_SHORT_S: Final = 0.004
_LONG_S: Final = 0.010


class Links(Protocol):
    """The slave's end of each connection to the master: its protocol, its transport, and what follows each read."""

    async def new_link(self, address: str) -> SlaveLink | None:
        """Return the end of a new connection to `address`; None if that master cannot be followed now."""

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the connection for the last `new_link`; None for cleartext."""

    def connected(self, connection: "MasterConnection | None") -> None:
        """Take the open connection to the master; None once it has ended."""

    def received(self, connection: "MasterConnection") -> None:
        """Continue after a read from the master."""


class MasterConnection(asyncio.BufferedProtocol):
    """One connection to the master.

    Each read goes into one buffer and is processed at once.  While the slave is busy, the kernel collects more.  So a
    read during catch-up brings many records, which are processed in arrays; a read from a quiet master brings one
    record.
    """

    def __init__(self, follower: "Follower", link: SlaveLink) -> None:
        self._follower = follower
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = memoryview(bytearray(_MAX_READ_BYTES))
        self._read_bytes = min(4 * _MIN_READ_BYTES, _MAX_READ_BYTES)
        self._took_s = 0.0
        self.link = link
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self.link.begin(self._follower.now()))
        self._tick()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[: self._read_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        is_full = nbytes == self._read_bytes
        if is_full and self._transport is not None:
            # More bytes are waiting.  Serve the readers of this slave first.
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)
        began = self._follower.now()
        try:
            report = self.link.received(self._buffer[:nbytes], began)
        except (ProtocolError, StoreError) as error:
            self.close(str(error))
            if isinstance(error, DiskFailed | RestartNeeded):
                self._follower.failed(error)
            return
        if report and self._transport is not None:
            self._transport.write(report)
        self._follower.links.received(self)
        if is_full:
            self._adapt(self._follower.now() - began)

    def _adapt(self, seconds: float) -> None:
        """Adapt the read size to a full read that took `seconds`.

        One slow read proves nothing, because the process may have lost its CPU meanwhile: only two in a row count.
        """
        min_s = min(seconds, self._took_s)
        if seconds < _SHORT_S:
            self._read_bytes = min(self._read_bytes * 3 // 2, _MAX_READ_BYTES)
        elif min_s > _LONG_S:
            self._read_bytes = max(self._read_bytes * 2 // 3, min(_MIN_READ_BYTES, _MAX_READ_BYTES))
        self._took_s = seconds

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def acknowledge(self) -> None:
        """Send a report if there is more to acknowledge than the last one did."""
        report = self.link.acknowledge(self._follower.now())
        if report and self._transport is not None:
            self._transport.write(report)

    def _tick(self) -> None:
        now = self._follower.now()
        if self._transport is None:
            return
        if self.link.is_expired(now):
            self.close("silent for too long")
            return
        if due := self.link.due(now):
            self._transport.write(due)
        self._timer = asyncio.get_running_loop().call_later(max(self.link.wait_s(now), 0.01), self._tick)

    def close(self, reason: str) -> None:
        """Abort the connection."""
        if self._transport is not None and not self._transport.is_closing():
            peer_lines.warning(logger, "", "event=master_connection_closed reason=%r", reason)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)


class Follower:
    """Follower of a master whose address may change or be unknown.  Lives in the event loop's thread.

    `on_failure` receives an error after which following cannot go on, above all a failed disk; nothing is followed
    after it.
    """

    def __init__(
        self,
        links: Links,
        log: ReplicaLog,
        clock: Clock,
        on_failure: Callable[[SprocketError], None],
        *,
        retry_s: float = RETRY_S,
    ) -> None:
        self.links = links
        self._log = log
        self._clock = clock
        self._on_failure = on_failure
        self._retry_s = retry_s
        self._address = ""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False
        self.connection: MasterConnection | None = None

    def configure(self, rules: SlaveRules) -> None:
        """Apply changed intervals to the open connection."""
        if self.connection is not None:
            self.connection.link.configure(rules)

    @property
    def master_address(self) -> str:
        """``host:port`` of the master's HA port; empty while it is unknown."""
        return self._address

    def follow(self, address: str) -> None:
        """Follow the master at ``host:port``, or none if empty.  The connection to another master is closed."""
        if address == self._address:
            return
        logger.info("event=master_changed from=%s to=%s", self._address or "-", address or "-")
        self._address = address
        self._changed.set()
        if self.connection is not None:
            self.connection.close("another master")

    def start(self) -> None:
        """Start to follow."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop following: nothing more is received from the master."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if self.connection is not None:
            self.connection.close("the slave stops")

    def now(self) -> float:
        """Return the monotonic clock's time, in seconds."""
        return self._clock.monotonic()

    def failed(self, error: SprocketError) -> None:
        """Stop for good after `error`, such as a failed disk."""
        self._has_failed = True
        self._on_failure(error)

    async def _run(self) -> None:
        while not self._has_failed:
            self._changed.clear()
            if self._address:
                await self._follow_once(self._address)
            try:
                # Without a master, wait for one.  Otherwise wait before the next try, not to flood a master that
                # refuses.
                async with asyncio.timeout(self._retry_s if self._address else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _follow_once(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        link = await self.links.new_link(address)
        if link is None or address != self._address:
            return
        try:
            context, host = self.links.context(), host.strip("[]")
            # Not `wait_for`: in Python 3.11 it loses a `stop` that comes just when the connection is made.
            async with asyncio.timeout(_CONNECT_LIMIT_S):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: MasterConnection(self, link), host, int(port), ssl=context,
                    server_hostname=None if context is None else host,
                )  # fmt: skip
        except (OSError, TimeoutError, ConfigError, ValueError, OverflowError) as error:
            # ValueError, OverflowError: a name server repeats what a master registered, which need not be an address.
            peer_lines.warning(
                logger, address, "event=master_unreachable address=%s reason=%r", address, str(error) or "timeout"
            )
            return
        self._connected(connection)
        peer_lines.info(logger, address, "event=following master=%s log_end=%d", address, self._log.end_offset)
        try:
            await connection.closed
        finally:
            self._connected(None)
            connection.close("the slave stops")

    def _connected(self, connection: MasterConnection | None) -> None:
        self.connection = connection
        self.links.connected(connection)
