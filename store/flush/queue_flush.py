"""Flushes of ConsumeQueues and writes of the checkpoint, in a thread of its own.

Source: RocketMQ 5.3.3, `DefaultMessageStore.FlushConsumeQueueService`.  In addition to RocketMQ's intervals, a thorough
flush follows each 64 MiB of log, so that recovery after a crash has little to scan.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFailed, DiskFull
from sprocket.common.failpoints import failpoint
from store.config.store_config import StoreConfig
from store.flush.checkpoint import Checkpoint
from store.flush.group_commit import Notify
from store.flush.queue_list import QueueList
from store.log.commit_log import CommitLog
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.logic_queue import LogicQueue
from store.worker import ThreadWorker, Workers

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PAGE_BYTES: Final = 4096
_CHECKPOINT_LOG_BYTES: Final = 64 * 1024 * 1024
_QUEUES_AT_ONCE: Final = 1024
_PAUSE_S: Final = 0.001
_BETWEEN_QUEUES: Final = failpoint("queue_flush.between_queues")
_BEFORE_CHECKPOINT: Final = failpoint("queue_flush.before_checkpoint")
_AFTER_CHECKPOINT: Final = failpoint("queue_flush.after_checkpoint")


class QueueFlush:
    """The flush thread of ConsumeQueues.

    `snapshot` returns the checkpoint that is true once all queues are flushed; `write` stores it, with the number of
    units of each queue on the disk.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        table: ConsumeQueueTable,
        log: CommitLog,
        *,
        sync_log: Callable[[], tuple[int, DiskFailed | None]],
        snapshot: Callable[[], Checkpoint],
        write: Callable[[Checkpoint, QueueList], None],
        notify: Notify,
        failed: Callable[[DiskFailed], None],
        workers: Workers = ThreadWorker,
    ) -> None:
        self._clock = clock
        self._table = table
        self._log = log
        self._sync_log = sync_log
        self._snapshot = snapshot
        self._write = write
        self._notify = notify
        self._failed = failed
        self._last_thorough = clock.monotonic()
        # Physical offset up to which the list of queues on the disk reaches.
        self.listed_offset = 0
        self._is_asked = False
        self._busy = threading.Lock()
        self._pause = threading.Event()
        self._is_full = False
        self._failure: DiskFailed | None = None
        self._worker = workers("store-flush-queues", self._turn, config.flush_interval_consume_queue / 1000)
        self.configure(config)
        table.files.on_pressure.append(self._worker.wake)
        # Called in this thread after each turn.
        self.on_tick: list[Callable[[], None]] = []

    def configure(self, config: StoreConfig) -> None:
        """Set intervals and sizes."""
        self._min_bytes = config.flush_consume_queue_least_pages * _PAGE_BYTES
        self._thorough_interval_s = config.flush_consume_queue_thorough_interval / 1000
        self._worker.pace(config.flush_interval_consume_queue / 1000)

    def start(self, listed_offset: int) -> None:
        """Start the thread; log and queues are on the disk up to `listed_offset`, and the notes say so."""
        self.listed_offset = listed_offset
        self._worker.start()

    def hurry(self) -> None:
        """Flush all queues and write the checkpoint now, because retention waits."""
        self._is_asked = True
        self._worker.wake()

    def stop(self) -> None:
        """End the thread."""
        self._worker.stop()

    def flush_all(self) -> None:
        """Flush every queue and write the checkpoint.  Raises `DiskFull`, or `DiskFailed`: from then on always."""
        if self._failure is not None:
            # The owner thread may not know of the failure yet, and must not record a clean stop.
            raise DiskFailed(str(self._failure))
        with self._busy:
            checkpoint = self._snapshot()
            queue_list = self._flush_and_list(checkpoint.confirm_phy_offset)
            # The log must be on the disk as far as the queues: after a crash, queues must not have entries without
            # records.
            if self._log.wrote_offset > checkpoint.confirm_phy_offset:
                _, error = self._sync_log()
                if error is not None:
                    raise error
            _BEFORE_CHECKPOINT()
            self._write(checkpoint, queue_list)
            _AFTER_CHECKPOINT()
            self.listed_offset = checkpoint.confirm_phy_offset

    def tick(self) -> None:
        """Flush what is due now.  Raises as `flush_all`."""
        now = self._clock.monotonic()
        is_thorough, self._is_asked = self._is_asked or now - self._last_thorough >= self._thorough_interval_s, False
        if is_thorough or self._snapshot().confirm_phy_offset - self.listed_offset >= _CHECKPOINT_LOG_BYTES:
            self._last_thorough = now
            self.flush_all()
        else:
            with self._busy:
                # Files with unsynced entries cannot be closed for others.
                self._flush_queues(1 if self._table.files.is_under_pressure else max(1, self._min_bytes))

    def _flush_queues(self, min_bytes: int) -> None:
        for queues in self._slices(self._table.with_files()):
            self._flush([queue for queue in queues if queue.unflushed_bytes() >= min_bytes])

    def _flush(self, queues: list[LogicQueue]) -> list[int]:
        """Flush these queues together; return for each one past its last unit on the disk."""
        flushes = [queue.files_to_flush() for queue in queues]
        files = [file for files, _ in flushes for file in files]
        if files:
            self._table.files.sync_many(files)
            _BETWEEN_QUEUES()
        ends = [end for _, end in flushes]
        for queue, end in zip(queues, ends, strict=True):
            queue.flushed(end)
        return ends

    def _flush_and_list(self, log_offset: int) -> QueueList:
        """Flush all queues, which have at least the records before `log_offset`; return how far each is flushed."""
        found = QueueList(log_offset, log_min_offset=self._log.min_offset)
        by_key = self._table.by_key
        for keys in self._slices(list(by_key)):
            known = [(key, queue) for key in keys if (queue := by_key.get(key)) is not None]
            for (key, queue), end in zip(known, self._flush([queue for _, queue in known]), strict=True):
                if end:
                    found.end_units[key] = end
                    if queue.first_unit:
                        found.first_units[key] = queue.first_unit
        return found

    def _slices(self, queues: list[T]) -> Iterator[list[T]]:
        """Yield `queues`, some at a time, with pauses in which senders get the interpreter."""
        for at in range(0, len(queues), _QUEUES_AT_ONCE):
            if at:
                self._pause.wait(_PAUSE_S)
            yield queues[at : at + _QUEUES_AT_ONCE]

    def _turn(self) -> bool:
        try:
            self.tick()
            self._is_full = False
            for listener in self.on_tick:
                listener()
        except DiskFull as error:
            # The old checkpoint is still true; a later turn writes the next one.
            if not self._is_full:
                _log.warning("event=checkpoint_postponed reason=%r", str(error))
            self._is_full = True
        except Exception as error:
            # Also an unexpected error: without this thread nothing would be flushed, and nobody would know.
            failure = self._failure = error if isinstance(error, DiskFailed) else DiskFailed(repr(error))
            self._notify(lambda: self._failed(failure))
            return False
        return True
