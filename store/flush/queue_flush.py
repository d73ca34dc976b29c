"""Flushes ConsumeQueues and writes the checkpoint, in a thread of its own.

Source: RocketMQ 5.3.3, `DefaultMessageStore.FlushConsumeQueueService`.  Beyond RocketMQ's intervals a
thorough flush also follows each 64 MiB of log, so that recovery after a crash has little to walk.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

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

_log = logging.getLogger(__name__)
_PAGE_BYTES: Final = 4096
_CHECKPOINT_LOG_BYTES: Final = 64 * 1024 * 1024
_QUEUES_AT_ONCE: Final = 1024
_PAUSE_S: Final = 0.001
_BETWEEN_QUEUES: Final = failpoint("queue_flush.between_queues")
_BEFORE_CHECKPOINT: Final = failpoint("queue_flush.before_checkpoint")
_AFTER_CHECKPOINT: Final = failpoint("queue_flush.after_checkpoint")


def _nothing() -> None:
    """The default of `on_tick`."""


class QueueFlush:
    """The thread.

    `snapshot` gives the checkpoint that holds once all queues are flushed; `write` stores it, with the units of each
    queue that are on the disk by then.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        table: ConsumeQueueTable,
        log: CommitLog,
        sync_log: Callable[[], tuple[int, DiskFailed | None]],
        snapshot: Callable[[], Checkpoint],
        write: Callable[[Checkpoint, QueueList], None],
        notify: Notify,
        failed: Callable[[DiskFailed], None],
        workers: Workers = ThreadWorker,
        *,
        on_tick: Callable[[], None] = _nothing,
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
        self._checkpoint_offset = 0
        self._busy = threading.Lock()
        self._pause = threading.Event()
        self._is_full = False
        self._failure: DiskFailed | None = None
        self._worker = workers("store-flush-queues", self._turn, config.flush_interval_consume_queue / 1000)
        self.configure(config)
        table.files.on_pressure = self._worker.wake
        # Something else to do each turn, in this thread: the figures are sampled here.
        self._on_tick = on_tick

    def configure(self, config: StoreConfig) -> None:
        """Take intervals and sizes, also changed ones."""
        self._least_bytes = config.flush_consume_queue_least_pages * _PAGE_BYTES
        self._thorough_interval_s = config.flush_consume_queue_thorough_interval / 1000
        self._worker.pace(config.flush_interval_consume_queue / 1000)

    def start(self, flushed_offset: int) -> None:
        """Start the thread; the log was on the disk up to `flushed_offset`."""
        self._checkpoint_offset = flushed_offset
        self._worker.start()

    def stop(self) -> None:
        """End the thread."""
        self._worker.stop()

    def flush_all(self) -> None:
        """Flush every queue and write the checkpoint.  Raises `DiskFull`, or `DiskFailed`: from then on always."""
        if self._failure is not None:
            # The owner may not have heard of it yet, and must not make a clean stop of it.
            raise DiskFailed(str(self._failure))
        with self._busy:
            checkpoint = self._snapshot()
            queue_list = self._flush_and_list(checkpoint.confirm_phy_offset)
            # What the queues say beyond the checkpoint must be in the log too, or a crash makes them say too much.
            if self._log.wrote_offset > checkpoint.confirm_phy_offset:
                _, error = self._sync_log()
                if error is not None:
                    raise error
            _BEFORE_CHECKPOINT()
            self._write(checkpoint, queue_list)
            _AFTER_CHECKPOINT()
            self._checkpoint_offset = checkpoint.confirm_phy_offset

    def tick(self) -> None:
        """One turn: what is due now.  Raises as `flush_all`."""
        now = self._clock.monotonic()
        is_thorough = now - self._last_thorough >= self._thorough_interval_s
        if is_thorough or self._snapshot().confirm_phy_offset - self._checkpoint_offset >= _CHECKPOINT_LOG_BYTES:
            self._last_thorough = now
            self.flush_all()
        else:
            with self._busy:
                # Files with unsynced entries cannot be closed for others.
                self._flush_queues(1 if self._table.files.is_under_pressure else max(1, self._least_bytes))

    def _flush_queues(self, least_bytes: int) -> None:
        for queues in self._slices():
            self._flush([queue for queue in queues if queue.unflushed_bytes() >= least_bytes])

    def _flush(self, queues: list[LogicQueue]) -> list[int]:
        """Flush these queues together; return one past the last unit of each that is now on the disk."""
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
        """Flush all queues, whose records lie before `log_offset` at least; return how far each is flushed."""
        found = QueueList(log_offset, log_min_offset=self._log.min_offset)
        for queues in self._slices():
            for queue, end in zip(queues, self._flush(queues), strict=True):
                if end:
                    found.end_units[queue.topic, queue.queue_id] = end
                    if queue.first_unit:
                        found.first_units[queue.topic, queue.queue_id] = queue.first_unit
        return found

    def _slices(self) -> Iterator[list[LogicQueue]]:
        """All queues, some at a time; in between whoever sends gets the interpreter."""
        queues = list(self._table)
        for at in range(0, len(queues), _QUEUES_AT_ONCE):
            if at:
                self._pause.wait(_PAUSE_S)
            yield queues[at : at + _QUEUES_AT_ONCE]

    def _turn(self) -> bool:
        try:
            self.tick()
            self._is_full = False
            self._on_tick()
        except DiskFull as error:
            # The checkpoint promises what it promised before; a later turn writes the next one.
            if not self._is_full:
                _log.warning("state=disk-full action=checkpoint-postponed reason=%r", str(error))
            self._is_full = True
        except Exception as error:
            # Also one that nobody foresaw: without this thread nothing would be flushed, and nobody would know.
            failure = self._failure = error if isinstance(error, DiskFailed) else DiskFailed(repr(error))
            self._notify(lambda: self._failed(failure))
            return False
        return True
