"""The slave's connection to its master, made again whenever it ends.

Source: RocketMQ 5.3.3, `DefaultHAClient.run`.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, cast

from ha.slave_link import ReplicaLog, SlaveLink, SlaveRules
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, DiskFailed, ProtocolError, RestartNeeded, SprocketError, StoreError

logger = logging.getLogger(__name__)

# `DefaultHAClient.closeMasterAndWait`
_RETRY_S: Final = 5.0
_CONNECT_LIMIT_S: Final = 5.0
# What is taken at once: more costs less for each byte, but the loop serves nobody meanwhile.  It follows the time that
# it takes, between these bounds.
_LEAST_READ_BYTES: Final = 256 * 1024
_MOST_READ_BYTES: Final = 4 * 1024 * 1024
_SHORT_S: Final = 0.004
_LONG_S: Final = 0.010
NewLink = Callable[[str], Awaitable[SlaveLink | None]]


def _nothing(_: SlaveLink) -> None:
    """The default of `on_received`."""


def _in_clear() -> ssl.SSLContext | None:
    """The default of `new_context`."""
    return None


class MasterConnection(asyncio.BufferedProtocol):
    """One connection to the master.

    What comes is read into one buffer and taken from there at once.  While a slave is busy the kernel gathers more, so
    a read that catches up brings much and is taken in arrays, and one of a quiet master brings one record.
    """

    def __init__(self, follower: "Follower", link: SlaveLink) -> None:
        self._follower = follower
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = memoryview(bytearray(_MOST_READ_BYTES))
        self._read_bytes = min(4 * _LEAST_READ_BYTES, _MOST_READ_BYTES)
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
            # There is more: whoever reads from this slave comes first.
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
        self._follower.on_received(self.link)
        if is_full:
            self._adapt(self._follower.now() - began)

    def _adapt(self, seconds: float) -> None:
        """Read more or less at once, as a full read took `seconds`; one alone may have lost its processor."""
        least_s = min(seconds, self._took_s)
        if seconds < _SHORT_S:
            self._read_bytes = min(self._read_bytes * 3 // 2, _MOST_READ_BYTES)
        elif least_s > _LONG_S:
            self._read_bytes = max(self._read_bytes * 2 // 3, min(_LEAST_READ_BYTES, _MOST_READ_BYTES))
        self._took_s = seconds

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def acknowledge(self) -> None:
        """Report, if there is more to say than the last time."""
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
        """End the connection, at once."""
        if self._transport is not None and not self._transport.is_closing():
            logger.warning("event=master_connection_closed reason=%r", reason)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)


class Follower:
    """Follows a master, whose address may change or be unknown.  Lives in the event loop's thread.

    `on_failure` hears of what it cannot go on after, a failed disk above all; nothing is followed after that.
    `new_link` makes the slave's end of a connection to an address, or says None if it cannot be followed now.
    """

    def __init__(
        self,
        rules: SlaveRules,
        log: ReplicaLog,
        clock: Clock,
        on_failure: Callable[[SprocketError], None],
        *,
        retry_s: float = _RETRY_S,
        new_link: NewLink | None = None,
    ) -> None:
        self._rules = rules
        self.new_link: NewLink = new_link or self._plain_link
        # What the next connection is to be made with; None for one in clear.  Asked after the link is made.
        self.new_context: Callable[[], ssl.SSLContext | None] = _in_clear
        # Called after each read of what the master sent.
        self.on_received: Callable[[SlaveLink], None] = _nothing
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
        """Take changed intervals, also for the connection that is there."""
        self._rules = rules
        if self.connection is not None:
            self.connection.link.rules = rules

    @property
    def master_address(self) -> str:
        """``host:port`` of the master's HA port; empty while it is unknown."""
        return self._address

    def follow(self, address: str) -> None:
        """Follow the master at ``host:port``; the empty text for none.  A connection to another one ends."""
        if address == self._address:
            return
        logger.info("event=master_changed from=%s to=%s", self._address or "-", address or "-")
        self._address = address
        self._changed.set()
        if self.connection is not None:
            self.connection.close("another master")

    def start(self) -> None:
        """Begin to follow."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Follow no longer: nothing more is taken from the master."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if self.connection is not None:
            self.connection.close("the slave stops")

    def now(self) -> float:
        """Of the monotonic clock, seconds."""
        return self._clock.monotonic()

    def failed(self, error: SprocketError) -> None:
        """The disk has failed."""
        self._has_failed = True
        self._on_failure(error)

    async def _run(self) -> None:
        while not self._has_failed:
            self._changed.clear()
            if self._address:
                await self._follow_once(self._address)
            try:
                # Nothing to follow: until there is.  Else not at once, so that a master that refuses is not flooded.
                await asyncio.wait_for(self._changed.wait(), self._retry_s if self._address else None)
            except TimeoutError:
                continue

    async def _plain_link(self, _address: str) -> SlaveLink:
        return SlaveLink(self._rules, self._log, self.now())

    async def _follow_once(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        link = await self.new_link(address)
        if link is None or address != self._address:
            return
        try:
            context, host = self.new_context(), host.strip("[]")
            connecting = asyncio.get_running_loop().create_connection(
                lambda: MasterConnection(self, link), host, int(port), ssl=context,
                server_hostname=None if context is None else host,
            )  # fmt: skip
            _, connection = await asyncio.wait_for(connecting, _CONNECT_LIMIT_S)
        except (OSError, TimeoutError, ConfigError, ValueError, OverflowError) as error:
            # The last two: a name server tells what a master said of itself, which need not be an address.
            logger.warning("event=master_unreachable address=%s reason=%r", address, str(error) or "timeout")
            return
        self.connection = connection
        logger.info("event=following master=%s log_end=%d", address, self._log.end_offset)
        try:
            await connection.closed
        finally:
            self.connection = None
            connection.close("the slave stops")
