"""Recovery of the tail that a master lost in a power loss, from a slave that has it.

With SYNC_MASTER a message may be acknowledged that the slave has on disk and the master only in memory.  After an
unclean stop such a master accepts no messages until a slave has reported how far its log reaches.  If the master's
whole log is the beginning of the slave's, the master fetches the rest before it starts.  The wait is bounded: a master
whose slaves are lost as well starts without them.

Where consumers must not see what only one replica has, the master waits further until a slave has its whole log.

A master with an empty log may have lost its disk.  It fetches the slave's tables as well as its log, because without
topics no message can be read.  An empty slave does not end this wait, because another slave may have data.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Protocol

from sprocket.common.errors import ProtocolError

logger = logging.getLogger(__name__)

_PIECE_BYTES: Final = 1024 * 1024


class TailLog(Protocol):
    """A log that takes the bytes of another one, see `ha.slave_link.ReplicaLog`."""

    @property
    def end_offset(self) -> int: ...

    @property
    def received_offset(self) -> int: ...

    def restart(self) -> int: ...

    def append(self, from_offset: int, pieces: Sequence[memoryview], /) -> None: ...


class TailRecovery:
    """Recovery at one start of a master.  Without a `log` there is nothing to wait for.

    `on_done(reason)` is called once at the end.  One slave at a time sends its tail.  With `needs_copy` the recovery
    ends only when a slave has the whole log.  `on_empty_slave` is given if the master's log is empty: it is called for
    each slave whose log is empty as well, and the caller decides when to call `finish`.
    """

    def __init__(
        self,
        log: TailLog | None = None,
        on_done: Callable[[str], None] = lambda _: None,
        *,
        needs_copy: bool = False,
        on_empty_slave: Callable[[Hashable], None] | None = None,
    ) -> None:
        self._log = log
        self._on_done = on_done
        self._needs_copy = needs_copy
        self._sender: Hashable | None = None
        self._wanted_begin = self._wanted_end = 0
        self._began_at = log.end_offset if log is not None else 0
        self._on_empty_slave = on_empty_slave
        self._needs_tables = on_empty_slave is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the master still waits for a slave's tail."""
        return self._log is not None

    @property
    def is_fetching(self) -> bool:
        """Whether a slave is sending its tail.  A slave that stalls is disconnected, and another one may send."""
        return self._sender is not None

    @property
    def needs_tables(self) -> bool:
        """Whether the master has fetched a log but not yet its tables; meanwhile it must send no tables."""
        return self._log is not None and self._needs_tables and self._log.end_offset > 0

    def may_send_tables(self, slave: Hashable) -> bool:
        """Return whether `slave` is to send its tables; if so, no other slave may."""
        if not self.needs_tables or self._sender not in (None, slave):
            return False
        self._sender = slave
        return True

    def tables_installed(self) -> None:
        """End the recovery: the slave's tables are installed."""
        self._needs_tables = False
        self.finish("a slave sent its log and its tables")

    def begin(self, slave: Hashable, slave_begin: int, slave_end: int) -> bool:
        """Return whether `slave`, whose log continues the master's up to `slave_end`, is to send that tail.

        An empty master fetches everything that the slave keeps, from `slave_begin` on.
        """
        if self._log is None or self._sender not in (None, slave):
            return False
        self._sender, self._wanted_begin, self._wanted_end = slave, slave_begin, slave_end
        self._log.restart()
        logger.warning("event=tail_recovery from=%d to=%d", self._log.end_offset, slave_end)
        return True

    def wanted(self, slave: Hashable) -> tuple[int, int] | None:
        """Return (offset, bytes) that `slave` is to send next, or None once it has sent everything.

        In that case the recovery ends, unless tables are needed.
        """
        log = self._log
        if log is None or self._sender != slave:
            return None
        offset = log.received_offset or self._wanted_begin
        missing = self._wanted_end - offset
        if missing > 0:
            return offset, min(_PIECE_BYTES, missing)
        if not self.needs_tables:
            self.finish(f"a slave sent {log.end_offset - self._began_at} bytes")
        return None

    def take(self, slave: Hashable, offset: int, content: memoryview) -> None:
        """Take bytes from a slave.  Raises ProtocolError for bytes not requested, and StoreError for a bad record."""
        wanted = self.wanted(slave)
        if self._log is None or wanted is None or offset != wanted[0] or not 0 < len(content) <= wanted[1]:
            raise ProtocolError("ha_tail", f"a slave sends {len(content)} bytes at {offset} that were not requested")
        self._log.append(offset, [content])

    def compared(self, slave: Hashable, acked_offset: int, name: Hashable = None) -> None:
        """Note that a slave's log has nothing beyond the master's, and everything before `acked_offset`.

        `name` identifies the slave after it has disconnected.
        """
        log = self._log
        if log is None or self._sender not in (None, slave):
            return
        if self._on_empty_slave is not None and not log.end_offset:
            self._on_empty_slave(name)
            return
        if not self._needs_copy or acked_offset >= log.end_offset:
            self.finish("no slave has more")

    def left(self, slave: Hashable) -> None:
        """Forget a slave that disconnected."""
        if self._log is not None and self._sender == slave:
            self._sender = None
            self._log.restart()

    def finish(self, reason: str) -> None:
        """End the recovery."""
        log, self._log, self._sender = self._log, None, None
        if log is not None:
            log.restart()
            level = logging.WARNING if log.end_offset else logging.INFO
            logger.log(
                level, "event=tail_recovery_ended from=%d to=%d reason=%r", self._began_at, log.end_offset, reason
            )
            self._on_done(reason)
