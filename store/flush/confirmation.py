"""What counts as stored: the flushed and the confirm offset, who waits for them, and the latch of a failed disk.

One meaning each, all of them offsets of the log.  Appended: all batches before it are whole, in the log and in the
queues; the log itself may reach further while one is being written, and goes back if that fails.  Flushed: a successful
sync covers everything before it.  Local: with ASYNC_FLUSH what is appended, with SYNC_FLUSH what is flushed.  Awaited:
what senders are answered for as far as replicas go.  Confirm: consumers may see what lies before it: what is local, and
not beyond the limit that replicas set.  Without replicas that count there is no such limit.

All of it lives in the owner thread, but `unflushed` and `snapshot`, which the flush threads call.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.failpoints import failpoint
from store.appender import Batch
from store.config.store_config import FlushDiskType, StoreConfig
from store.disk.disk import DiskFile
from store.flush.checkpoint import Checkpoint
from store.log.commit_log import CommitLog
from store.queue.logic_queue import LogicQueue

_log = logging.getLogger(__name__)
# (topic, queue_id, max_offset, first_offset): messages first_offset .. max_offset - 1 can now be read.
ArrivalListener: TypeAlias = Callable[[str, int, int, int], None]
ConfirmListener: TypeAlias = Callable[[StoreError | None], None]
# (error, whether enough replicas have it)
StoredListener: TypeAlias = Callable[[StoreError | None, bool], None]
# Bytes that a waiting message holds beside its own: request, message, response.
_WAITING_MESSAGE_BYTES: Final = 1024
# Behind every offset.
NO_LIMIT: Final = (1 << 63) - 1
_FLUSHED: Final = failpoint("confirmation.flushed")
_PUBLISHED: Final = failpoint("confirmation.published")
_ANSWERED: Final = failpoint("confirmation.answered")


class Confirmation:
    """Offsets and waiters of one log.  `wake` asks for a flush of what is written."""

    def __init__(self, config: StoreConfig, log: CommitLog, wake: Callable[[], None]) -> None:
        self._log = log
        self._wake = wake
        self._is_sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.on_arrival: list[ArrivalListener] = []
        self.on_failure: list[Callable[[DiskFailed], None]] = []
        # Called for each batch, shown or not.
        self.on_append: Callable[[], None] | None = None
        self.appended_offset = 0
        self.flushed_offset = 0
        self.failure: DiskFailed | None = None
        # What replicas allow; see `replicated`.
        self._limit = self._acknowledged = self.awaited_offset = NO_LIMIT
        # Store timestamps, ms: of the last record written, and of one that the flushed offset covers.
        self.last_store_timestamp = 0
        self._flushed_timestamp = 0
        # (appended offset, timestamp of a record before it) for the syncs that have not ended.
        self._syncing: deque[tuple[int, int]] = deque()
        # Batches that are written and not yet confirmed: (end in the log, [(queue, first offset, end offset)], cost).
        self._unconfirmed: deque[tuple[int, list[tuple[LogicQueue, int, int]], int]] = deque()
        # Memory that messages hold whose senders wait, about.
        self.waiting_bytes = 0
        self._waiters: deque[tuple[int, ConfirmListener]] = deque()
        self._senders: deque[tuple[int, StoredListener]] = deque()
        # Those who wait for the disk, whatever confirms; few, in no order.
        self._flush_waiters: list[tuple[int, ConfirmListener]] = []

    def begin(self, store_timestamp: int) -> None:
        """Recovery is done: the whole log is on the disk, its newest record has `store_timestamp`, ms."""
        self.flushed_offset = self.appended_offset = self._log.wrote_offset
        self.last_store_timestamp = self._flushed_timestamp = store_timestamp

    @property
    def local_offset(self) -> int:
        """What this replica holds as safely as FlushDiskType asks for."""
        return self.flushed_offset if self._is_sync_flush else self.appended_offset

    @property
    def confirm_offset(self) -> int:
        """Consumers may see what lies before this.  The one place that decides it."""
        # In this order: the index asks in its own thread, and the limit may come between an append and the next.
        return min(self.local_offset, self._limit)

    @property
    def is_limited(self) -> bool:
        """Whether a sync or replicas can hold the confirm offset behind what is appended."""
        return self._is_sync_flush or self._limit != NO_LIMIT

    # Replicas

    def replicated(self, limit: int | None, acknowledged: int, *, is_enough: bool) -> None:
        """Other replicas have more, or fewer of them count.

        Consumers may see what lies before `limit`, None for no more than now; it never goes back.  Enough replicas have
        what lies before `acknowledged`; unless `is_enough` nobody waits for more.  `NO_LIMIT` is behind everything.
        """
        confirm = self.confirm_offset
        self._limit = confirm if limit is None or limit < confirm else limit
        self._acknowledged = acknowledged
        self.awaited_offset = acknowledged if is_enough else NO_LIMIT
        if self.failure is None:
            self._advance()

    # Appended batches

    def appended(self, batch: Batch) -> None:
        """`batch` is written: show it now, or once it is confirmed."""
        self.appended_offset = batch.end_offset
        self.last_store_timestamp = batch.store_timestamp
        if self.on_append is not None:
            # First: while this replica shows it, the others get it.
            try:
                self.on_append()
            except Exception:
                # The messages are stored: what comes of sending them on must not turn into a failed send.
                _log.exception("state=not-sent-to-replicas")
        touched = []
        for queue, first in batch.touched:
            touched.append((queue, first, queue.next_offset))
        if not self._unconfirmed and self.confirm_offset >= batch.end_offset:
            self._publish(touched)
        else:
            cost = batch.size_bytes + _WAITING_MESSAGE_BYTES * len(batch.appended)
            self.waiting_bytes += cost
            self._unconfirmed.append((batch.end_offset, touched, cost))
            if self._is_sync_flush:
                # Consumers wait for the flush, whether or not whoever appended does.
                self._wake()

    def _publish(self, touched: list[tuple[LogicQueue, int, int]]) -> None:
        for queue, _, end in touched:
            queue.max_offset = end
        for listener in self.on_arrival:
            for queue, first, end in touched:
                try:
                    listener(queue.topic, queue.queue_id, end, first)
                except Exception:
                    # The messages are stored: a listener's error must not turn into a failed send.
                    _log.exception("topic=%s queue=%d listener failed", queue.topic, queue.queue_id)

    # Waiting

    def when_confirmed(self, physical_offset: int, callback: ConfirmListener) -> None:
        """Call `callback(None)` once ``confirm_offset >= physical_offset``, or with the error after a failure."""
        if self.failure is not None:
            callback(self.failure)
        elif self.confirm_offset >= physical_offset:
            callback(None)
        else:
            self._waiters.append((physical_offset, callback))
            if self._is_sync_flush:
                self._wake()

    def when_stored(self, physical_offset: int, callback: StoredListener) -> None:
        """Call `callback(None, is_replicated)` once a send that ends at `physical_offset` can be answered.

        That is when ``local_offset >= physical_offset`` and enough replicas have it, or are too few to wait for;
        `callback(error, False)` after a failure.
        """
        if self.failure is not None:
            callback(self.failure, False)
        elif self.local_offset >= physical_offset and self.awaited_offset >= physical_offset:
            callback(None, self._acknowledged >= physical_offset)
        else:
            self._senders.append((physical_offset, callback))
            if self._is_sync_flush:
                self._wake()

    def when_flushed(self, physical_offset: int, callback: ConfirmListener) -> None:
        """Call `callback(None)` once ``flushed_offset >= physical_offset``, or with the error after a failure."""
        if self.failure is not None:
            callback(self.failure)
        elif self.flushed_offset >= physical_offset:
            callback(None)
        else:
            self._flush_waiters.append((physical_offset, callback))

    def _answer_flush_waiters(self, error: StoreError | None) -> None:
        waiters, self._flush_waiters = self._flush_waiters, []
        for waiter in waiters:
            if error is not None or waiter[0] <= self.flushed_offset:
                waiter[1](error)
            else:
                self._flush_waiters.append(waiter)

    def answer_waiters(self, error: StoreError) -> None:
        """Give `error` to all who wait."""
        self._answer_flush_waiters(error)
        while self._waiters:
            self._waiters.popleft()[1](error)
        while self._senders:
            self._senders.popleft()[1](error, False)

    # Syncs

    def unflushed(self) -> tuple[int, int, list[DiskFile]]:
        """In the flush threads: the flushed offset, the appended one, and the files of what is written behind them.

        The files may hold more than what is appended: a batch that is being written.  It may be taken back, and a sync
        of it says nothing about what will stand there then.
        """
        # The time is read first: it is then that of a record before `appended`, or older.
        timestamp = self.last_store_timestamp
        flushed, appended = self.flushed_offset, self.appended_offset
        if appended > flushed:
            self._syncing.append((appended, timestamp))
        return flushed, appended, self._log.files_between(flushed, self._log.wrote_offset)

    def on_flushed(self, reached: int, error: DiskFailed | None) -> None:
        """A sync ended: the log is on the disk up to `reached`, or `error` is latched."""
        if error is not None:
            self.fail(error)
            return
        if self.failure is not None or reached <= self.flushed_offset:
            return
        self.flushed_offset = reached
        while self._syncing and self._syncing[0][0] <= reached:
            _, self._flushed_timestamp = self._syncing.popleft()
        _FLUSHED()
        self._advance()
        if self._flush_waiters:
            self._answer_flush_waiters(None)

    def _advance(self) -> None:
        """Publish and answer what the confirm offset now covers."""
        unconfirmed, waiters = self._unconfirmed, self._waiters
        confirm = self.confirm_offset
        while unconfirmed and unconfirmed[0][0] <= confirm:
            _, touched, cost = unconfirmed.popleft()
            self.waiting_bytes -= cost
            self._publish(touched)
            # Who hears of messages may append some; without a limit they are confirmed already.
            confirm = self.confirm_offset
        _PUBLISHED()
        while waiters and waiters[0][0] <= confirm:
            waiters.popleft()[1](None)
        senders, local = self._senders, self.local_offset
        while senders and senders[0][0] <= local and senders[0][0] <= self.awaited_offset:
            end, callback = senders.popleft()
            callback(None, self._acknowledged >= end)
        _ANSWERED()

    def fail(self, error: DiskFailed) -> None:
        """Latch a failure of the disk: reads go on, nothing more is acknowledged."""
        if self.failure is not None:
            return
        self.failure = error
        _log.error("state=disk-failed reason=%r", str(error))
        self.answer_waiters(error)
        for listener in self.on_failure:
            listener(error)

    def snapshot(self) -> Checkpoint:
        """In any thread: the checkpoint that holds once all queues are flushed."""
        # The time is read first: it is then that of a record before `flushed`, or older.
        timestamp, flushed = self._flushed_timestamp, self.flushed_offset
        return Checkpoint(timestamp, timestamp, 0, 0, flushed)
