"""Notes that a run leaves for the next one: how it ended, and how much of log and queues is on the disk.

The notes are files in the store's root.  RocketMQ knows ``abort`` and ``checkpoint``.  It ignores Sprocket's own
``queuelist``, ``flushed``, ``deletedtopics`` and ``truncate``.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from store.config.store_config import StoreConfig
from store.disk.disk import Disk
from store.dispatch.deleted_topics import DeletedTopics
from store.flush.checkpoint import Checkpoint, load_checkpoint
from store.flush.queue_list import QueueKey, QueueList, QueueListFile
from store.log.commit_log import CommitLog
from store.queue.consume_queue_table import ConsumeQueueTable
from store.record.record import TagsCodes
from store.recovery.flushed_mark import FlushedMark
from store.recovery.recovery import Evidence, Recovery, RecoveryReport
from store.recovery.truncation import Truncation

_log = logging.getLogger(__name__)
_FILES_LOADED: Final = failpoint("bookkeeping.files_loaded")
_ABORT_WRITTEN: Final = failpoint("bookkeeping.abort_written")
_LIST_WRITTEN: Final = failpoint("bookkeeping.list_written")


class Bookkeeping:
    """Notes of one store."""

    def __init__(self, config: StoreConfig, clock: Clock, disk: Disk, log: CommitLog, table: ConsumeQueueTable) -> None:
        root = config.store_path_root_dir
        self._root = root
        self._clock = clock
        self._disk = disk
        self._log = log
        self._table = table
        self._abort = root / "abort"
        self._checkpoint = root / "checkpoint"
        self._list_file = QueueListFile(disk, root)
        self._mark = FlushedMark(disk, root)
        self.deleted = DeletedTopics(disk, root)
        self._deleted_lock = threading.Lock()
        self._truncation = Truncation(disk, root, log)
        # Store timestamp, ms, of the newest message that the last run had stored.
        self.store_timestamp = 0
        # End timestamp, ms, of the newest index file that was full and on the disk.
        self.index_timestamp = 0
        self.was_clean = False
        # The list of queues as it is on the disk.  Two threads write it.
        self._has_list = False
        self._list_lock = threading.Lock()

    # Start

    def recover(self, tags_codes: TagsCodes, *, check_crc: bool) -> RecoveryReport:
        """Load log and queues and make them agree.

        From now until `stopped` there is an ``abort`` file.  A start that fails on a clean store leaves none.
        Raises `StoreError` naming the file and the reason.
        """
        self.was_clean = self._disk.read(self._abort) is None
        checkpoint = load_checkpoint(self._disk, self._checkpoint, self._clock.wall_ms())
        self.index_timestamp = checkpoint.index_msg_timestamp
        listed = self._list_file.read()
        self.deleted.load()
        self._log.load()
        if self._truncation.intended() is not None:
            # Queues, index and log files describe the log before the cut, even if the run ended cleanly.
            self.was_clean = False
        listed = self._complete_truncation(listed)
        self._check_future(checkpoint, listed)
        self._check_detached(checkpoint, listed)
        usable = self._table.load(listed if self.was_clean else None)
        _FILES_LOADED()
        self._sync_names(listed)
        self._disk.write_small(self._abort, b"")
        _ABORT_WRITTEN()
        evidence = self._evidence(checkpoint, listed)
        recovery = Recovery(self._log, self._table, checkpoint, tags_codes, check_crc, evidence=evidence)
        try:
            report = recovery.run(clean=self.was_clean, usable=usable)
        except StoreError:
            if self.was_clean:
                self._disk.remove(self._abort)
            raise
        report.was_clean = self.was_clean
        self.deleted.cut(report.end_offset)
        self._mark.open(report.end_offset)
        self._has_list = listed is not None and not report.rebuilt
        self.store_timestamp = max(report.last_store_timestamp, checkpoint.physic_msg_timestamp)
        return report

    def _evidence(self, checkpoint: Checkpoint, listed: QueueList | None) -> Evidence:
        def note_rebuild() -> None:
            known = listed or QueueList(checkpoint.confirm_phy_offset)
            self._list_file.write(replace(known, must_rebuild=True))

        def end_log(end: int, reason: str) -> None:
            detached = self._log.detached
            if detached:
                reason = f"{reason}; {detached[0].reason}"
            self._truncation.end_log(end, reason, detached, self._clock.wall_ms())
            self._log.forget_detached()

        return Evidence(
            listed, self._mark.read(), self.deleted, note_rebuild, end_log, self._truncation.has_content_after
        )

    def _complete_truncation(self, listed: QueueList | None) -> QueueList | None:
        """Finish a truncation that a crash interrupted.  Return the list of queues after it."""
        end = self._truncation.intended()
        if end is None:
            return listed
        _log.warning("event=truncation_completed end=%d", end)
        if listed is not None and listed.log_offset > end:
            # The crash came before the queues were cut, or before their list was written.
            listed = QueueList(end, must_rebuild=True)
            self._list_file.write(listed)
        self.deleted.cut(end)
        self._mark.lower(end)
        if end < self._log.wrote_offset:
            self._truncation.cut_log(max(end, self._log.min_offset))
        self._truncation.finish()
        return listed

    def _sync_names(self, listed: QueueList | None) -> None:
        """Sync the directories: names of files that a killed process created may be in the page cache only."""
        directories = {self._root, self._log.directory, *self._table.directories}
        if listed is None:
            # RocketMQ may have left names unsynced, too.  A list names only durable queues; others are rebuilt.
            for queue in self._table:
                directories |= {queue.directory, queue.directory.parent}
        for directory in directories:
            self._disk.sync_entries(directory)

    def _check_future(self, checkpoint: Checkpoint, listed: QueueList | None) -> None:
        confirm, end = checkpoint.confirm_phy_offset, self._log.wrote_offset
        reason = None
        if confirm > end:
            reason = f"it says the log is on the disk up to {confirm}, but the log ends at {end}"
        elif listed is not None and listed.log_offset and confirm > listed.log_offset:
            reason = f"it says {confirm}, but the list of queues, written before it, says {listed.log_offset}"
        if reason is not None:
            _log.warning("event=checkpoint_not_trusted file=%s reason=%r", self._checkpoint, reason)
            checkpoint.confirm_phy_offset = 0

    def _check_detached(self, checkpoint: Checkpoint, listed: QueueList | None) -> None:
        """Raise `StoreError` if the log was on the disk beyond the first gap between its segments."""
        detached = self._log.detached
        for path, _, size, reason in detached:
            if size is None:
                raise StoreError(reason if str(path) in reason else f"{path}: is not a file; move it away")
        listed_offset = listed.log_offset if listed is not None else 0
        promised = max(checkpoint.confirm_phy_offset, listed_offset, self._mark.read())
        is_unknown = self.was_clean and listed is None
        if self._log.wrote_offset == self._log.min_offset:
            # The first segment is missing.  Only a first run that ended before its first sync leaves that.
            is_unknown = self.was_clean or listed is not None or checkpoint.physic_msg_timestamp > 0
        if not detached or (promised <= self._log.wrote_offset and not is_unknown):
            return
        how_far = f"the log was on the disk up to {promised}" if promised else "the store was shut down cleanly"
        raise StoreError(
            f"{detached[0].reason}; {how_far}. Restore the file, or see what a repair would lose:"
            " `sprocket store check DIR`, `sprocket store repair DIR`"
        )

    # While the store runs

    def flushed(self, offset: int) -> None:
        """Note that the log is on the disk up to `offset`."""
        self._mark.note(offset)

    def write_checkpoint(self, checkpoint: Checkpoint, queue_list: QueueList) -> None:
        """Write `queue_list`, then `checkpoint`.  Log and queues are on the disk as far as both say.

        May run in any thread.  Raises `DiskFull` or `DiskFailed`.
        """
        with self._list_lock:
            # Leave out queues that were deleted while they were being flushed.
            by_key = self._table.by_key
            self._write_list(queue_list, {key for key in queue_list.end_units if key not in by_key})
        _LIST_WRITTEN()
        self._disk.write_small(self._checkpoint, checkpoint.encode())

    def queues_deleted(self, keys: set[QueueKey]) -> None:
        """Note that these expired queues are about to be deleted.  May run in any thread.

        Raises `DiskFull` or `DiskFailed`.
        """
        with self._list_lock:
            # It is not kept in memory: with many queues it takes as much as all of the queues.
            listed = self._list_file.read() if self._has_list else None
            if listed is not None and not keys.isdisjoint(listed.end_units):
                self._write_list(listed, keys)

    def _write_list(self, queue_list: QueueList, gone: set[QueueKey]) -> None:
        if gone:
            kept = {key: end for key, end in queue_list.end_units.items() if key not in gone}
            queue_list = replace(queue_list, end_units=kept)
        self._list_file.write(queue_list)
        self._has_list = True

    def topics_deleted(self, topics: Sequence[str], end: int) -> None:
        """Note that their records before `end` do not count any more, because their queues are about to be deleted.

        May run in any thread.  Raises `DiskFull` or `DiskFailed`.
        """
        with self._deleted_lock:
            self.deleted.add(topics, end, self._log.min_offset)

    def intend_cut(self, end: int, reason: str) -> None:
        """Note that the next start must end the log at `end`, for `reason`.  Copy aside what lies after `end`.

        Append nothing after this call.  Raises `DiskFull` or `DiskFailed`.
        """
        self._truncation.intend(end, reason, self._clock.wall_ms())

    def close(self) -> None:
        """Close the files."""
        self._mark.close()

    def stopped(self) -> None:
        """Note a clean end: everything is on the disk and the checkpoint is written.  Raises `DiskFailed`."""
        self._disk.remove(self._abort)
