"""Flushed and confirm offset, the callbacks that wait for them, and the latch of a failed disk.

All of these are offsets of the log:

- Appended: all batches before it are complete, in the log and in the queues.  The log itself may be longer while a
  batch is written; it is rolled back if the write fails.
- Flushed: a successful sync covers everything before it.
- Local: with ASYNC_FLUSH the appended offset, with SYNC_FLUSH the flushed offset.
- Awaited: sends that end before it need not wait for replicas any more.
- Confirm: consumers may see everything before it.  It is the local offset, but not more than the limit from replicas,
  if replicas set one.

Everything is for the owner thread, except `unflushed` and `snapshot`, which the flush threads call.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from store.appender import Batch
from store.config.store_config import FlushDiskType, StoreConfig
from store.disk.disk import DiskFile
from store.flush.checkpoint import Checkpoint
from store.log.commit_log import CommitLog
from store.queue.logic_queue import LogicQueue

_log = logging.getLogger(__name__)
# (queue, first offset, end offset): the messages from the first to before the end can now be read.
Arrival: TypeAlias = tuple[LogicQueue, int, int]
ArrivalListener: TypeAlias = Callable[[list[Arrival]], None]
ConfirmListener: TypeAlias = Callable[[StoreError | None], None]
# (error, whether enough replicas have the message)
StoredListener: TypeAlias = Callable[[StoreError | None, bool], None]
# Bytes of memory that a waiting message holds in addition to its record: request, message, response.
_WAITING_MESSAGE_BYTES: Final = 1024
# Larger than every offset.
NO_LIMIT: Final = (1 << 63) - 1
_FLUSHED: Final = failpoint("confirmation.flushed")
_PUBLISHED: Final = failpoint("confirmation.published")
_ANSWERED: Final = failpoint("confirmation.answered")


class Confirmation:
    """Offsets of one log, and callbacks that wait for them."""

    def __init__(self, config: StoreConfig, log: CommitLog) -> None:
        self._log = log
        self._is_sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.on_arrival: list[ArrivalListener] = []
        # By topic: listeners to one topic alone.  They cost nothing when messages of other topics arrive.
        self.on_arrival_of: dict[str, list[ArrivalListener]] = {}
        self.on_failure: list[Callable[[DiskFailed], None]] = []
        # Called when a flush is needed at once.
        self.on_flush_needed: list[Callable[[], None]] = []
        # Called after each appended batch, visible or not.
        self.on_append: list[Callable[[], None]] = []
        self.appended_offset = 0
        self.flushed_offset = 0
        self.failure: DiskFailed | None = None
        # Limits by replicas; see `replicated`.
        self._limit = self._acknowledged = self.awaited_offset = NO_LIMIT
        # Store timestamps, ms: of the last written record, and of a record before the flushed offset.
        self.last_store_timestamp = 0
        self._flushed_timestamp = 0
        # (appended offset, timestamp of a record before it) of the syncs that have not ended.
        self._syncing: deque[tuple[int, int]] = deque()
        # Written but unconfirmed batches: (end in the log, [(queue, first offset, end offset)], bytes of memory).
        self._unconfirmed: deque[tuple[int, list[Arrival], int]] = deque()
        # Visible messages that no listener was told of yet, one list for each batch.
        self._arrived: deque[list[Arrival]] = deque()
        self._is_telling = False
        # Bytes of memory, roughly, that messages with waiting senders hold.
        self.waiting_bytes = 0
        self._waiters: deque[tuple[int, ConfirmListener]] = deque()
        self._senders: deque[tuple[int, StoredListener]] = deque()
        # Waiters for the disk, whatever confirms a message; few, and in no order.
        self._flush_waiters: list[tuple[int, ConfirmListener]] = []

    def begin(self, store_timestamp: int) -> None:
        """Begin after recovery: the whole log is on the disk; `store_timestamp`, ms, is that of its newest record."""
        self.flushed_offset = self.appended_offset = self._log.wrote_offset
        self.last_store_timestamp = self._flushed_timestamp = store_timestamp

    @property
    def local_offset(self) -> int:
        """End of the part of the log that this replica holds as safely as FlushDiskType requires."""
        return self.flushed_offset if self._is_sync_flush else self.appended_offset

    @property
    def confirm_offset(self) -> int:
        """End of the part of the log that consumers may see.  Only this property decides it."""
        # In this order: the index reads it in its own thread, and the limit may change between two appends.
        return min(self.local_offset, self._limit)

    @property
    def is_limited(self) -> bool:
        """Whether a sync or replicas can keep the confirm offset below the appended offset."""
        return self._is_sync_flush or self._limit != NO_LIMIT

    # Replicas

    def replicated(self, limit: int | None, acknowledged: int, *, is_enough: bool) -> None:
        """Set what replicas have, after an acknowledgement or a change of the replicas that count.

        Consumers may see everything before `limit` (None: no more than now); the confirm offset never goes back.
        Enough replicas have everything before `acknowledged`.  Senders wait for replicas only if `is_enough`.
        `NO_LIMIT` is larger than every offset.
        """
        confirm = self.confirm_offset
        self._limit = confirm if limit is None or limit < confirm else limit
        self._acknowledged = acknowledged
        self.awaited_offset = acknowledged if is_enough else NO_LIMIT
        if self.failure is None:
            self._advance()

    def leave(self, error: StoreError) -> None:
        """Answer all who wait with `error`, forget who listens, and what replicas have: another owner begins.

        Everything that is on this replica counts as confirmed, as after a recovery.
        """
        self.answer_waiters(error)
        self.on_arrival.clear()
        self.on_arrival_of.clear()
        self.on_append.clear()
        self._limit = self._acknowledged = self.awaited_offset = NO_LIMIT
        if self.failure is None:
            self._advance()

    # Appended batches

    def appended(self, batch: Batch) -> None:
        """Take a written `batch`: make it visible now, or once it is confirmed."""
        self.appended_offset = batch.end_offset
        self.last_store_timestamp = batch.store_timestamp
        for listener in self.on_append:
            # First: the other replicas receive it while this one makes it visible.
            try:
                listener()
            except Exception:
                # The messages are stored: an error of replication must not become a failed send.
                peer_lines.error(_log, "", "event=replication_listener_failed", exc_info=True)
        touched = [(queue, first, queue.next_offset) for queue, first in batch.touched]
        if not self._unconfirmed and self.confirm_offset >= batch.end_offset:
            self._publish(touched)
            self._tell_listeners()
        else:
            cost = batch.size_bytes + _WAITING_MESSAGE_BYTES * batch.records
            self.waiting_bytes += cost
            self._unconfirmed.append((batch.end_offset, touched, cost))
            if self._is_sync_flush:
                # Consumers wait for the flush, even if the sender does not.
                for wake in self.on_flush_needed:
                    wake()

    def arrived_elsewhere(self, arrivals: list[Arrival]) -> None:
        """Tell the listeners of messages that can be read, and are not in this log."""
        self._arrived.append(arrivals)
        self._tell_listeners()

    def _publish(self, touched: list[Arrival]) -> None:
        for queue, _, end in touched:
            queue.max_offset = end
        self._arrived.append(touched)

    def _tell_listeners(self) -> None:
        """Tell all listeners of the messages that became visible, in the order of the log."""
        if self._is_telling:
            return  # a listener appended messages: the loop below tells of them after the present ones
        self._is_telling = True
        try:
            while self._arrived:
                self._tell_of(self._arrived.popleft())
        finally:
            self._is_telling = False

    def _tell_of(self, touched: list[Arrival]) -> None:
        _tell(self.on_arrival, touched)
        if self.on_arrival_of:
            for arrival in touched:
                listeners = self.on_arrival_of.get(arrival[0].topic)
                if listeners:
                    _tell(listeners, [arrival])

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
                for wake in self.on_flush_needed:
                    wake()

    def when_stored(self, physical_offset: int, callback: StoredListener) -> None:
        """Call `callback(None, is_replicated)` once the response to a send that ends at `physical_offset` may go.

        That is when ``local_offset >= physical_offset``, and enough replicas have it or are too few to wait for.  After
        a failure, call `callback(error, False)`.
        """
        if self.failure is not None:
            callback(self.failure, False)
        elif self.local_offset >= physical_offset and self.awaited_offset >= physical_offset:
            callback(None, self._acknowledged >= physical_offset)
        else:
            self._senders.append((physical_offset, callback))
            if self._is_sync_flush:
                for wake in self.on_flush_needed:
                    wake()

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
        """Call all waiting callbacks with `error`."""
        self._answer_flush_waiters(error)
        while self._waiters:
            self._waiters.popleft()[1](error)
        while self._senders:
            self._senders.popleft()[1](error, False)

    # Syncs

    def unflushed(self) -> tuple[int, int, list[DiskFile]]:
        """Return flushed offset, appended offset, and the files with unflushed bytes.  For the flush threads.

        The files may also hold a batch that is being written.  It may be rolled back, so its sync does not cover the
        bytes that are written there later.
        """
        # The timestamp is read first, so it is that of a record before `appended`, or older.
        timestamp = self.last_store_timestamp
        flushed, appended = self.flushed_offset, self.appended_offset
        if appended > flushed:
            self._syncing.append((appended, timestamp))
        return flushed, appended, self._log.files_between(flushed, self._log.wrote_offset)

    def on_flushed(self, reached: int, error: DiskFailed | None) -> None:
        """End a sync: the log is on the disk up to `reached`, or `error` is latched."""
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
        """Publish batches and call waiters up to the confirm offset.

        Listeners come last: a response must not wait for what they do.
        """
        unconfirmed, waiters = self._unconfirmed, self._waiters
        confirm = self.confirm_offset
        while unconfirmed and unconfirmed[0][0] <= confirm:
            _, touched, cost = unconfirmed.popleft()
            self.waiting_bytes -= cost
            self._publish(touched)
        _PUBLISHED()
        while waiters and waiters[0][0] <= confirm:
            waiters.popleft()[1](None)
        senders, local = self._senders, self.local_offset
        while senders and senders[0][0] <= local and senders[0][0] <= self.awaited_offset:
            end, callback = senders.popleft()
            callback(None, self._acknowledged >= end)
        _ANSWERED()
        self._tell_listeners()

    def fail(self, error: DiskFailed) -> None:
        """Latch a failure of the disk: reads continue, but nothing more is acknowledged."""
        if self.failure is not None:
            return
        self.failure = error
        _log.error("event=disk_failed reason=%r", str(error))
        self.answer_waiters(error)
        for listener in self.on_failure:
            listener(error)

    def snapshot(self) -> Checkpoint:
        """Return the checkpoint that is true once all queues are flushed.  For any thread."""
        # The timestamp is read first, so it is that of a record before `flushed`, or older.
        timestamp, flushed = self._flushed_timestamp, self.flushed_offset
        return Checkpoint(timestamp, timestamp, 0, 0, flushed)


def _tell(listeners: list[ArrivalListener], arrivals: list[Arrival]) -> None:
    for listener in listeners:
        try:
            listener(arrivals)
        except Exception:
            # The messages are stored: an error of a listener must not become a failed send.
            queues = [f"{queue.topic}:{queue.queue_id}" for queue, _, _ in arrivals]
            peer_lines.error(_log, "", "event=arrival_listener_failed queues=%s", queues, exc_info=True)
