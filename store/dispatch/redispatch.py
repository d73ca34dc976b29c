"""Writing of ConsumeQueue entries for records that recovery or a replica found in the log.

`Redispatch._put` has the rules, for one record.  `add_batch` writes the same entries: runs of records that follow their
queue's last entry with one call, and all others by `_put`.
"""

import logging
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.common.errors import RequestError
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.message.topic_names import LIGHT_QUEUE_ID, is_light
from store.dispatch.deleted_topics import DeletedTopics
from store.dispatch.queue_order import order_by_queue, queue_key, queue_keys
from store.layout import CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_UNIT_BYTES
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.inner_batch import message_count
from store.queue.logic_queue import LogicQueue, QueueType
from store.queue.multi_dispatch import dispatched_records, dispatches, places
from store.record.record import NOT_DISPATCHED, Record, TagsCodes
from store.scan.columns import Integers
from store.scan.queue_codes import queue_codes_of
from store.scan.record_batch import RecordBatch

_log = logging.getLogger(__name__)
_WRITE_AT: Final = 3 * 128
# With a thousand queues, a batch holds few records of each queue; only many entries at a time are cheap to write.
_HOLD_RECORDS: Final = 64 * 1024
# A property of the record gives its offset in a light queue: a wrong one must not fill the disk with blanks.
_MAX_BLANKS: Final = 1 << 20
_BETWEEN_RUNS: Final = failpoint("redispatch.between_runs")


class QueueIncomplete(Exception):
    """A queue lacks entries that the scan does not restore."""


class Redispatch:
    """Dispatch of the records of one scan.  `is_whole`: the scan begins at the log's first byte.

    A queue may then have gaps, because nothing else can fill them; without `is_whole`, a gap raises `QueueIncomplete`.
    All methods raise `DiskFull` or `DiskFailed` if an entry cannot be written.
    """

    def __init__(
        self, table: ConsumeQueueTable, tags_codes: TagsCodes, deleted: DeletedTopics | None = None, *, is_whole: bool
    ) -> None:
        self._table = table
        self._deleted = deleted
        self._tags_codes = tags_codes
        self._is_whole = is_whole
        # Topic -> its number, in the order of the numbers.
        self._topics: dict[str, int] = {}
        # Columns of held batches: topic number and queue id, queue offset, physical offset, size, tags code.
        self._held: list[tuple[Integers, ...]] = []
        self._held_records = 0
        # Encoded entries by queue, not yet written.
        self._units: dict[ConsumeQueue, list[bytes]] = {}
        # Queue that got an entry -> its next offset before that.
        self._firsts: dict[LogicQueue, int] = {}

    def add(self, record: Record) -> None:
        """Write the entries of one record."""
        self._release()
        if not record.in_consume_queue:
            return
        if self._table.dispatches and dispatches(record.topic):
            self._add_light(record)
        if self._is_deleted(record.topic, record.physical_offset):
            return
        queue = self._queue(record.topic, record.queue_id, record.physical_offset)
        if queue is not None:
            properties, time = bytes(record.properties), record.store_timestamp
            tags_code = self._tags_codes.of(record.topic, properties, time)
            count = message_count(properties) if queue.is_batch else 1
            self._put(queue, record.queue_offset, record.physical_offset, record.size_bytes, tags_code, time, count)

    def enter_units(self, queue: ConsumeQueue, units: bytes) -> None:
        """Write encoded entries that follow the last one of `queue`, now or with a later call.

        No batch may be held (`add_batch`).
        """
        if queue not in self._firsts:
            self._firsts[queue] = queue.next_offset
        queue.next_offset += len(units) // CONSUME_QUEUE_UNIT_BYTES
        held = self._units.get(queue)
        if held is None:
            if queue.pending:
                queue.write_pending()
            self._units[queue] = [units]
        else:
            held.append(units)

    def _write_units(self) -> None:
        """Write the entries of `enter_units`, each queue's with one call."""
        for queue, units in self._units.items():
            queue.write_units(units[0] if len(units) == 1 else b"".join(units))
        self._units.clear()

    def _is_deleted(self, topic: str, physical_offset: int) -> bool:
        return self._deleted is not None and physical_offset < self._deleted.offset_of(topic)

    def _add_light(self, record: Record) -> None:
        """Write the entries of one record in light queues."""
        if self._table.queue_type(record.topic) is QueueType.BATCH:
            return
        properties = bytes(record.properties)
        tags_code = self._tags_codes.of(record.topic, properties, record.store_timestamp)
        for name, offset in places(properties):
            if self._is_placed(name, record.physical_offset):
                queue = self._table.get_or_create(name, LIGHT_QUEUE_ID)
                self._put(queue, offset, record.physical_offset, record.size_bytes, tags_code)

    def _is_placed(self, name: str, physical_offset: int) -> bool:
        """Return whether a record enters a light queue: the queue was not deleted later, and its name is valid."""
        if self._is_deleted(name, physical_offset):
            return False
        return self._queue(name, LIGHT_QUEUE_ID, physical_offset) is not None

    def add_batch(self, batch: RecordBatch) -> None:
        """Write the entries of many records, now or with a later call."""
        light = self._light_rows(batch) if self._table.dispatches else []
        if self._deleted:
            leave_out_deleted(batch, self._deleted)
        is_in_queue = batch.in_consume_queue
        holds_batches = [self._table.queue_type(topic) is QueueType.BATCH for topic in batch.topics]
        if any(holds_batches):
            is_alone = is_in_queue & np.array(holds_batches, np.bool_)[batch.topic_index]
            self._add_units(batch, np.flatnonzero(is_alone))
            is_in_queue = is_in_queue & ~is_alone
        in_queue = np.flatnonzero(is_in_queue)
        topics = np.array([self._topic_number(topic) for topic in batch.topics], np.int64)
        keys = queue_keys(topics[batch.topic_index], batch.queue_ids)
        columns: tuple[Integers, ...] = (
            keys,
            batch.queue_offsets,
            batch.positions + batch.base,
            batch.sizes,
            queue_codes_of(batch, self._tags_codes),
        )
        if in_queue.size < len(batch):
            columns = tuple(column[in_queue] for column in columns)
        if light:
            columns = _merged(columns, light)
        self._held.append(columns)
        self._held_records += columns[0].size
        if self._held_records >= _HOLD_RECORDS:
            self._release()

    def _add_units(self, batch: RecordBatch, records: Integers) -> None:
        """Write the units of records in batch queues, one by one: a record may hold hundreds of messages."""
        for record in records.tolist():
            topic, queue_id = batch.topics[batch.topic_index[record]], int(batch.queue_ids[record])
            physical_offset = batch.base + int(batch.positions[record])
            queue = self._queue(topic, queue_id, physical_offset)
            if queue is not None:
                properties, time = batch.properties(record), batch.store_timestamp(record)
                tags_code = self._tags_codes.of(topic, properties, time)
                offset, size = int(batch.queue_offsets[record]), int(batch.sizes[record])
                self._put(queue, offset, physical_offset, size, tags_code, time, message_count(properties))

    def _light_rows(self, batch: RecordBatch) -> list[tuple[int, ...]]:
        """Return the columns' values for the batch's entries in light queues, one row per record and queue."""
        rows: list[tuple[int, ...]] = []
        for record in dispatched_records(batch):
            topic, properties = batch.topics[batch.topic_index[record]], batch.properties(record)
            physical_offset, size = batch.base + int(batch.positions[record]), int(batch.sizes[record])
            if self._table.queue_type(topic) is QueueType.BATCH:
                continue
            tags_code = self._tags_codes.of(topic, properties, 0)
            for name, offset in places(properties):
                if self._is_placed(name, physical_offset):
                    key = queue_key(self._topic_number(name), LIGHT_QUEUE_ID)
                    rows.append((key, offset, physical_offset, size, tags_code))
        return rows

    def _topic_number(self, topic: str) -> int:
        return self._topics.setdefault(topic, len(self._topics))

    def _release(self) -> None:
        """Write the entries of all held records."""
        if self._units:
            self._write_units()
        if not self._held_records:
            return
        keys, offsets, physical_offsets, sizes, codes = (np.concatenate(c) for c in zip(*self._held, strict=True))
        self._held.clear()
        self._held_records = 0
        order, runs = order_by_queue(keys, offsets)
        entries = np.empty(order.size, CONSUME_QUEUE_DTYPE)
        entries["physical_offset"] = physical_offsets[order]
        entries["size"] = sizes[order]
        entries["tags_code"] = codes[order]
        topics = list(self._topics)
        for topic_number, queue_id, offset, begin, end in runs:
            self._add_run(topics[topic_number], queue_id, offset, entries[begin:end])
            _BETWEEN_RUNS()

    def finish(self) -> None:
        """Write all held and pending entries, and let consumers see them."""
        self._release()
        self._firsts.clear()
        for queue in self._table:
            if queue.has_pending:
                queue.write_pending()
            queue.max_offset = queue.next_offset

    def touched(self) -> list[tuple[LogicQueue, int]]:
        """Write all held and pending entries, still invisible.  Return changed queues and their first new offset."""
        self._release()
        for queue in self._firsts:
            if queue.pending:
                queue.write_pending()
        return list(self._firsts.items())

    def roll_back(self) -> None:
        """Truncate all queues to where they ended before."""
        self._held.clear()
        self._units.clear()
        for queue, first in self._firsts.items():
            queue.roll_back(first)

    def _add_run(self, topic: str, queue_id: int, offset: int, entries: npt.NDArray[np.void]) -> None:
        """Add records of one queue whose queue offsets follow one another from `offset` on."""
        queue = self._queue(topic, queue_id, int(entries[0]["physical_offset"]))
        if queue is None:
            return
        if queue.pending:
            queue.write_pending()
        done, count = 0, len(entries)
        while done < count:
            if isinstance(queue, ConsumeQueue) and _follows(queue, offset + done):
                queue.append_entries(entries[done:])
                return
            physical_offset, size, tags_code = entries[done].item()
            self._put(queue, offset + done, physical_offset, size, tags_code)
            done += 1

    def _queue(self, topic: str, queue_id: int, physical_offset: int) -> LogicQueue | None:
        try:
            queue = self._table.get_or_create(topic, queue_id)
        except RequestError as error:
            peer_lines.warning(
                _log, "", "event=record_not_dispatched physical_offset=%d reason=%r", physical_offset, str(error)
            )
            return None
        self._firsts.setdefault(queue, queue.next_offset)
        return queue

    def _put(
        self,
        queue: LogicQueue,
        offset: int,
        physical_offset: int,
        size_bytes: int,
        tags_code: int,
        store_timestamp: int = 0,
        count: int = 1,
    ) -> None:
        if offset < queue.written_offset:
            entry = queue.entry(offset)
            if entry is not None and entry[0] == physical_offset:
                return
        if offset > queue.next_offset and not self._is_whole:
            raise QueueIncomplete(f"{queue.topic} queue {queue.queue_id} ends at {queue.next_offset}, log has {offset}")
        if offset > queue.next_offset + _MAX_BLANKS and queue.next_offset and is_light(queue.topic):
            peer_lines.warning(
                _log, "", "event=entry_not_dispatched topic=%s offset=%d queue_end=%d reason=gap_too_large",
                queue.topic, offset, queue.next_offset,
            )  # fmt: skip
            return
        if _follows(queue, offset):
            queue.add(physical_offset, size_bytes, tags_code, store_timestamp, count)
            if len(queue.pending) >= _WRITE_AT:
                queue.write_pending()
            return
        # Rare: the queue was rebuilt at a lower offset (its topic was deleted and created), or has a gap.
        if queue.pending:
            queue.write_pending()
        queue.put(offset, physical_offset, size_bytes, tags_code, store_timestamp, count)


def leave_out_deleted(batch: RecordBatch, deleted: DeletedTopics) -> None:
    """Keep records that are older than the deletion of their topic out of its ConsumeQueue."""
    for index, topic in enumerate(batch.topics):
        before = deleted.offset_of(topic) - batch.base
        if before > 0:
            is_deleted = (batch.topic_index == index) & (batch.positions < before)
            # Like a prepared message: in the log, but in no queue.
            batch.sys_flags[is_deleted] |= NOT_DISPATCHED


def _merged(columns: tuple[Integers, ...], light: list[tuple[int, ...]]) -> tuple[Integers, ...]:
    """Merge both in the order of the log: a message may also be sent to a light queue by the queue's own name."""
    added = np.array(light, np.int64)
    merged = [np.concatenate((column, added[:, number])) for number, column in enumerate(columns)]
    order = np.argsort(merged[2], kind="stable")
    return tuple(column[order] for column in merged)


def _follows(queue: LogicQueue, offset: int) -> bool:
    """Return whether entry `offset` follows the queue's last entry."""
    return offset == queue.next_offset and (offset > 0 or queue.written_offset == 0)
