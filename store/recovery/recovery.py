"""Recovery: makes log and ConsumeQueues agree when the store starts.

Recovery is total: for any content of the files it either succeeds or refuses.  After success the log holds all that was
promised, ends after its last valid record, and has only zeros after that; the ConsumeQueues say exactly what the log
says.  A refusal names file, offset and reason.

The last run's notes tell how much to trust.  The list of queues (`QueueList`) says up to which offset log and queues
are on the disk, and how long each queue was.  Recovery drops the units after that, walks the log from that offset, and
makes the entries again.  If a queue lacks units that the list names, all queues are rebuilt from the whole log.  A
store of RocketMQ has no list.  After a crash the checkpoint then says how much to trust, and an entry is kept if its
record exists and names the same topic, queue and queue offset.

Recovery refuses damage before the promised offset.  Damage after it ends the log.  What is cut off is copied to a
folder if it contains whole records (`store.recovery.cut_aside`).

Source of the cases: RocketMQ 5.3.3, `CommitLog.recoverNormally`, `recoverAbnormally`, `ConsumeQueue.recover`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.pause_gc import pause_gc
from sprocket.remoting.message.record import MIN_RECORD_BYTES
from store.dispatch.deleted_topics import DeletedTopics
from store.dispatch.redispatch import QueueIncomplete, Redispatch
from store.flush.checkpoint import Checkpoint
from store.flush.queue_list import QueueList
from store.layout import file_name
from store.log.commit_log import CommitLog
from store.log.log_scan import ChunkScan, LogScan
from store.queue.consume_queue_table import ConsumeQueueTable
from store.record.record import Record, TagsCodes, decode
from store.recovery.queue_check import QueueCheck, restore_expired

_log = logging.getLogger(__name__)
# Damaged newest records to step over one by one before all queues are rebuilt.
_TRIES: Final = 8
_VERIFIED: Final = failpoint("recovery.verified")
_WALKED: Final = failpoint("recovery.walked")
_QUEUES_DESTROYED: Final = failpoint("recovery.queues_destroyed")
_BEFORE_CUT: Final = failpoint("recovery.before_cut")
_CUT: Final = failpoint("recovery.cut")
_SYNCED: Final = failpoint("recovery.synced")


@dataclass(slots=True)
class RecoveryReport:
    """Result of a recovery.  `reason` says why the walk stopped at `end_offset`."""

    start_offset: int
    end_offset: int
    records: int
    reason: str
    rebuilt: bool
    last_store_timestamp: int
    was_clean: bool = True  # the last run was shut down cleanly


@dataclass(slots=True)
class Evidence:
    """Notes of the last run besides log, queues and checkpoint.

    A sync of the log covered everything before `flushed_offset`.  Recovery calls `note_rebuild` before it removes all
    queues.  `end_log` cuts the log at an offset, for a reason.  `has_content_after` says whether anything but zeros
    lies after an offset of the log.
    """

    queue_list: QueueList | None
    flushed_offset: int
    deleted: DeletedTopics | None
    note_rebuild: Callable[[], None]
    end_log: Callable[[int, str], object]
    has_content_after: Callable[[int], bool]


class Recovery:
    """One recovery of a store.

    It scans the log in batches.  With `by_record` it walks record by record: slow and simple, the reference for tests
    and benchmarks of the fast walk.  Without `evidence` it recovers as for a store that RocketMQ wrote.
    """

    def __init__(
        self,
        log: CommitLog,
        table: ConsumeQueueTable,
        checkpoint: Checkpoint,
        tags_codes: TagsCodes,
        check_crc: bool,
        *,
        by_record: bool = False,
        evidence: Evidence | None = None,
    ) -> None:
        self._log = log
        self._table = table
        self._checkpoint = checkpoint
        self._tags_codes = tags_codes
        self._check_crc = check_crc
        self._by_record = by_record
        self._evidence = evidence or Evidence(
            None, 0, None, lambda: None, lambda end, reason: log.cut(end), lambda _: True
        )
        self._listed = self._evidence.queue_list
        self._deleted = self._evidence.deleted

    def run(self, *, clean: bool, usable: bool) -> RecoveryReport:
        """Recover.  `usable` is False if queues were removed because their files were not usable.

        Raises `StoreError` naming file and offset if the log lacks what was promised, and `DiskFull` or `DiskFailed`.
        """
        log, listed = self._log, self._listed
        promised = self._promised_offset()
        if promised > log.wrote_offset:
            raise self._refusal(log.wrote_offset, "the segment is missing", promised)
        if log.wrote_offset == log.min_offset:
            # As in RocketMQ: without a log the queues have no meaning.
            self._table.destroy()
            if log.detached:
                self._evidence.end_log(log.wrote_offset, "no log")
            return RecoveryReport(0, log.wrote_offset, 0, "no log", False, 0)
        report = None
        if usable and not (listed is not None and listed.must_rebuild):
            try:
                report = self._walk_from_list(listed, clean) if listed else self._walk_from_queues(clean)
            except QueueIncomplete as error:
                _log.warning("event=all_queues_rebuild reason=%r", str(error))
        if report is None:
            report = self._rebuild()
        self._check_end(report, promised)
        self._end_log(report)
        return report

    # How far to trust

    def _promised_offset(self) -> int:
        """Return the offset before which the log was on the disk according to all notes."""
        listed, checkpoint = self._listed, self._checkpoint
        if listed is not None and listed.log_offset:
            promised = listed.log_offset
        else:
            promised = checkpoint.confirm_phy_offset if checkpoint.confirm_phy_offset <= self._log.wrote_offset else 0
        return max(promised, self._evidence.flushed_offset)

    def _trusted_offset(self) -> int:
        """Return the offset before which log and queues survive a crash, for a store without a list of queues."""
        log, checkpoint = self._log, self._checkpoint
        if checkpoint.confirm_phy_offset > 0:
            return checkpoint.confirm_phy_offset
        # The last writer noted no offset.  Use its times by whole segments, as RocketMQ does.
        trusted = offset = log.min_offset
        while offset < log.wrote_offset:
            timestamp = log.store_time_at(offset, MIN_RECORD_BYTES)
            if not 0 < timestamp <= checkpoint.min_timestamp():
                break
            trusted = offset
            offset += log.segment_bytes
        return trusted

    def _check_end(self, report: RecoveryReport, promised: int) -> None:
        if report.end_offset >= promised:
            return
        is_listed = self._listed is not None and self._listed.log_offset > 0
        is_written_down = is_listed or self._evidence.flushed_offset > report.end_offset
        if not is_written_down and not self._evidence.has_content_after(report.end_offset):
            # Nothing was lost: the log never reached that offset.
            _log.warning(
                "event=checkpoint_not_trusted confirm=%d log_end=%d reason=from_the_future", promised, report.end_offset
            )
            return
        raise self._refusal(report.end_offset, report.reason, promised)

    def _refusal(self, offset: int, reason: str, promised: int) -> StoreError:
        log = self._log
        path = log.directory / file_name(offset - offset % log.segment_bytes)
        return StoreError(
            f"{path}: physical offset {offset}: {reason}; but the log was on the disk up to {promised}. The log was not"
            " changed. `sprocket store check DIR` says what is wrong; `sprocket store repair DIR` says what a repair"
            " would lose. A replica or a backup may still have the records"
        )

    # Walking

    def _walk_from_list(self, listed: QueueList, clean: bool) -> RecoveryReport:
        check = QueueCheck(self._log, self._table)
        with pause_gc():
            check.keep_listed(listed, self._deleted, clean=clean)
        _VERIFIED()
        if check.newest is not None:
            self._check_newest(*check.newest, listed.log_offset)
        report = self._walk(max(listed.log_offset, self._log.min_offset))
        if check.claimed_offset > report.end_offset:
            # Otherwise entries would point after the log's end, where later records will be written.
            raise self._refusal(report.end_offset, report.reason, check.claimed_offset)
        return report

    def _check_newest(self, physical_offset: int, size: int, promised: int) -> None:
        """Check the newest record: the walk starts after it.  Raises `StoreError`."""
        view = self._log.slice_at(physical_offset, size)
        record = "not in the log" if view is None else decode(view, check_crc=self._check_crc)
        if isinstance(record, str):
            raise self._refusal(physical_offset, record, promised)

    def _walk_from_queues(self, clean: bool) -> RecoveryReport:
        bound = self._log.wrote_offset if clean else self._trusted_offset()
        for _ in range(_TRIES):
            check = QueueCheck(self._log, self._table)
            start = check.keep_holding(bound, clean=clean)
            _VERIFIED()
            report = self._walk(start)
            if check.claimed_offset > report.end_offset:
                raise self._refusal(report.end_offset, report.reason, check.claimed_offset)
            if report.records or report.start_offset == self._log.min_offset:
                return report
            # The newest entry points to a damaged record.  Drop the entry and start before it.
            bound = report.start_offset
        raise QueueIncomplete(f"no valid record near physical offset {bound}")

    def _rebuild(self) -> RecoveryReport:
        self._evidence.note_rebuild()
        self._table.destroy()
        _QUEUES_DESTROYED()
        report = self._walk(self._log.min_offset)
        report.rebuilt = True
        if self._listed is not None:
            restore_expired(self._table, self._listed, self._deleted)
        return report

    def _walk(self, start: int) -> RecoveryReport:
        is_whole = start == self._log.min_offset
        redispatch = Redispatch(self._table, self._tags_codes, self._deleted, is_whole=is_whole)
        scan = (LogScan if self._by_record else ChunkScan)(self._log, start, check_crc=self._check_crc)
        records = last_store_timestamp = 0
        for found in scan:
            if isinstance(found, Record):
                records += 1
                last_store_timestamp = found.store_timestamp
                redispatch.add(found)
            else:
                records += len(found)
                last_store_timestamp = found.store_timestamp(-1)
                redispatch.add_batch(found)
        redispatch.finish()
        _WALKED()
        return RecoveryReport(start, scan.end_offset, records, scan.reason, False, last_store_timestamp)

    def _end_log(self, report: RecoveryReport) -> None:
        log = self._log
        wrote = log.wrote_offset
        _BEFORE_CUT()
        self._evidence.end_log(report.end_offset, report.reason)
        _CUT()
        # A killed process leaves unsynced records in the page cache.
        for file in log.files_between(report.start_offset, report.end_offset):
            file.sync()
        _SYNCED()
        _log.info("event=log_end_found log_end=%d was=%d reason=%r", report.end_offset, wrote, report.reason)
