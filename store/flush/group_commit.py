"""Flushes of the CommitLog in a thread of its own: one sync for all waiting senders.

Source: RocketMQ 5.3.3, `CommitLog.GroupCommitService` (SYNC_FLUSH), `FlushRealTimeService` (ASYNC_FLUSH).
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFailed
from sprocket.common.failpoints import failpoint
from store.config.store_config import FlushDiskType, StoreConfig
from store.disk.disk import DiskFile
from store.worker import ThreadWorker, Workers

_log = logging.getLogger(__name__)
_PAGE_BYTES: Final = 4096

Notify = Callable[[Callable[[], None]], None]
_BEFORE_SYNC: Final = failpoint("group_commit.before_sync")
_AFTER_FILE: Final = failpoint("group_commit.after_file")
_AFTER_SYNC: Final = failpoint("group_commit.after_sync")
_NOTIFIED: Final = failpoint("group_commit.notified")


class FlushSchedule:
    """Rule for ASYNC_FLUSH: flush after enough pages, or a certain time after the last thorough flush."""

    def __init__(self, min_pages: int, thorough_interval_ms: int, now: float) -> None:
        self.configure(min_pages, thorough_interval_ms)
        self._last_thorough = now

    def configure(self, min_pages: int, thorough_interval_ms: int) -> None:
        """Change the limits."""
        self._min_bytes = min_pages * _PAGE_BYTES
        self._thorough_interval_s = thorough_interval_ms / 1000

    def is_due(self, now: float, unflushed_bytes: int) -> bool:
        """Return whether to flush now; `now` in monotonic seconds."""
        if now - self._last_thorough >= self._thorough_interval_s:
            self._last_thorough = now
            return unflushed_bytes > 0
        return unflushed_bytes > 0 and unflushed_bytes >= self._min_bytes


class GroupCommit:
    """The flush thread.

    The thread calls `pending` for the flushed offset, the appended offset, and the files to sync.  The owner thread
    calls `done` with the offset up to which the log is now on the disk, or with the error.  An error ends the thread: a
    failed sync is never retried, because the kernel may have marked the lost pages clean.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        notify: Notify,
        pending: Callable[[], tuple[int, int, list[DiskFile]]],
        done: Callable[[int, DiskFailed | None], None],
        workers: Workers = ThreadWorker,
    ) -> None:
        self._clock = clock
        self._notify = notify
        self._pending = pending
        self._done = done
        self._is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._schedule = FlushSchedule(
            config.flush_commit_log_least_pages, config.flush_commit_log_thorough_interval, clock.monotonic()
        )
        self._worker = workers("store-flush", self._turn, self._interval_s(config))
        # Start the thread; end it, without a last flush; request a flush with SYNC_FLUSH, cheap if it is awake already.
        self.start, self.stop, self.wake = self._worker.start, self._worker.stop, self._worker.wake
        # Held during a sync.  Take it to close a file that was removed from the log.
        self.busy = threading.Lock()
        self._failure: DiskFailed | None = None
        self._is_asked = False
        self._flushing_since_s: float | None = None
        self.last_flush_s = 0.0

    def _interval_s(self, config: StoreConfig) -> float | None:
        return None if self._is_sync else config.flush_interval_commit_log / 1000

    def configure(self, config: StoreConfig) -> None:
        """Apply changed intervals and sizes."""
        self._schedule.configure(config.flush_commit_log_least_pages, config.flush_commit_log_thorough_interval)
        self._worker.pace(self._interval_s(config))

    def ask(self) -> None:
        """Request a flush, whatever the flush type, the number of bytes and the time of the last flush."""
        self._is_asked = True
        self._worker.wake()

    def flush(self) -> tuple[int, DiskFailed | None]:
        """Sync everything appended so far; return the flushed offset, and the error if there was one."""
        with self.busy:
            started = self._flushing_since_s = self._clock.monotonic()
            try:
                return self._sync()
            finally:
                self._flushing_since_s = None
                self.last_flush_s = self._clock.monotonic() - started

    def flushing_s(self) -> float:
        """Return the seconds since the current flush began; 0 without one.  For any thread."""
        since_s = self._flushing_since_s
        return 0.0 if since_s is None else self._clock.monotonic() - since_s

    def _sync(self) -> tuple[int, DiskFailed | None]:
        flushed, wrote, files = self._pending()
        if self._failure is not None:
            return flushed, self._failure
        try:
            _BEFORE_SYNC()
            for file in files:
                file.sync()
                _AFTER_FILE()
        except Exception as error:
            # Latched, whichever thread it occurred in: the next sync of the same pages would succeed, but they are
            # lost.  Also an unexpected error: without this thread senders would get no response, or an untrue one.
            self._failure = error if isinstance(error, DiskFailed) else DiskFailed(repr(error))
            return flushed, self._failure
        return wrote, None

    def _turn(self) -> bool:
        """Flush if that is due; return False after an error, to end the thread."""
        is_asked, self._is_asked = self._is_asked, False
        flushed, wrote, _ = self._pending()
        due = wrote > flushed
        if not (self._is_sync or is_asked):
            due = self._schedule.is_due(self._clock.monotonic(), wrote - flushed)
        if not due:
            return True
        reached, error = self.flush()
        _AFTER_SYNC()
        self._notify(lambda: self._done(reached, error))
        _NOTIFIED()
        return error is None
