"""Index of the store: a thread that follows the log, and searches.

Source: RocketMQ 5.3.3, `IndexService`, `DefaultMessageStore.CommitLogDispatcherBuildIndex`.
"""

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFailed, DiskFull, StoreError
from store.config.store_config import StoreConfig
from store.disk.disk import Disk
from store.flush.group_commit import Notify
from store.index.index_builder import IndexBuilder
from store.index.index_file import IndexDamaged, IndexFile
from store.index.index_files import IndexFiles
from store.index.key_scan import index_hash
from store.log.commit_log import CommitLog
from store.worker import ThreadWorker, Workers

_log = logging.getLogger(__name__)
# How long confirmed messages gather before they are indexed; a query does not wait for it.  A batch makes some two
# hundred calls, and each briefly takes the interpreter's lock from the sends.  So few large batches cost least.
GATHER_S: Final = 0.5
# A thread with a backlog alternates work and rest, so that sends are not delayed.
_WORK_S: Final = 0.05
# Interval at which slots and header of the growing file are written.
_WRITE_S: Final = 5.0
# A clean stop indexes the backlog for at most this long.  The next start indexes the rest.
_STOP_S: Final = 10.0


@dataclass(slots=True)
class FoundOffsets:
    """Records that may have a key, newest first, and how far the index reaches: time in ms, physical offset."""

    offsets: list[int]
    last_update_timestamp: int = 0
    last_update_physical_offset: int = 0


class IndexService:
    """Index of one store.

    `confirm` returns the confirm offset, in any thread.  `failed` is called in the owner thread.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        *,
        disk: Disk,
        log: CommitLog,
        confirm: Callable[[], int],
        notify: Notify,
        failed: Callable[[DiskFailed], None],
        workers: Workers = ThreadWorker,
    ) -> None:
        self._clock = clock
        self._log = log
        self._confirm = confirm
        self._notify = notify
        self._failed = failed
        self.is_enabled = config.message_index_enable
        self._is_safe = config.message_index_safe
        self.configure(config)
        self._files = IndexFiles(config, disk, clock)
        self._builder = IndexBuilder(log, self._files)
        self._worker = workers("store-index", self._turn, GATHER_S)
        self._busy = threading.Lock()
        self._is_stopping = False
        self._is_disk_full = False
        self._failure: DiskFailed | None = None
        self._last_write = clock.monotonic()
        # (physical offset, callback to call when all before it is indexed)
        self._waiters: list[tuple[int, Callable[[], None]]] = []
        # The log's first offset when expired files were last removed.
        self._min_offset = 0
        # Found damaged by a search; the thread removes it.
        self._damaged: IndexFile | None = None
        # Full files whose slots were not checked since the start.
        self._unchecked: list[IndexFile] = []

    # Life

    def load(self, durable_timestamp: int, *, clean: bool) -> None:
        """Open the files that can be trusted and find where to continue.  Call it after recovery of the log.

        `durable_timestamp`: the checkpoint's index_msg_timestamp.  Raises `DiskFull` or `DiskFailed`.
        """
        durable = None if clean else durable_timestamp
        self._files.load(durable_timestamp=durable, log_end=self._log.wrote_offset)
        self._builder.begin(durable_timestamp)
        self._unchecked = [file for file in self._files.files if file.is_full]
        if self._is_safe:
            self._follow(math.inf)
        _log.info("event=index_loaded reached=%d log_max=%d", self.reached_offset, self._log.wrote_offset)

    def configure(self, config: StoreConfig) -> None:
        """Take the limit of a query's results from the new `config`."""
        self._max_matches = config.max_msgs_num_batch

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def shutdown(self) -> None:
        """End the thread, index what is confirmed, and flush all files.  Raises `DiskFailed`."""
        self._worker.stop()
        if self._failure is not None:
            # The owner may not know of it yet.  Do not retry what failed.
            raise DiskFailed(str(self._failure))
        try:
            with self._busy:
                self._follow(self._clock.monotonic() + _STOP_S)
                for file in self._files.files:
                    if not file.is_flushed:
                        file.flush()
        except (DiskFull, OSError) as error:
            # The next start sees that slots and header disagree, and drops the file.
            _log.warning("event=index_not_flushed reason=%r", str(error))

    def close(self) -> None:
        """End the thread and close the files without flushing."""
        self._is_stopping = True
        self._worker.stop()
        self._files.close()

    # Following the log

    @property
    def reached_offset(self) -> int:
        """All records before this physical offset are indexed."""
        return self._builder.reached_offset

    @property
    def durable_timestamp(self) -> int:
        """Timestamp, ms, for the checkpoint's index_msg_timestamp."""
        return self._builder.durable_timestamp

    def when_indexed(self, physical_offset: int, callback: Callable[[], None]) -> None:
        """Call `callback` in the owner thread once all before `physical_offset` is indexed; now if it is.

        It is never called if the index is off or does not reach that offset.
        """
        if self.reached_offset >= physical_offset:
            callback()
        else:
            self._waiters.append((physical_offset, callback))
            self._worker.wake()

    def forget(self, callback: Callable[[], None]) -> None:
        """Drop `callback`, whose caller no longer waits."""
        self._waiters = [waiter for waiter in self._waiters if waiter[1] is not callback]

    def _answer_waiters(self) -> None:
        reached, waiters = self.reached_offset, self._waiters
        self._waiters = [waiter for waiter in waiters if waiter[0] > reached]
        for offset, callback in waiters:
            if offset <= reached:
                callback()

    def _turn(self) -> bool:
        try:
            with self._busy:
                deadline = self._clock.monotonic() + _WORK_S
                self._check_some(deadline)
                self._remove_some()
                self._follow(deadline)
                self._write_now_and_then()
            self._is_disk_full = False
        except (DiskFull, OSError) as error:
            # OSError: a segment cannot be mapped now, because descriptors or memory are short.
            if not self._is_disk_full:
                _log.warning("event=index_waits reason=%r", str(error))
            self._is_disk_full = True
        except StoreError as error:
            failure = self._failure = error if isinstance(error, DiskFailed) else DiskFailed(str(error))
            self._notify(lambda: self._failed(failure))
            return False
        if self._waiters:
            self._notify(self._answer_waiters)
        return True

    def _follow(self, deadline: float) -> None:
        """Index confirmed records until none is left or `deadline` has passed."""
        if not self.is_enabled:
            return
        while not self._is_stopping and self._builder.step(self._confirm()):
            if self._clock.monotonic() > deadline:
                return

    def _write_now_and_then(self) -> None:
        now, last = self._clock.monotonic(), self._files.last
        if last is not None and now - self._last_write >= _WRITE_S:
            self._last_write = now
            last.write_slots()

    def _check_some(self, deadline: float) -> None:
        """Check slots of full files until `deadline`."""
        while self._unchecked and self._clock.monotonic() <= deadline:
            file = self._unchecked.pop()
            if file in self._files.files:
                try:
                    file.check_slots()
                except IndexDamaged as error:
                    self._distrust(file, error)

    def _distrust(self, file: IndexFile, error: IndexDamaged) -> None:
        """Remove `file` and all later ones, to be rebuilt."""
        _log.warning("event=index_rebuild reason=%r", str(error))
        files, damaged = self._files.files, self._damaged
        if file in files and (damaged not in files or files.index(file) < files.index(damaged)):
            self._damaged = file

    def _remove_some(self) -> None:
        """Remove files whose records have expired, and a damaged file with all later ones, to be rebuilt."""
        files, min_offset = self._files, self._log.min_offset
        if min_offset > self._min_offset:
            # Source: RocketMQ 5.3.3, `IndexService.deleteExpiredFile`.
            self._min_offset = min_offset
            files.remove(files.expired(min_offset))
        damaged, self._damaged = self._damaged, None
        if damaged is not None and damaged in files.files:
            files.remove(files.files[files.files.index(damaged) :])
            self._builder.find_position()

    # Searching

    def search(self, topic: str, key: str, max_matches: int, begin: int, end: int) -> FoundOffsets:
        """Return records of `topic` with `key` and a store time of `begin` to `end`, ms.  In any thread.

        Keys are compared by hash, so a record may have another key or topic.  Times have a precision of a second.
        Source: RocketMQ 5.3.3, `IndexService.queryOffset`.
        """
        files = self._files.files
        limit = min(max_matches, self._max_matches)
        key_hash = index_hash(topic, key)
        found = FoundOffsets([])
        if files:
            found.last_update_timestamp = files[-1].header.end_timestamp
            found.last_update_physical_offset = files[-1].header.end_physical_offset
        for file in reversed(files):
            if file.is_time_matched(begin, end):
                self._search_file(file, found.offsets, key_hash, limit, begin, end)
            if file.header.begin_timestamp < begin or len(found.offsets) >= limit:
                break
        return found

    def _search_file(self, file: IndexFile, found: list[int], key_hash: int, limit: int, begin: int, end: int) -> None:
        try:
            file.select(found, key_hash, limit, begin, end)
        except IndexDamaged as error:
            self._distrust(file, error)
            self._worker.wake()

    # Figures

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, holes included."""
        return self._files.size_bytes
