"""Brings log and ConsumeQueues into agreement when the store starts.

Recovery is total: whatever a crash left, the log ends behind its last valid record with zeros behind it,
and each ConsumeQueue says exactly what the log says.  It verifies by offset: an entry counts if the
record it points to is there and says the same topic, queue and queue offset.

How far to trust comes from the last run: after a clean stop everything is on the disk; after a crash the
checkpoint names the offset up to which log and queues are.  Entries beyond that are dropped and made
anew by walking the log.  If the walk meets a queue that lacks older entries, all queues are rebuilt.

Source of the cases: RocketMQ 5.3.3, `CommitLog.recoverNormally`, `recoverAbnormally`,
`ConsumeQueue.recover`, `correctMinOffset`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sprocket.common.failpoints import failpoint
from store.checkpoint import Checkpoint
from store.chunk_scan import ChunkScan
from store.commit_log import CommitLog, LogScan
from store.consume_queue import BLANK_SIZE
from store.consume_queue_table import ConsumeQueueTable
from store.logic_queue import LogicQueue
from store.record import MIN_RECORD_BYTES, Record, TagsCodes, decode
from store.redispatch import QueueIncomplete, Redispatch

_log = logging.getLogger(__name__)
# Damaged newest records that are stepped over one by one before everything is walked.
_TRIES: Final = 8
_VERIFIED: Final = failpoint("recovery.verified")
_WALKED: Final = failpoint("recovery.walked")
_QUEUES_DESTROYED: Final = failpoint("recovery.queues_destroyed")
_BEFORE_CUT: Final = failpoint("recovery.before_cut")
_CUT: Final = failpoint("recovery.cut")
_SYNCED: Final = failpoint("recovery.synced")


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found; `reason` says why the walk stopped at `end_offset`."""

    start_offset: int
    end_offset: int
    records: int
    reason: str
    rebuilt: bool
    last_store_timestamp: int


class Recovery:
    """One recovery.

    The log is walked in arrays.  With `by_record` it is walked record by record: slow, simple, and the reference
    that the fast walk is tested and measured against.
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
    ) -> None:
        self._log = log
        self._table = table
        self._checkpoint = checkpoint
        self._tags_codes = tags_codes
        self._check_crc = check_crc
        self._by_record = by_record

    def run(self, *, clean: bool, usable: bool) -> RecoveryReport:
        """Recover.  `usable` is False when queues were removed because their files could not be used.

        Raises `DiskFull` or `DiskFailed` if the disk does not let us.
        """
        if self._log.wrote_offset == self._log.min_offset:
            # As RocketMQ: without a log the queues mean nothing.
            self._table.destroy()
            return RecoveryReport(0, self._log.wrote_offset, 0, "no log", False, 0)
        bound = self._log.wrote_offset if clean else self._trusted_offset()
        rebuilt = not usable
        if usable:
            try:
                report = self._walk_from_good(bound, clean)
            except QueueIncomplete as error:
                _log.warning("action=rebuild-all reason=%r", str(error))
                rebuilt = True
        if rebuilt:
            self._table.destroy()
            _QUEUES_DESTROYED()
            report = self._walk(self._log.min_offset, clean)
        report.rebuilt = rebuilt
        self._cut_log(report)
        return report

    def _trusted_offset(self) -> int:
        """Offset before which log and queues are on the disk."""
        log, checkpoint = self._log, self._checkpoint
        if checkpoint.confirm_phy_offset > 0:
            return checkpoint.confirm_phy_offset
        # A store whose last writer names no offset: its times, as RocketMQ does, by whole segments.
        trusted = offset = log.min_offset
        while offset < log.wrote_offset:
            timestamp = log.store_time_at(offset, MIN_RECORD_BYTES)
            if not 0 < timestamp <= checkpoint.min_timestamp():
                break
            trusted = offset
            offset += log.segment_bytes
        return trusted

    def _walk_from_good(self, bound: int, clean: bool) -> RecoveryReport:
        for _ in range(_TRIES):
            report = self._walk(bound, clean)
            if report.records or report.start_offset == self._log.min_offset:
                return report
            # The newest entry points to a record that is damaged: drop the entry and begin before it.
            bound = report.start_offset
        raise QueueIncomplete(f"no valid record near physical offset {bound}")

    def _walk(self, bound: int, clean: bool) -> RecoveryReport:
        start = self._log.min_offset
        for queue in self._table:
            last = self._verify_queue(queue, bound, clean)
            start = max(start, last)
        _VERIFIED()
        redispatch = Redispatch(self._table, self._tags_codes, is_whole=start == self._log.min_offset)
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

    def _verify_queue(self, queue: LogicQueue, bound: int, clean: bool) -> int:
        """Keep the entries that hold; return where the record of the last one begins, -1 without one."""
        first = queue.first_unit
        end = first_false(first, queue.capacity_unit, lambda unit: self._holds(queue, unit, bound))
        start = first_false(first, end, lambda unit: self._is_gone(queue, unit))
        behind = queue.unit(end)
        queue.set_range(start, end, cut=not clean or (behind is not None and behind != (0, 0, 0)))
        last = queue.unit(end - 1) if end > start else None
        return -1 if last is None else last[0]

    def _holds(self, queue: LogicQueue, unit: int, bound: int) -> bool:
        """Whether a unit is one to keep: true for a prefix of the units, false behind it."""
        entry = queue.unit(unit)
        if entry is None:
            return False
        physical_offset, size, _ = entry
        if self._is_gone(queue, unit):
            return True
        if size < MIN_RECORD_BYTES or physical_offset >= bound:
            return False
        view = self._log.slice_at(physical_offset, size)
        record = None if view is None else decode(view, check_crc=False)
        return (
            isinstance(record, Record)
            and record.physical_offset == physical_offset
            and queue.agrees(unit, record)
            and record.queue_id == queue.queue_id
            and record.topic == queue.topic
        )

    def _is_gone(self, queue: LogicQueue, unit: int) -> bool:
        """Whether a unit stands for a record that the log no longer holds."""
        entry = queue.unit(unit)
        if entry is None or entry[1] <= 0 or entry[0] < 0:
            return False
        return entry[1] == BLANK_SIZE or entry[0] < self._log.min_offset

    def _cut_log(self, report: RecoveryReport) -> None:
        log = self._log
        wrote = log.wrote_offset
        # Always, also after a clean stop: what lies behind may be a record torn at its front.
        _BEFORE_CUT()
        log.cut(report.end_offset)
        _CUT()
        # A killed process leaves records in the page cache that no sync has covered yet.
        for file in log.files_between(report.start_offset, report.end_offset):
            file.sync()
        _SYNCED()
        _log.info("log_end=%d was=%d reason=%r", report.end_offset, wrote, report.reason)


def first_false(start: int, end: int, holds: Callable[[int], bool]) -> int:
    """First number of ``[start, end)`` for which `holds` is false, `end` if none; before it all are true."""
    # Steps that double first: most queues are nearly empty, and each probe far behind their last entry would make
    # the system fetch pages of a hole.
    origin, probe = start, start
    while probe < end and holds(probe):
        start = probe + 1
        probe += probe - origin + 1
    end = min(end, probe)
    while start < end:
        middle = (start + end) // 2
        if holds(middle):
            start = middle + 1
        else:
            end = middle
    return start
