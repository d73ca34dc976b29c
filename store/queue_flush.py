"""Flushes ConsumeQueues and writes the checkpoint, in a thread of its own.

Source: RocketMQ 5.3.3, `DefaultMessageStore.FlushConsumeQueueService`.  Beyond RocketMQ's intervals a
thorough flush also follows each 64 MiB of log, so that recovery after a crash has little to walk.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.failpoints import failpoint
from store.checkpoint import Checkpoint
from store.config import StoreConfig
from store.consume_queue_table import ConsumeQueueTable
from store.group_commit import Notify
from store.worker import ThreadWorker, Workers

_PAGE_BYTES: Final = 4096
_CHECKPOINT_LOG_BYTES: Final = 64 * 1024 * 1024
_BETWEEN_QUEUES: Final = failpoint("queue_flush.between_queues")
_BEFORE_CHECKPOINT: Final = failpoint("queue_flush.before_checkpoint")
_AFTER_CHECKPOINT: Final = failpoint("queue_flush.after_checkpoint")


class QueueFlush:
    """The thread.  `snapshot` gives the checkpoint that holds once all queues are flushed; `write` stores it."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        table: ConsumeQueueTable,
        snapshot: Callable[[], Checkpoint],
        write: Callable[[Checkpoint], None],
        notify: Notify,
        failed: Callable[[DiskFailed], None],
        workers: Workers = ThreadWorker,
    ) -> None:
        self._clock = clock
        self._table = table
        self._snapshot = snapshot
        self._write = write
        self._notify = notify
        self._failed = failed
        self._least_bytes = config.flush_consume_queue_least_pages * _PAGE_BYTES
        self._thorough_interval_s = config.flush_consume_queue_thorough_interval / 1000
        self._last_thorough = clock.monotonic()
        self._checkpoint_offset = 0
        self._busy = threading.Lock()
        self._worker = workers("store-flush-queues", self._turn, config.flush_interval_consume_queue / 1000)
        # Something else to do each turn, in this thread: the figures are sampled here.
        self.on_tick: Callable[[], None] = _nothing

    def start(self, flushed_offset: int) -> None:
        """Start the thread; the log was on the disk up to `flushed_offset`."""
        self._checkpoint_offset = flushed_offset
        self._worker.start()

    def stop(self) -> None:
        """End the thread."""
        self._worker.stop()

    def held(self) -> AbstractContextManager[object]:
        """While this is entered no queue is flushed: files may go.  Waits for the flush that runs."""
        return self._busy

    def flush_all(self) -> None:
        """Flush every queue and write the checkpoint.  Raises `DiskFailed` or `DiskFull`."""
        with self._busy:
            checkpoint = self._snapshot()
            self._flush_queues(1)
            _BEFORE_CHECKPOINT()
            self._write(checkpoint)
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
                self._flush_queues(max(1, self._least_bytes))

    def _flush_queues(self, least_bytes: int) -> None:
        for queue in self._table:
            if queue.unflushed_bytes() >= least_bytes:
                files, offset = queue.files_to_flush()
                for file in files:
                    file.sync()
                queue.flushed(offset)
                _BETWEEN_QUEUES()

    def _turn(self) -> bool:
        try:
            self.tick()
            self.on_tick()
        except StoreError as error:
            failure = error if isinstance(error, DiskFailed) else DiskFailed(str(error))
            self._notify(lambda: self._failed(failure))
            return False
        return True


def _nothing() -> None:
    """The default of `on_tick`."""
