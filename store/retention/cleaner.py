"""Removal of expired segments, and the watch over disk and flush for back-pressure.

Once a second a thread reads how full the disk is and which leases hold.  Then the owner thread decides.  It detaches at
most one segment from the log, so the log's minimum offset moves first.  The thread unlinks that file, syncs the
directory, and checks again.  So disk and leases are checked before each file, and no send waits for a disk.  After a
crash at any point the segments have no gap, because the oldest are removed first, one by one.

The same thread publishes the offset that readers of the files may read up to, see `store.flush.confirm_mark`.

Readers are never broken: slices of a removed segment stay valid until the last of them is dropped.  Only then does the
file system free the space.

Source: RocketMQ 5.3.3, `DefaultMessageStore.CleanCommitLogService`, `CleanConsumeQueueService`.
"""

import contextlib
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from store.config.store_config import StoreConfig
from store.disk.disk import Disk, DiskFile
from store.flush.confirm_mark import ConfirmMark
from store.flush.confirmation import Confirmation
from store.flush.group_commit import GroupCommit, Notify
from store.flush.queue_flush import QueueFlush
from store.log.commit_log import CommitLog
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.logic_queue import LogicQueue
from store.retention.back_pressure import BackPressure
from store.retention.leases import Lease, Leases, held_from
from store.retention.queue_trim import QueueTrim
from store.retention.rules import (
    LOOK_AHEAD,
    DiskUse,
    Reason,
    RetentionClock,
    Segment,
    is_expired,
    is_removable,
    reason_to_clean,
)
from store.retention.topic_retention import TopicRetention, TopicRule
from store.worker import Workers

_log = logging.getLogger(__name__)
# The thread checks at least this often, and then waits for the owner's decision.  It asks again if none came.
_LOOK_S: Final = 1.0
_ASK_AGAIN_S: Final = 10.0
_SWEEP_S: Final = 600.0
_MIN_TURN_S: Final = 0.05
# Rounds for which a request to clean now stays valid (`MAX_MANUAL_DELETE_FILE_TIMES`).
_MANUAL_ROUNDS: Final = 20
_SEGMENT_DETACHED: Final = failpoint("cleaner.segment_detached")
_BEFORE_UNLINK: Final = failpoint("cleaner.before_unlink")
_UNLINKED: Final = failpoint("cleaner.unlinked")
_QUEUE_FILE_UNLINKED: Final = failpoint("cleaner.queue_file_unlinked")


class Look(NamedTuple):
    """What the thread read: use of the disk and leases."""

    use: DiskUse
    leases: list[Lease]


class Compacting(Protocol):
    """What retention asks of the compaction of the store's queues."""

    def held_from(self) -> int | None:
        """Return the physical offset of the oldest message that is not taken in; None if there is none."""

    def hurry(self) -> None:
        """Begin a round now, because retention waits."""


class Cleaner:
    """Cleaner of one store.  `_turn` and what it calls run in its thread, the rest in the owner thread."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        *,
        disk: Disk,
        log: CommitLog,
        table: ConsumeQueueTable,
        confirmation: Confirmation,
        group_commit: GroupCommit,
        queue_flush: QueueFlush,
        compaction: Compacting,
        notify: Notify,
        workers: Workers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._disk = disk
        self._commit_log = log
        self._table = table
        self._confirmation = confirmation
        self._group_commit = group_commit
        self._queue_flush = queue_flush
        self._compaction = compaction
        self._notify = notify
        self.pressure = BackPressure(config, clock, group_commit.flushing_s, self._look_soon)
        # Callbacks for the log's minimum offset, called after it moved.
        self.on_trim: list[Callable[[int], None]] = []
        self.topics = TopicRetention(table, log)
        self._trim = QueueTrim(table, log, notify, self._queue_files_dropped)
        self._retention_clock = RetentionClock(clock)
        self._is_running = False
        self._next_round_s = 0.0
        self._left = 0
        self._manual_rounds = 0
        self._is_manual = False
        self._is_stuck = False
        self._archived_end: int | None = None
        self._pinned = PinnedFiles(clock)
        # Shared with the thread.
        self._leases = self._leases_of(config)
        self._mark = ConfirmMark(disk, clock, config.store_path_root_dir, confirmation)
        self._held: list[Lease] = []
        self._asked_s: float | None = None
        self._segment: DiskFile | None = None
        self._queue_files: deque[tuple[str, int, Path]] = deque()
        self._queue_files_lock = threading.Lock()
        # Monotonic times, s, from which the thread may do each job.
        self._next_look_s = self._next_sweep_s = self._segment_due_s = self._queue_file_due_s = 0.0
        turn_s = max(_MIN_TURN_S, min(_LOOK_S, config.delete_commit_log_files_interval / 1000))
        self._worker = workers("store-clean", self._turn, turn_s)

    def _leases_of(self, config: StoreConfig) -> Leases:
        return Leases(
            config.store_path_root_dir, longest_ms=config.max_lease_time, clock=self._clock, disk=self._disk
        )  # fmt: skip

    def configure(self, config: StoreConfig) -> None:
        """Apply a changed configuration."""
        if config.max_lease_time != self._config.max_lease_time:
            self._leases = self._leases_of(config)
        self._config = config
        self.pressure.configure(config)

    def start(self) -> None:
        """Check the disk once, so that a full one is known before the first send.  Then start the thread."""
        self._is_running = True
        now_s = self._clock.monotonic()
        self._next_round_s = now_s + self._config.clean_resource_interval / 1000
        self._next_look_s, self._next_sweep_s = now_s, now_s + _SWEEP_S
        self._note_figures(self._disk_use())
        self._mark.write()
        self._trim.start()
        self._worker.start()

    def stop(self) -> None:
        """End the thread.  It still removes a detached segment.  The next start drops queue files again."""
        if not self._is_running:
            return
        self._is_running = False
        self._worker.stop()
        self._trim.stop()
        if self._confirmation.failure is not None:
            return
        with contextlib.suppress(StoreError):
            self._mark.remove()
        if self._segment is not None:
            self._remove_segment(self._segment)

    # Requests

    def clean_now(self) -> None:
        """Remove expired segments from the next round on, whatever the hour."""
        self._manual_rounds = _MANUAL_ROUNDS
        self._next_round_s = self._clock.monotonic()
        peer_lines.info(_log, "", "event=cleaning_requested reserved_hours=%d", self._config.file_reserved_time)

    def keep_until_archived(self, end: int | None) -> None:
        """Remove no segment that ends after `end`, which is where the archive ends; None: there is no archive."""
        self._archived_end = end

    def retain(self, rules: Mapping[str, TopicRule]) -> None:
        """Replace the topics' rules and apply them now."""
        self.topics.set_rules(rules)
        self.topics.apply(self._retention_clock.now_ms())

    def forget(self, topic: str, queue_id: int | None = None) -> None:
        """Cancel the removal of a queue's files, or of all the topic's, because the directory is about to be deleted.

        Later files may have the same names and must not be removed.
        """
        with self._queue_files_lock:
            waiting = list(self._queue_files)
            self._queue_files.clear()
            self._queue_files.extend(
                file for file in waiting if file[0] != topic or queue_id not in (None, file[1])
            )  # fmt: skip

    def expired_queues(self, is_kept: Callable[[str], bool]) -> list[LogicQueue]:
        """Return queues whose last message has left the log, except those of topics for which `is_kept` is true."""
        found = []
        for queue in self._table:
            last = queue.unit(queue.visible_units()[1] - 1) if queue.visible_units()[1] > queue.first_unit else None
            is_quiet = queue.next_offset == queue.max_offset
            if is_quiet and last is not None and last[0] < self._commit_log.min_offset and not is_kept(queue.topic):
                found.append(queue)
        return found

    def _look_soon(self) -> None:
        self._next_look_s = 0.0
        self._worker.wake()

    # Decisions

    def _note_figures(self, use: DiskUse) -> None:
        confirmation = self._confirmation
        self.pressure.observe(
            use,
            self._group_commit.last_flush_s,
            self._commit_log.wrote_offset - confirmation.flushed_offset,
            confirmation.waiting_bytes,
        )

    def _decide(self, look: Look) -> None:
        """Decide, in the owner thread, after each check."""
        self._asked_s = None
        if not self._is_running or self._confirmation.failure is not None:
            return
        self._note_figures(look.use)
        try:
            self._clean_what_is_due(look)
        except StoreError as error:
            # A file cannot be read.  It is retried after the next check.
            _log.error("event=cleaning_failed reason=%r", str(error))

    def _clean_what_is_due(self, look: Look) -> None:
        now_ms = self._retention_clock.now_ms()
        now_s = self._clock.monotonic()
        if now_s >= self._next_round_s:
            self._next_round_s = now_s + self._config.clean_resource_interval / 1000
            self._left = self._config.delete_file_batch_max
            self._is_manual = self._manual_rounds > 0
            self._manual_rounds -= self._is_manual
            self.topics.apply(now_ms)
        if self._left > 0 and self._segment is None:
            reason = reason_to_clean(self._config, look.use, now_ms, self._is_manual)
            if reason is not None:
                self._clean(reason, look, now_ms)

    def _clean(self, reason: Reason, look: Look, now_ms: int) -> None:
        is_short = reason in (Reason.SPACE, Reason.FORCED)
        if is_short and self._pinned.must_wait(self._config.destroy_maped_file_interval_forcibly):
            return
        compacted_from = self._compaction.held_from()
        segment = self._oldest_segment(look.leases, now_ms, compacted_from)
        if compacted_from is not None and compacted_from < segment.end:
            self._compaction.hurry()
        if self._queue_flush.listed_offset < segment.end < segment.flushed_offset:
            self._queue_flush.hurry()
        if is_removable(segment, reason):
            self._is_stuck = False
            self._detach_oldest(reason, look)
        elif is_short and not self._is_stuck:
            self._is_stuck = True
            _log.warning(
                "event=nothing_to_remove reason=%s disk_used=%.3f leases=%d log_min=%d archived_end=%s queues_end=%d",
                reason.value, look.use.highest, len(look.leases), self._commit_log.min_offset, self._archived_end,
                self._queue_flush.listed_offset,
            )  # fmt: skip

    def _oldest_segment(self, leases: Iterable[Lease], now_ms: int, compacted_from: int | None) -> Segment:
        log = self._commit_log
        start, size = log.min_offset, log.segment_bytes
        times = [partial(log.segment_time, start + size * k) for k in range(LOOK_AHEAD + 1)]
        expired = is_expired(now_ms, self._config.file_reserved_time, times)
        flushed = self._confirmation.flushed_offset
        needed = (compacted_from, self._archived_end, self._queue_flush.listed_offset)
        return Segment(
            start, start + size, expired, held_from(leases), flushed, log.wrote_offset,
            min(offset for offset in needed if offset is not None),
        )  # fmt: skip

    def _detach_oldest(self, reason: Reason, look: Look) -> None:
        file = self._commit_log.drop_oldest()
        self._left -= 1
        self._pinned.add(file)
        self._segment = file
        _SEGMENT_DETACHED()
        held = held_from(look.leases)
        _log.info(
            "event=segment_detached file=%s reason=%s disk_used=%.3f leased_from=%s log_min=%d",
            file.path.name, reason.value, look.use.highest, held, self._commit_log.min_offset,
        )  # fmt: skip
        self._worker.wake()
        self._trim.begin()
        for listener in self.on_trim:
            listener(self._commit_log.min_offset)

    def _queue_files_dropped(self, queue: LogicQueue, files: list[DiskFile]) -> None:
        for file in files:
            # No flush uses the file: all of it was flushed before.
            file.close()
        with self._queue_files_lock:
            self._queue_files.extend((queue.topic, queue.queue_id, file.path) for file in files)

    # In the thread

    def _turn(self) -> bool:
        self._mark.write()
        now_s = self._clock.monotonic()
        segment = self._segment
        if segment is not None and now_s >= self._segment_due_s:
            if self._remove_segment(segment):
                self._segment_due_s = now_s + self._config.delete_commit_log_files_interval / 1000
                self._segment = None
                self._next_look_s = now_s
            else:
                self._segment_due_s = now_s + self._config.redelete_hanged_file_interval / 1000
        if self._queue_files and now_s >= self._queue_file_due_s:
            interval_ms = (
                self._config.delete_consume_queue_files_interval
                if self._remove_queue_file()
                else self._config.redelete_hanged_file_interval
            )
            self._queue_file_due_s = now_s + interval_ms / 1000
        is_asked = self._asked_s is not None and now_s - self._asked_s < _ASK_AGAIN_S
        if now_s >= self._next_look_s and not is_asked:
            self._next_look_s = now_s + min(_LOOK_S, self._config.clean_resource_interval / 1000)
            look = self._look(now_s)
            self._asked_s = now_s
            self._notify(lambda: self._decide(look))
        return True

    def _look(self, now_s: float) -> Look:
        try:
            if now_s >= self._next_sweep_s:
                self._next_sweep_s = now_s + _SWEEP_S
                self._leases.sweep()
            self._held = list(self._leases.list().values())
        except StoreError as error:
            # The leases read last stay valid: a removed segment cannot be restored.
            _log.warning("event=leases_not_read held=%d reason=%r", len(self._held), str(error))
        return Look(self._disk_use(), self._held)

    def _disk_use(self) -> DiskUse:
        root = self._config.store_path_root_dir
        queues = self._disk.used_ratio(root)
        log = self._disk.used_ratio(self._config.commit_log_path)
        # Before the first message the log has no directory.
        return DiskUse(queues if log < 0 and not self._commit_log.wrote_offset else log, queues)

    def _remove_segment(self, file: DiskFile) -> bool:
        _BEFORE_UNLINK()
        # A flush that began before the segment was detached may still use it.
        with self._group_commit.busy:
            file.close()
        return self._remove(file.path, _UNLINKED)

    def _remove_queue_file(self) -> bool:
        with self._queue_files_lock:
            if not self._queue_files or not self._remove(self._queue_files[0][2], _QUEUE_FILE_UNLINKED):
                return not self._queue_files
            self._queue_files.popleft()
        return True

    def _remove(self, path: Path, done: Callable[[], None]) -> bool:
        try:
            self._disk.remove(path)
        except StoreError as error:
            retry_ms = self._config.redelete_hanged_file_interval
            _log.error("event=file_not_removed file=%s reason=%r retry_ms=%d", path, str(error), retry_ms)
            return False
        done()
        return True


class PinnedFiles:
    """Removed files whose space readers still hold.  The file system frees it when the last slice is dropped."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # (the mapping, name of the file, when it was removed)
        self._files: list[tuple[weakref.ref[object], str, float]] = []

    def add(self, file: DiskFile) -> None:
        """Note that `file` is about to be closed and removed."""
        content: object = file.view.obj
        try:
            mapping = weakref.ref(content)
        except TypeError:
            return  # A disk without mappings: no reader can hold the space.
        self._files.append((mapping, file.path.name, self._clock.monotonic()))

    def must_wait(self, max_ms: int) -> bool:
        """Return whether to wait for readers before removing more to gain space: at most `max_ms` per file."""
        now_s = self._clock.monotonic()
        waiting = []
        for mapping, name, since_s in self._files:
            if mapping() is not None:
                if now_s - since_s < max_ms / 1000:
                    waiting.append((mapping, name, since_s))
                else:
                    _log.warning("event=space_still_held file=%s seconds=%.0f", name, now_s - since_s)
        self._files = waiting
        return bool(waiting)
