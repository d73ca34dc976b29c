"""The log as a replica fills it: with the master's bytes, as they come.

A piece of the master's log may end in the middle of a record.  The bytes go into the segment at once; the log ends
behind the last whole record, and what lies there is checked, enters the ConsumeQueues and is shown like what is sent.
Source: RocketMQ 5.3.3, `DefaultMessageStore.appendToCommitLog`, `ReputMessageService`; unlike there a record is
checked before it counts, and nothing of a record that is not whole is part of the log.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from sprocket.common.errors import CorruptRecord, DiskFailed, RestartNeeded, StoreError
from sprocket.common.failpoints import failpoint
from store.appender import Appender, Batch
from store.dispatch.record_intake import RecordIntake
from store.dispatch.redispatch import Redispatch
from store.flush.confirmation import Confirmation
from store.log.chunk_scan import ChunkScan
from store.log.commit_log import CommitLog, LogScan
from store.queue.consume_queue_table import ConsumeQueueTable
from store.record.record import Record, TagsCodes

_log = logging.getLogger(__name__)
# Pieces that are shorter on the average are written with one call; to copy longer ones costs more than calls.
_JOINED_BYTES: Final = 16 * 1024
# Why a walk over what a master has sent may stop: the rest has not come yet.
_UNFINISHED: Final = frozenset({"record leaves the log", "no room for a blank", "end of the last segment"})
_WRITTEN: Final = failpoint("replica_log.written")
_DISPATCHED: Final = failpoint("replica_log.dispatched")
_APPENDED: Final = failpoint("replica_log.appended")


class StoreReplicaLog:
    """Takes pieces of the master's log.  Lives in the owner thread of its store, which appends nothing itself.

    `check` raises what a store that has failed raises.  `intend_cut` keeps aside what lies behind an offset and lets
    the next start end the log there.
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
        # The log is a copy of a master's, which alone decides what comes next.
        appender.refusal = "messages are put to the slave: send them to the master of this broker's group"
        self.received_offset = log.wrote_offset  # where the next piece begins
        self._written_to = 0  # bytes that came were written up to here, whatever became of them

    def recover_tail(self) -> None:
        """This is the master's log, and takes from a slave what it lost."""
        self._appender.refusal = "the master waits for what a slave has of its log, see haTailRecoveryWait"

    def lead(self) -> None:
        """The store appends itself from now on.

        What came and did not become part of the log goes: a record of its own may end where one of that begins, and
        the next recovery would take it for the next.  A failure is latched.
        """
        try:
            self._log.erase_between(self._log.wrote_offset, self._written_to)
        except DiskFailed as error:
            self._confirmation.fail(error)
        self._appender.refusal = ""

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
        """What of it is on the disk."""
        return self._confirmation.flushed_offset

    def restart(self) -> int:
        """Forget a record that has not come whole: the connection has ended.  Where the master is to go on."""
        self.received_offset = self._log.wrote_offset
        return self.received_offset

    def piece_at(self, offset: int, max_bytes: int) -> memoryview | None:
        """At most so many bytes from `offset` on, of one segment, without copying; None if there are none."""
        return self._log.piece_at(offset, max_bytes)

    def record_end(self, offset: int) -> int:
        """The end of the last record that ends at `offset` or before it; the log's begin if there is none.

        Walks the segment in which it lies.
        """
        log = self._log
        end = log.segment_end(offset) - log.segment_bytes
        if offset <= log.min_offset or end == offset:
            # A segment begins with a record, or is the log's end.
            return max(log.min_offset, end)
        for found in ChunkScan(log, end, check_crc=False):
            stop = found.physical_offset + found.size_bytes if isinstance(found, Record) else found.end_offset
            if stop > offset:
                break
            end = stop
        scan = LogScan(log, end, check_crc=False)
        while scan.step() is not None and scan.end_offset <= offset:
            end = scan.end_offset
        return end

    def cut(self, offset: int, reason: str) -> None:
        """End the log at `offset`, the end of a record; what lies behind it is kept aside.

        Queues, index and positions follow from the log, so it is the next start that cuts: raises `RestartNeeded` once
        that is sure to happen, or `DiskFull` or `DiskFailed`.
        """
        self._check()
        end = self._log.wrote_offset
        self._intend_cut(offset, reason)
        self._is_cut = True
        raise RestartNeeded(f"the log ends at {end} and is to end at {offset}: {reason}")

    def append(self, from_offset: int, pieces: Sequence[memoryview]) -> None:
        """Take bytes that begin at `received_offset`, or at any segment's begin if the log is empty.

        Raises `StoreError` for a piece that does not follow, `CorruptRecord` for what is no record, `DiskFull` or
        `DiskFailed`; the log ends where it ended before, and the master has to begin there again.
        """
        self._check()
        if self._is_cut:
            raise RestartNeeded("the log is to be cut off, nothing may be appended")
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
        before, received = log.wrote_offset, from_offset
        received += sum(map(len, pieces))
        if received - from_offset < _JOINED_BYTES * len(pieces):
            pieces = [memoryview(b"".join(pieces))]
        at, self._written_to = from_offset, max(self._written_to, received)
        for piece in pieces:
            for start, content in self._within_segments(at, piece):
                log.write_at(start, content)
            at += len(piece)
        _WRITTEN()
        # The walk sees what the log says that it holds.
        log.wrote_offset = received
        batch = Batch(self._confirmation.last_store_timestamp)
        dispatch = Redispatch(self._table, self._tags_codes, is_whole=True)
        try:
            batch.end_offset = self._dispatch(dispatch, batch, before, received)
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

    def _within_segments(self, offset: int, content: memoryview) -> list[tuple[int, memoryview]]:
        room = self._log.segment_end(offset) - offset
        if len(content) <= room:
            return [(offset, content)]
        return [(offset, content[:room]), *self._within_segments(offset + room, content[room:])]

    def _dispatch(self, dispatch: Redispatch, batch: Batch, start: int, received: int) -> int:
        """Let whole records from `start` on enter the queues; the end of the last, blanks behind it included."""
        scan: LogScan | ChunkScan
        if self._intake.are_few(start, received):
            scan = few = LogScan(self._log, start, check_crc=True)
            end = self._dispatch_few(few, dispatch, batch, received)
        else:
            scan = many = ChunkScan(self._log, start, check_crc=True, first_walk_bytes=received - start)
            end = self._dispatch_many(many, dispatch, batch)
        if scan.reason not in _UNFINISHED:
            raise CorruptRecord(scan.end_offset, f"what the master sent is no record: {scan.reason}")
        # A blank counts once all of its segment is there.
        return scan.end_offset if scan.end_offset <= received else end

    def _dispatch_few(self, scan: LogScan, dispatch: Redispatch, batch: Batch, received: int) -> int:
        end = scan.end_offset
        while True:
            taken = self._intake.take(dispatch, batch, scan.end_offset, received)
            if taken > scan.end_offset:
                scan.end_offset = end = taken
            record = scan.step()
            if record is None:
                return end
            dispatch.add(record)
            end = scan.end_offset
            batch.store_timestamp = record.store_timestamp

    @staticmethod
    def _dispatch_many(scan: ChunkScan, dispatch: Redispatch, batch: Batch) -> int:
        end = scan.end_offset
        for found in scan:
            if isinstance(found, Record):
                dispatch.add(found)
                end = found.physical_offset + found.size_bytes
                batch.store_timestamp = found.store_timestamp
            else:
                dispatch.add_batch(found)
                end = found.end_offset
                batch.store_timestamp = found.store_timestamp(len(found) - 1)
        return end
