"""The message store: the broker appends to it and reads from it.

Threads: the calling thread is the owner; two threads must not call at the same time.  Syncs and preallocation run in
threads of their own and report through `notify`.

Offsets: ``confirm_offset <= wrote_offset`` and ``flushed_offset <= wrote_offset``.  Consumers see messages before
`confirm_offset` only.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFailed, DiskFull, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.figures import Declared
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.message.topic_names import LIGHT_QUEUE_ID
from store.appender import Appender, Batch, EncodedRecords
from store.compaction.compacted_queue import get_compacted
from store.compaction.compaction import Compaction
from store.config.store_config import StoreConfig
from store.disk.disk import Disk, DiskLock, RealDisk
from store.dledger.folders import refuse_entry_files
from store.flush.checkpoint import Checkpoint
from store.flush.confirmation import ArrivalListener, Confirmation, ConfirmListener
from store.flush.group_commit import GroupCommit, Notify
from store.flush.queue_flush import QueueFlush
from store.flush.queue_list import QueueKey
from store.index.index_service import IndexService
from store.layout import CONSUME_QUEUE_DTYPE
from store.log.cold_area import ColdArea
from store.log.commit_log import CommitLog
from store.log.log_scan import TURN_BYTES, ChunkScan
from store.log_figures import log_figures
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.get_result import Boundary, GetResult, GetStatus
from store.queue.kernel_reads import KernelReads
from store.queue.logic_queue import LogicQueue, QueueType, QueueTypeOf, unknown_type
from store.queue.queue_reader import MessageFilter, QueueReader, TagsFilter, physical_memory_bytes
from store.queue.record_filter import RecordFilter
from store.queue.time_search import offset_by_time
from store.record.record import Appended, PendingMessage, TagsCodes
from store.recovery.bookkeeping import Bookkeeping
from store.recovery.recovery import RecoveryReport
from store.replica.master_log import MasterLog
from store.replica.replica_log import StoreReplicaLog
from store.retention.back_pressure import Cause
from store.retention.cleaner import Cleaner
from store.retention.queue_removal import QueueRemoval, Removal
from store.scan.record_batch import RecordBatch
from store.statistics import StoreStatistics
from store.worker import ThreadWorker, Workers

__all__ = ["Appended", "Boundary", "GetResult", "GetStatus", "MessageStore", "PendingMessage", "TagsFilter"]

_log = logging.getLogger(__name__)
_LOCKED: Final = failpoint("message_store.locked")
_Messages = TypeVar("_Messages", Sequence[PendingMessage], EncodedRecords)
_RECOVERED: Final = failpoint("message_store.recovered")
_STOP_BEFORE_FLUSH: Final = failpoint("message_store.stop_before_flush")
_STOP_FLUSHED: Final = failpoint("message_store.stop_flushed")
_STOP_BEFORE_ABORT: Final = failpoint("message_store.stop_before_abort_removed")
_STOP_AFTER_ABORT: Final = failpoint("message_store.stop_after_abort_removed")


class MessageStore:
    """The CommitLog, the ConsumeQueues, and the threads that flush them."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        clock: Clock,
        notify: Notify,
        disk: Disk | None = None,
        workers: Workers = ThreadWorker,
        queue_type_of: QueueTypeOf = unknown_type,
    ) -> None:
        self.config = config
        self._clock = clock
        self.disk: Disk = RealDisk() if disk is None else disk
        self._tags_codes = TagsCodes(config.message_delay_level)
        self._commit_log = CommitLog(config, self.disk, workers)
        self._table = ConsumeQueueTable(config, self.disk, queue_type_of)
        self._books = Bookkeeping(config, clock, self.disk, self._commit_log, self._table)
        self._appender = Appender(config, self._commit_log, self._table, self._tags_codes)
        self._reader = QueueReader(config, self._commit_log, physical_memory_bytes())
        self.cold_area = ColdArea(config, self._commit_log, physical_memory_bytes())
        self.confirmation = Confirmation(config, self._commit_log)
        self._group_commit = GroupCommit(config, clock, notify, self.confirmation.unflushed, self._on_flushed, workers)
        self.confirmation.on_flush_needed.append(self._group_commit.wake)
        self.index = IndexService(
            config, clock, disk=self.disk, log=self._commit_log, confirm=lambda: self.confirmation.confirm_offset,
            notify=notify, failed=self.confirmation.fail, workers=workers,
        )  # fmt: skip
        self._queue_flush = QueueFlush(
            config, clock, self._table, self._commit_log, sync_log=self._group_commit.flush, snapshot=self._snapshot,
            write=self._books.write_checkpoint, notify=notify, failed=self.confirmation.fail, workers=workers,
        )  # fmt: skip
        self.compaction = Compaction(
            config, clock, disk=self.disk, log=self._commit_log, table=self._table,
            durable_end=lambda: min(self.confirm_offset, self.flushed_offset), notify=notify, workers=workers,
        )  # fmt: skip
        self.cleaner = Cleaner(
            config, clock, disk=self.disk, log=self._commit_log, table=self._table, confirmation=self.confirmation,
            group_commit=self._group_commit, queue_flush=self._queue_flush, compaction=self.compaction, notify=notify,
            workers=workers,
        )  # fmt: skip
        self._removal = QueueRemoval(self._commit_log, self._table, self._books, self.cleaner, self.confirmation)
        self._removal.on_topic_removed.append(self.compaction.forget)
        self._pressure = self.cleaner.pressure
        self.kernel_reads = KernelReads(self._commit_log, self._table, self._reader, self.compaction.is_compacted)
        self.statistics = StoreStatistics(clock, self._reader, on_slow_put=self._pressure.append_was_slow)
        self._queue_flush.on_tick.extend((self.statistics.sample, lambda: notify(self._table.rest)))
        # Called in the owner thread: `on_arrival` once per batch when its messages become visible,
        # `on_arrival_of` the same for one topic, `on_failure` once if the disk fails.
        self.on_arrival: list[ArrivalListener] = self.confirmation.on_arrival
        self.on_arrival_of: dict[str, list[ArrivalListener]] = self.confirmation.on_arrival_of
        self.on_failure: list[Callable[[DiskFailed], None]] = self.confirmation.on_failure
        self.on_queues_removed: list[Callable[[], None]] = self._table.on_removed
        self._name_calls()
        self.recovery: RecoveryReport | None = None
        self._lock: DiskLock | None = None

    def _name_calls(self) -> None:
        """Name what parts of the store do for its owner."""
        appender, log = self._appender, self._commit_log
        self.encoded_limits, self.plain_queue, self.new_queues = (
            appender.encoded_limits, appender.plain_queue, appender.new_queues,
        )  # fmt: skip
        self.refuse, self.refusals = appender.refuse, appender.refusals
        self.segment_before, self.first_store_time = log.segment_before, log.first_store_time
        self.light_queues = self._table.light
        self.topic_removal, self.light_removal = self._removal.of_topic, self._removal.of_light

    # Life

    @property
    def store_host(self) -> bytes:
        """The broker's own address, 4 or 16 bytes, then the port, 4 bytes, as in records."""
        return self._appender.store_host

    @store_host.setter
    def store_host(self, host: bytes) -> None:
        self._appender.store_host = host

    def start(self) -> None:
        """Load or recover, then start the flush threads.

        Raises `ConfigError`, or `StoreError` that names the file and the fault.
        """
        self.config.check()
        root = self.config.store_path_root_dir
        refuse_entry_files(self.disk, root)
        self._lock = self.disk.lock(root / "lock")
        _LOCKED()
        try:
            trusted_offset = self._recover()
        except BaseException:
            self._close()
            raise
        self._group_commit.start()
        self._queue_flush.start(trusted_offset)
        self.cleaner.start()
        self.compaction.start()
        self.index.start()

    def _recover(self) -> int:
        report = self.recovery = self._books.recover(self._tags_codes, check_crc=self.config.check_crc_on_recover)
        _RECOVERED()
        self.compaction.load(self._books.deleted.offset_of)
        self._reader.cold.begin(self._table)
        self.confirmation.begin(self._books.store_timestamp)
        self.index.load(self._books.index_timestamp, clean=report.was_clean)
        _log.info(
            "event=store_started clean=%s log_min=%d log_max=%d walked_from=%d records=%d rebuilt=%s", report.was_clean,
            self._commit_log.min_offset, report.end_offset, report.start_offset, report.records, report.rebuilt,
        )  # fmt: skip
        return report.start_offset

    def shutdown(self) -> None:
        """Flush everything, write the checkpoint and remove `abort`.  After a disk failure, only close."""
        self._group_commit.stop()
        self._queue_flush.stop()
        if self._lock is not None and self.failure is None:
            _STOP_BEFORE_FLUSH()
            self.flush()
            _STOP_FLUSHED()
            if self.failure is None:
                self._write_stop()
        self.confirmation.answer_waiters(self.failure or StoreError("the store is shut down"))
        self._close()
        _log.info("event=store_stopped log_max=%d failed=%s", self._commit_log.wrote_offset, self.failure is not None)

    def _write_stop(self) -> None:
        """Record a clean stop on the disk.  If that fails, the next start recovers as after a crash."""
        try:
            self.index.shutdown()
            self._queue_flush.flush_all()
            _STOP_BEFORE_ABORT()
            self._books.stopped()
            _STOP_AFTER_ABORT()
        except DiskFull as error:
            _log.warning("event=checkpoint_left_out reason=%r", str(error))
        except StoreError as error:
            self.confirmation.fail(error if isinstance(error, DiskFailed) else DiskFailed(str(error)))

    def leave(self, error: StoreError) -> None:
        """End the work for one owner, and let another one begin with the open store, as if it had just recovered.

        The owner has flushed the log.  All who wait get `error`; nobody listens any more, except for failures.
        """
        self.confirmation.leave(error)
        self._pressure.replicas_changed(is_refusing=False)
        self._appender.refuse("")

    def _snapshot(self) -> Checkpoint:
        checkpoint = self.confirmation.snapshot()
        checkpoint.index_msg_timestamp = self.index.durable_timestamp
        return checkpoint

    def _close(self) -> None:
        # Whatever fails, release the lock at the end: otherwise this process could not open the store again.
        closing = [
            self._books.close, self._table.close, self._commit_log.close, self.cleaner.stop, self.compaction.stop,
            self.index.close,
        ]  # fmt: skip
        with ExitStack() as last_first:
            if self._lock is not None:
                last_first.callback(self._lock.release)
                self._lock = None
            for close in closing:
                last_first.callback(close)

    def configure(self, config: StoreConfig) -> None:
        """Apply a changed configuration: the keys that may change while the store runs."""
        self.config = config
        parts = (
            self.cleaner, self._commit_log, self._reader, self.cold_area, self._appender, self._group_commit,
            self._queue_flush, self.index, self.compaction,
        )  # fmt: skip
        for part in parts:
            part.configure(config)

    # Appending

    def append(self, messages: Sequence[PendingMessage]) -> list[Appended]:
        """Append all of `messages` as one batch; return (queue_offset, physical_offset, size_bytes) of each.

        Raises `RequestError` for a message over a limit, `DiskFull`, `StoreBusy` if too much waits already, or
        `DiskFailed` (from then on always).  After an error nothing of the batch is visible.
        """
        return self._append(self._appender.append, messages).appended

    def append_encoded(self, records: EncodedRecords) -> int:
        """Append all of `records` or none, as `append`; return where they end in the log.

        They fit into the room of `encoded_limits` and are for queues that `plain_queue` returns, both asked now.  They
        exceed no limit of a message: the store does not check that.
        """
        return self._append(self._appender.append_encoded, records).end_offset

    def _append(self, append: "Callable[[_Messages, int], Batch]", messages: "_Messages") -> Batch:
        confirmation, pressure, count = self.confirmation, self._pressure, len(messages)
        if confirmation.failure is not None:
            self._check()
        if (
            self._commit_log.wrote_offset - confirmation.flushed_offset >= pressure.max_unflushed_bytes
            or confirmation.waiting_bytes >= pressure.max_waiting_bytes
        ):
            self._refuse(count)
        clock = self._clock
        started = clock.monotonic()
        try:
            batch = append(messages, clock.wall_ms())
        except DiskFailed as error:
            self.confirmation.fail(error)
            raise
        except StoreError as error:
            self.statistics.put_failed(count)
            if isinstance(error, DiskFull):
                raise pressure.no_space(error, count) from error
            raise
        confirmation.appended(batch)
        self.statistics.put(batch.message_count, batch.size_bytes, clock.monotonic() - started)
        return batch

    def _check(self) -> None:
        if self.failure is not None:
            raise DiskFailed(str(self.failure))

    @property
    def refusal_cause(self) -> Cause | None:
        """Cause for which an append would be refused now; None if it would not be."""
        return self._pressure.cause(self._unflushed_bytes, self.confirmation.waiting_bytes)

    @property
    def _unflushed_bytes(self) -> int:
        return self._commit_log.wrote_offset - self.confirmation.flushed_offset

    def _refuse(self, messages: int) -> None:
        """Raise `DiskFull` or `StoreBusy`, unless the cause has ended."""
        error = self._pressure.refusal(messages, self._unflushed_bytes, self.confirmation.waiting_bytes)
        if error is not None:
            self.statistics.put_failed(messages)
            raise error

    # Scanning

    def records_from(self, physical_offset: int) -> tuple[RecordBatch | None, int]:
        """Return the next records at or after `physical_offset`, confirmed or not, and where to continue.

        They begin within `TURN_BYTES`; None without any.  A segment is skipped from its first damaged record on.
        """
        log = self._commit_log
        scan = ChunkScan(log, max(physical_offset, log.min_offset), check_crc=False, batch_bytes=TURN_BYTES)
        if (batch := next(iter(scan), None)) is not None:
            return batch, batch.end_offset
        if scan.end_offset < self._commit_log.wrote_offset:
            peer_lines.error(_log, "", "event=records_unreadable offset=%d reason=%r", scan.end_offset, scan.reason)
        return None, self._commit_log.segment_end(scan.end_offset)

    def holds(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> bool:
        """Return whether a queue has, or had until it expired, the record at `physical_offset`, confirmed or not.

        It has not after the topic was deleted, also if it was created again.
        """
        queue = self._table.by_key.get((topic, queue_id))
        if queue is None or queue_offset >= queue.next_offset:
            return False
        if queue_offset < queue.min_offset:
            return True
        entry = queue.entry(queue_offset)
        return entry is not None and entry[0] == physical_offset

    # Offsets and syncs

    def _on_flushed(self, reached: int, error: DiskFailed | None) -> None:
        if error is None:
            # Before any sender is answered: the mark on the disk must cover every acknowledged message.
            self._books.flushed(reached)
        self.confirmation.on_flushed(reached, error)

    def replica(self) -> StoreReplicaLog:
        """Return the log for a replica, which fills it with its master's bytes instead of `append`."""
        parts = self._commit_log, self._table, self._tags_codes, self.confirmation, self._appender
        return StoreReplicaLog(*parts, self._check, self._books.intend_cut)

    def master_log(self) -> MasterLog:
        """Return the log for a master, which sends it to replicas."""
        return MasterLog(self._commit_log, self.confirmation, self._pressure)

    def flush(self) -> None:
        """Sync the log in this thread.  A failure is latched."""
        self._on_flushed(*self._group_commit.flush())

    @property
    def wrote_offset(self) -> int:
        """End of the log."""
        return self._commit_log.wrote_offset

    @property
    def first_physical_offset(self) -> int:
        """Begin of the log: what was before it has expired."""
        return self._commit_log.min_offset

    @property
    def flushed_offset(self) -> int:
        """End of the part of the log that is on the disk."""
        return self.confirmation.flushed_offset

    @property
    def confirm_offset(self) -> int:
        """End of the part of the log that consumers may see."""
        return self.confirmation.confirm_offset

    def when_confirmed(self, physical_offset: int, callback: ConfirmListener) -> None:
        """Call `callback(None)` in the owner thread once ``confirm_offset >= physical_offset``, or at once.

        Pass a record's end (physical offset plus size).  With SYNC_FLUSH all waiting callbacks share one sync.  If it
        fails, each is called with `DiskFailed`.
        """
        self.confirmation.when_confirmed(physical_offset, callback)

    def when_flushed(self, physical_offset: int, callback: ConfirmListener) -> None:
        """Do the same for `flushed_offset`, whatever FlushDiskType is, and request a flush."""
        self.confirmation.when_flushed(physical_offset, callback)
        self._group_commit.ask()

    @property
    def failure(self) -> DiskFailed | None:
        """The latched failure of the disk; None without one."""
        return self.confirmation.failure

    # Reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        matches: MessageFilter | None = None,
    ) -> GetResult:
        """Return messages of a queue from `offset` on that `matches` (None: all), within the transfer limits.

        A damaged record ends the result.  Raises `CorruptRecord` if the first record is damaged.
        """
        queue = self._table.by_key.get((topic, queue_id))
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0, False)
        compacted = self.compaction.of(topic, queue_id)
        if compacted is None:
            return self._reader.get(queue, offset, max_messages, max_bytes, matches)
        return get_compacted(self._reader, queue, compacted, offset, max_messages, max_bytes, matches)

    def record_at(self, physical_offset: int, size_bytes: int | None = None) -> memoryview | None:
        """Return the record at `physical_offset`, without a copy; None if there is none or it is not confirmed.

        Raises `CorruptRecord` for a damaged record, as `get` does.
        """
        record = self._commit_log.record_at(physical_offset, size_bytes)
        if record is None or physical_offset + len(record) > self.confirm_offset:
            return None
        is_record = self._reader.cold.is_record(record, physical_offset, is_sure=size_bytes is not None)
        return record if is_record else None

    def is_in_memory(self, physical_offset: int) -> bool:
        """Return whether the system's cache probably holds a record, because it is near the log's end."""
        return self.wrote_offset - physical_offset <= self._reader.memory_limit_bytes

    def tags_codes(self, topic: str, queue_id: int, first_offset: int, end_offset: int) -> npt.NDArray[np.int64]:
        """Return the tags codes of a queue's entries from `first_offset` to before `end_offset`, within one file."""
        return self.entries(topic, queue_id, first_offset, end_offset)["tags_code"].astype(np.int64)

    def entries(self, topic: str, queue_id: int, first_offset: int, end_offset: int) -> npt.NDArray[np.void]:
        """Return the same entries as an array of `CONSUME_QUEUE_DTYPE`, without a copy."""
        queue = self._table.by_key.get((topic, queue_id))
        if queue is None:
            return np.empty(0, CONSUME_QUEUE_DTYPE)
        return queue.entries(first_offset, end_offset - first_offset)

    def has_wanted(self, topic: str, queue_id: int, first_offset: int, end_offset: int, wants: RecordFilter) -> bool:
        """Return whether `wants` matches one of these messages, or they are more than one read may check."""
        queue = self._table.by_key.get((topic, queue_id))
        return queue is not None and self._reader.has_wanted(queue, first_offset, end_offset, wants)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the oldest message; 0 for an unknown queue."""
        queue = self._table.by_key.get((topic, queue_id))
        compacted = self.compaction.of(topic, queue_id)
        return 0 if queue is None else queue.min_offset if compacted is None else compacted.first_offset

    def gap(self, topic: str, queue_id: int) -> range:
        """Return the offsets between a queue's compacted part and its log: what is there, only an archive has."""
        queue, compacted = self._table.by_key.get((topic, queue_id)), self.compaction.of(topic, queue_id)
        return range(compacted.end_offset, queue.min_offset) if compacted and queue else range(0)

    def reported_min_offset(self, topic: str, queue_id: int) -> int:
        """Return `min_offset` as RocketMQ responds: -1 for a batch queue that never had a message."""
        queue = self._table.by_key.get((topic, queue_id))
        if queue is None:
            return -1 if self._table.queue_type(topic) is QueueType.BATCH else 0
        compacted = self.compaction.of(topic, queue_id)
        return queue.reported_min_offset if compacted is None else compacted.first_offset

    @property
    def light_queue_count(self) -> int:
        """Number of light queues (LMQ)."""
        return self._table.light_count

    def light_name(self, name: str) -> str:
        """Return the store's own string of a light queue's name, so that tables share one; `name` without a queue."""
        queue = self._table.by_key.get((name, LIGHT_QUEUE_ID))
        return name if queue is None else queue.topic

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return one past the newest confirmed message; 0 for an unknown queue."""
        queue = self._table.by_key.get((topic, queue_id))
        return 0 if queue is None else queue.max_offset

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message gets, confirmed or not; 0 for an unknown queue."""
        queue = self._table.by_key.get((topic, queue_id))
        return 0 if queue is None else queue.next_offset

    def entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Return (physical_offset, size_bytes, tags_code) of a message; None if the queue does not have it."""
        queue = self._table.by_key.get((topic, queue_id))
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return None
        return queue.entry(offset)

    def mapped_entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Do as `entry`, for a queue of single messages that is read often: its file is mapped, so no call reads it."""
        queue = self._table.by_key.get((topic, queue_id))
        if not isinstance(queue, ConsumeQueue) or not queue.min_offset <= offset < queue.max_offset:
            return None
        return queue.mapped_entry(offset)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Return the offset of a time, see `store.queue.time_search`; 0 for an unknown queue."""
        queue = self._table.by_key.get((topic, queue_id))
        compacted = self.compaction.of(topic, queue_id)
        found = None if compacted is None else compacted.offset_by_time(timestamp_ms, boundary)
        if queue is None or found is not None:
            return found or 0
        return offset_by_time(queue, self._commit_log, timestamp_ms, boundary)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store timestamp, ms, of a message; -1 if the queue does not have it."""
        entry = self.entry(topic, queue_id, offset)
        return -1 if entry is None else self._commit_log.store_time_at(entry[0], entry[1])

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return the store timestamp, ms, of the queue's oldest message; -1 if it has none."""
        compacted = self.compaction.of(topic, queue_id)
        if compacted is not None and compacted.first_store_time >= 0:
            return compacted.first_store_time
        return self.store_time(topic, queue_id, self.min_offset(topic, queue_id))

    def queues(self) -> list[tuple[str, int]]:
        """Return (topic, queue_id) of every queue."""
        return list(self._table.by_key)

    def usual_queues(self) -> list[tuple[str, int]]:
        """Return (topic, queue_id) of every queue that is not light: of light ones there may be very many."""
        return list(self._table.usual)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether there is a queue."""
        return (topic, queue_id) in self._table.by_key

    @property
    def queue_count(self) -> int:
        """Number of all queues."""
        return len(self._table.by_key)

    def continue_at(self, ends: Mapping[QueueKey, int]) -> None:
        """Let queues whose messages are all elsewhere end there, and tell who waits (`ConsumeQueueTable`)."""
        self.confirmation.arrived_elsewhere(self._table.continue_at(ends))

    def delete_topic(self, topic: str) -> int:
        """Remove the ConsumeQueues of `topic`; return how many there were.  Raises `DiskFull` or `DiskFailed`.

        The log keeps the messages until they expire.  The deletion is recorded first, durably, so that recovery does
        not restore them; `topic_removal` does that in another thread.  This does not wait for a sync of the queues.
        """
        return self.topic_removal(topic).run()

    def was_deleted(self, topic: str) -> bool:
        """Return whether the log may have messages of an earlier topic of this name."""
        return self._books.deleted.offset_of(topic) > 0

    def expired_removal(self, is_kept: Callable[[str], bool]) -> Removal[dict[QueueKey, LogicQueue]]:
        """Return the removal of queues whose messages have all expired, except topics for which `is_kept` is true.

        It returns how many it removed.  Such a queue begins at 0 again.
        """
        return self._removal.of_expired(lambda topic: is_kept(topic) or self.compaction.is_compacted(topic))

    def figures(self) -> list[Declared]:
        """Return the store's figures, under RocketMQ's names."""
        log = log_figures(self._commit_log, self.disk, self.config)
        return [*self.statistics.figures(), *self.cleaner.pressure.figures(), *log]
