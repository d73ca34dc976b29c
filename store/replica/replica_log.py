"""A replica's access to the log: it writes the master's bytes as they arrive.

A piece of the master's log may end within a record.  Its bytes go into the segment at once, but the log ends after the
last whole record.  Whole records are checked, enter the ConsumeQueues and become visible, like appended messages.

Source: RocketMQ 5.3.3, `DefaultMessageStore.appendToCommitLog`, `ReputMessageService`.  Unlike there, a record is
checked before it becomes part of the log, and a partial record is never part of it.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from sprocket.common.errors import CorruptRecord, DiskFailed, RestartNeeded, StoreError
from sprocket.common.failpoints import failpoint
from store.appender import Appender, Batch
from store.dispatch.record_intake import RecordIntake
from store.dispatch.redispatch import Redispatch
from store.flush.confirmation import NO_LIMIT, Confirmation
from store.log.commit_log import CommitLog
from store.log.log_scan import LogScan
from store.queue.consume_queue_table import ConsumeQueueTable
from store.record.record import TagsCodes
from store.scan.engine import chain
from store.scan.record_scan import UNFINISHED

_log = logging.getLogger(__name__)
# Pieces that are shorter on average are joined and written with one call; copying longer ones costs more than calls.
_JOINED_BYTES: Final = 16 * 1024
# Log whose positions are held at once.
_CHAIN_BYTES: Final = 64 * 1024 * 1024
_WRITTEN: Final = failpoint("replica_log.written")
_DISPATCHED: Final = failpoint("replica_log.dispatched")
_APPENDED: Final = failpoint("replica_log.appended")


class StoreReplicaLog:
    """The log of a replica, `ha.slave_link.ReplicaLog` of this store.  For the owner thread of the store.

    The store itself appends nothing meanwhile.  `check` raises the error of a failed store.  `intend_cut` copies the
    bytes after an offset aside, and records that the next start truncates the log there.
    """

    def __init__(
        self,
        log: CommitLog,
        table: ConsumeQueueTable,
        tags_codes: TagsCodes,
        confirmation: Confirmation,
        appender: Appender,
        check: Callable[[], None],
        intend_cut: Callable[[int, str], None],
    ) -> None:
        self._log = log
        self._table = table
        self._tags_codes = tags_codes
        self._intake = RecordIntake(log, table, tags_codes)
        self._confirmation = confirmation
        self._appender = appender
        self._check = check
        self._intend_cut = intend_cut
        self._is_cut = False
        # The log is a copy of the master's log: only the master decides what comes next.
        appender.refuse("messages are put to the slave: send them to the master of this broker's group")
        self.received_offset = log.wrote_offset  # where the next piece begins
        self._confirmed_to = NO_LIMIT  # consumers see the log up to here at most
        self._written_to = 0  # end of all received bytes that were written, also of those that were rejected

    def recover_tail(self) -> None:
        """Begin to recover a master's lost tail from a slave: appends are refused with another reason."""
        self._appender.refuse("the master waits for what a slave has of its log, see haTailRecoveryWait")

    def lead(self) -> None:
        """Become a master's log: the store appends from now on.

        Erase received bytes that did not become part of the log.  Otherwise an appended record might end where a record
        in these bytes begins, and the next recovery would accept that record.  A failure is latched.
        """
        try:
            self._log.erase_between(self._log.wrote_offset, self._written_to)
        except DiskFailed as error:
            self._confirmation.fail(error)
        self.confirmed(NO_LIMIT)
        self._appender.refuse("")

    @property
    def end_offset(self) -> int:
        """One past the last whole record."""
        return self._log.wrote_offset

    @property
    def min_offset(self) -> int:
        """Offset of the first byte that is kept."""
        return self._log.min_offset

    @property
    def flushed_offset(self) -> int:
        """End of the part of the log that is on the disk."""
        return self._confirmation.flushed_offset

    def confirmed(self, offset: int) -> None:
        """Let consumers see the log before `offset`, and what they saw before.

        With `NO_LIMIT`, as at the start, they see all of it.
        """
        if offset != self._confirmed_to:
            self._confirmed_to = offset
            self._confirmation.replicated(offset, NO_LIMIT, is_enough=False)

    def restart(self) -> int:
        """Discard a partial record after the end of a connection.  Return the offset where the master continues."""
        self.received_offset = self._log.wrote_offset
        return self.received_offset

    def piece_at(self, offset: int, max_bytes: int) -> memoryview | None:
        """Return at most `max_bytes` bytes of one segment from `offset` on, without a copy; None if there are none."""
        return self._log.piece_at(offset, max_bytes)

    def record_end(self, offset: int) -> int:
        """Return the end of the last record that ends at `offset` or before it; the log's begin if there is none.

        Sizes lead from one record to the next, from the segment's begin: all that a replica has was checked.
        """
        log = self._log
        end = log.segment_end(offset) - log.segment_bytes
        if offset <= log.min_offset or end == offset:
            # At the begin of a segment a record begins, or the log ends.
            return max(log.min_offset, end)
        records = log.slice_at(end, min(offset, log.wrote_offset) - end) or memoryview(b"")
        at = 0
        while (found := chain(records[at:], _CHAIN_BYTES)).stop:
            at += found.stop
        return end + at

    def cut(self, offset: int, reason: str) -> None:
        """Truncate the log at `offset`, the end of a record; the bytes after it are copied aside.

        Queues, index and positions depend on the log, so the next start truncates it.  Raises `RestartNeeded` once
        that is recorded on the disk, else `DiskFull` or `DiskFailed`.
        """
        self._check()
        end = self._log.wrote_offset
        self._intend_cut(offset, reason)
        self._is_cut = True
        raise RestartNeeded(f"the log ends at {end} and will be truncated at {offset}: {reason}")

    def append(self, from_offset: int, pieces: Sequence[memoryview]) -> None:
        """Append bytes that begin at `received_offset`, or at any segment's begin if the log is empty.

        Raises `StoreError` if `from_offset` is wrong, `CorruptRecord` if the bytes are not records, `DiskFull` or
        `DiskFailed`.  After an error the log ends where it ended before, and the master must send from there again.
        """
        self._check()
        if self._is_cut:
            raise RestartNeeded("the next start truncates the log; until then nothing can be appended")
        if not self.received_offset and not self._log.wrote_offset and from_offset:
            self._log.begin_at(from_offset)
            self._confirmation.begin(0)
            self.received_offset = from_offset
        if from_offset != self.received_offset:
            raise StoreError(f"a piece of the log begins at {from_offset}, expected is {self.received_offset}")
        before = self._log.wrote_offset
        try:
            self._take(from_offset, pieces)
        except StoreError as error:
            self.received_offset = before
            if isinstance(error, DiskFailed):
                self._confirmation.fail(error)
            raise

    def _take(self, from_offset: int, pieces: Sequence[memoryview]) -> None:
        log = self._log
        before, size_bytes = log.wrote_offset, sum(map(len, pieces))
        received = from_offset + size_bytes
        if len(pieces) > 1 and size_bytes < _JOINED_BYTES * len(pieces):
            pieces = [memoryview(b"".join(pieces))]
        self._written_to = max(self._written_to, received)
        parts = self._within_segments(from_offset, pieces)
        for start, content in parts:
            log.write_at(start, content)
        _WRITTEN()
        # The scan sees only bytes before `wrote_offset`.
        log.wrote_offset = received
        batch = Batch(self._confirmation.last_store_timestamp)
        dispatch = Redispatch(self._table, self._tags_codes, is_whole=True)
        try:
            batch.end_offset = self._dispatch(dispatch, batch, before, received, parts)
            batch.touched = dispatch.touched()
        except BaseException:
            dispatch.roll_back()
            log.wrote_offset = before
            raise
        _DISPATCHED()
        log.wrote_offset, self.received_offset = batch.end_offset, received
        batch.size_bytes = batch.end_offset - before
        if batch.size_bytes:
            self._confirmation.appended(batch)
            _APPENDED()

    def _within_segments(self, offset: int, pieces: Sequence[memoryview]) -> list[tuple[int, memoryview]]:
        """Return `pieces`, which begin at `offset`, cut at the ends of segments, each with its offset."""
        parts = []
        for piece in pieces:
            rest = piece
            while len(rest) > (room := self._log.segment_end(offset) - offset):
                parts.append((offset, rest[:room]))
                offset, rest = offset + room, rest[room:]
            parts.append((offset, rest))
            offset += len(rest)
        return parts

    def _dispatch(
        self, dispatch: Redispatch, batch: Batch, start: int, received: int, parts: list[tuple[int, memoryview]]
    ) -> int:
        """Put whole records from `start` on into the queues; return the end of the last one, blanks after it included.

        `parts` are the bytes that were written now, up to `received`.  Raises `CorruptRecord` if a record is damaged.
        """
        scan = LogScan(self._log, start, check_crc=True)
        end = self._dispatch_records(scan, dispatch, batch, parts)
        # Unfinished: the rest has not arrived yet.
        if scan.stop not in UNFINISHED:
            raise CorruptRecord(scan.end_offset, f"the master sent bytes that are not a record: {scan.reason}")
        # A blank counts once the whole segment has arrived.
        return scan.end_offset if scan.end_offset <= received else end

    def _dispatch_records(
        self, scan: LogScan, dispatch: Redispatch, batch: Batch, parts: list[tuple[int, memoryview]]
    ) -> int:
        """Do as `_dispatch`.

        Records are checked in the received bytes: those are in the processor's cache, and each page of a mapping costs
        a fault.  A record that is not whole in one of the parts is read from the log.
        """
        take, record_at = self._intake.take, self._log.record_at
        end = scan.end_offset
        for at, content in parts:
            part_end = at + len(content)
            while end < part_end:
                reached = take(dispatch, batch, end, content[end - at :]) if end >= at else end
                if reached == end and (whole := record_at(end)) is not None:
                    reached = take(dispatch, batch, end, whole)
                scan.end_offset = reached
                if reached == end:
                    record = scan.step()
                    if record is None:
                        return end
                    dispatch.add(record)
                    batch.store_timestamp = record.store_timestamp
                end = scan.end_offset
        return end
