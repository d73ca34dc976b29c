"""A master takes back from a slave what its own log lost in a loss of power.

In SYNC_MASTER a message may be acknowledged that the slave has on its disk and the master had in memory alone.  After
a stop that was not clean such a master takes no messages until a slave has told how far its log reaches: if all of the
master's log is the beginning of the slave's, the rest is fetched, and only then the master begins.  The wait is
bounded: a master whose slaves are gone as well begins without them.

Where consumers are to see nothing that one replica alone has, it waits on until a slave has all that it found in its
own log as well.

A master whose log is empty may have lost its disk.  It takes the slave's tables as well as the log: without topics no
message can be read.  A slave that has nothing either does not end the wait by itself, as another one may have all.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Protocol

from sprocket.common.errors import ProtocolError

logger = logging.getLogger(__name__)

_PIECE_BYTES: Final = 1024 * 1024


class TailLog(Protocol):
    """A log that takes bytes of another one, see `ha.slave_link.ReplicaLog`."""

    @property
    def end_offset(self) -> int: ...

    @property
    def received_offset(self) -> int: ...

    def restart(self) -> int: ...

    def append(self, from_offset: int, pieces: Sequence[memoryview], /) -> None: ...


class TailRecovery:
    """One start of a master.  Without a `log` there is nothing to wait for.

    `on_done(reason)` is called once when it is over.  One slave at a time gives.  With `needs_copy` it is not over
    before a slave has all of the log.  With `on_empty_slave` the log is empty: called for each slave whose log is empty
    as well, and the caller decides when to `finish`.
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
        self._giver: Hashable | None = None
        self._wanted_begin = self._wanted_end = 0
        self._began_at = log.end_offset if log is not None else 0
        self._on_empty_slave = on_empty_slave
        self._needs_tables = on_empty_slave is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the master still waits for what a slave may have."""
        return self._log is not None

    @property
    def is_fetching(self) -> bool:
        """Whether a slave is giving; one that stands still is disconnected, and is then forgotten."""
        return self._giver is not None

    @property
    def needs_tables(self) -> bool:
        """Whether the master got a log that its tables do not fit yet; no slave may be sent tables meanwhile."""
        return self._log is not None and self._needs_tables and self._log.end_offset > 0

    def may_give_tables(self, slave: Hashable) -> bool:
        """Whether `slave` is to give its tables; then it is the giver."""
        if not self.needs_tables or self._giver not in (None, slave):
            return False
        self._giver = slave
        return True

    def tables_taken(self) -> None:
        """The tables of the giver are in place: it is over."""
        self._needs_tables = False
        self.finish("a slave gave its log and its tables")

    def begin(self, slave: Hashable, slave_begin: int, slave_end: int) -> bool:
        """A slave's log goes on behind the master's, up to `slave_end`: whether it is to give that.

        A master that has nothing left takes all that the slave keeps, from `slave_begin` on.
        """
        if self._log is None or self._giver not in (None, slave):
            return False
        self._giver, self._wanted_begin, self._wanted_end = slave, slave_begin, slave_end
        self._log.restart()
        logger.warning("event=tail_recovery from=%d to=%d", self._log.end_offset, slave_end)
        return True

    def wanted(self, slave: Hashable) -> tuple[int, int] | None:
        """(offset, bytes) that `slave` is to send next; None once all is there: it is over unless tables are needed."""
        log = self._log
        if log is None or self._giver != slave:
            return None
        offset = log.received_offset or self._wanted_begin
        missing = self._wanted_end - offset
        if missing > 0:
            return offset, min(_PIECE_BYTES, missing)
        if not self.needs_tables:
            self.finish(f"a slave gave {log.end_offset - self._began_at} bytes")
        return None

    def take(self, slave: Hashable, offset: int, content: memoryview) -> None:
        """What a slave sends.  Raises ProtocolError for what was not wanted, `StoreError` for what is no record."""
        wanted = self.wanted(slave)
        if self._log is None or wanted is None or offset != wanted[0] or not 0 < len(content) <= wanted[1]:
            raise ProtocolError("ha_tail", f"a slave gives {len(content)} bytes at {offset}, which nobody wanted")
        self._log.append(offset, [content])

    def compared(self, slave: Hashable, acked_offset: int, name: Hashable = None) -> None:
        """A slave's log has nothing that the master's lacks, and all of it before `acked_offset`.

        `name` tells the slave from others after it has left.
        """
        log = self._log
        if log is None or self._giver not in (None, slave):
            return
        if self._on_empty_slave is not None and not log.end_offset:
            self._on_empty_slave(name)
            return
        if not self._needs_copy or acked_offset >= log.end_offset:
            self.finish("a slave has no more")

    def left(self, slave: Hashable) -> None:
        """A slave is gone."""
        if self._log is not None and self._giver == slave:
            self._giver = None
            self._log.restart()

    def finish(self, reason: str) -> None:
        """It is over."""
        log, self._log, self._giver = self._log, None, None
        if log is not None:
            log.restart()
            level = logging.WARNING if log.end_offset else logging.INFO
            logger.log(
                level, "event=tail_recovery_ended from=%d to=%d reason=%r", self._began_at, log.end_offset, reason
            )
            self._on_done(reason)
