"""One Batch ConsumeQueue: a queue whose records may hold many messages each.

Source: RocketMQ 5.3.3, `BatchConsumeQueue`.  Unit k is the 46 bytes at byte 46 * k of the queue's files, in the order
of the log.  It holds the queue offsets of its record, so a bisection finds the message at an offset.  Every record gets
a unit; RocketMQ leaves a message that was sent alone out of the queue.

Its files are sparse and written with `pwrite`, as those of `store.queue.consume_queue`.
"""

import struct
from bisect import bisect_left
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from store.disk.disk import Disk
from store.layout import BATCH_CONSUME_QUEUE_DTYPE, BATCH_CONSUME_QUEUE_UNIT_BYTES
from store.queue.inner_batch import message_count
from store.queue.logic_queue import Entry, LogicQueue
from store.record.record import Record

UNIT: Final = BATCH_CONSUME_QUEUE_UNIT_BYTES
ENTRY: Final = struct.Struct(">qiqqqhii")
_FIELDS: Final = 8
_BASE_AND_COUNT: Final = struct.Struct(">qh")
_BASE_AT: Final = 28
_STORE_TIME: Final = struct.Struct(">q")
_STORE_TIME_AT: Final = 20
_NOT_COMPACTED: Final = -1


class BatchConsumeQueue(LogicQueue):
    """Units of one queue.

    Offsets count messages; units count records.  `written_offset` is the end of the last unit in the files.  `pending`
    has eight fields per unit.
    """

    __slots__ = (
        "_end_unit",
        "_files",
        "_synced_unit",
        "cold_end",
        "magic",
        "max_offset",
        "min_offset",
        "next_offset",
        "pending",
        "queue_id",
        "record_base_bytes",
        "topic",
        "topic_bytes",
        "written_offset",
    )
    unit_bytes = UNIT
    _end_unit: int
    is_batch = True
    is_plain = False
    is_schedule = False

    def __init__(self, disk: Disk, directory: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        super().__init__(disk, directory, topic, queue_id, file_bytes)
        self._reset(0, 0)

    def _reset(self, offset: int, unit: int) -> None:
        self.min_offset = self.max_offset = self.written_offset = self.next_offset = offset
        self.cold_end = 0
        self._end_unit = self._synced_unit = unit
        self.pending.clear()

    @property
    def reported_min_offset(self) -> int:
        """`min_offset`, or -1 before the first message, as `BatchConsumeQueue.getMinOffsetInQueue`."""
        return self.min_offset if self.next_offset else -1

    @property
    def first_offset(self) -> int:
        return self.offset_of(self.first_unit) if self._end_unit > self.first_unit else self.next_offset

    @property
    def first_unit(self) -> int:
        return self._files.first_offset // UNIT

    @property
    def capacity_unit(self) -> int:
        return self._files.end_offset // UNIT

    def load(self) -> None:
        self._files.load()
        self._reset(0, self.first_unit)

    def load_listed(self, first: int, end: int) -> bool:
        """Return False: `load` is fast enough for the few topics with batches."""
        return False

    # Writing

    def add(self, physical_offset: int, size_bytes: int, tags_code: int, store_timestamp: int, count: int) -> None:
        base = self.next_offset
        self.pending += (physical_offset, size_bytes, tags_code, store_timestamp, base, count, _NOT_COMPACTED, 0)
        self.next_offset = base + count

    def write_pending(self) -> None:
        fields = self.pending
        content = b"".join([ENTRY.pack(*fields[at : at + _FIELDS]) for at in range(0, len(fields), _FIELDS)])
        self._files.write(self._end_unit * UNIT, content)
        self._end_unit += len(fields) // _FIELDS
        self.written_offset = self.next_offset
        fields.clear()

    def roll_back(self, offset: int) -> None:
        self.pending.clear()
        if offset < self.written_offset:
            self._end_unit = self._unit_ending_behind(offset)
            self._synced_unit = min(self._synced_unit, self._end_unit)
            self.written_offset = offset
        self.next_offset = offset

    def put(
        self, offset: int, physical_offset: int, size_bytes: int, tags_code: int, store_timestamp: int, count: int
    ) -> None:
        if offset < self.next_offset:
            self.truncate(offset)
        if self._end_unit == self.first_unit:
            self._reset(offset, self.first_unit)
        if self.min_offset == self.next_offset:
            # All earlier messages have expired.
            self.min_offset = offset
        # Offsets without a record get no unit.
        self.next_offset = offset
        self.add(physical_offset, size_bytes, tags_code, store_timestamp, count)
        self.write_pending()
        self.max_offset = self.written_offset

    def set_range(self, start: int, end: int, *, cut: bool) -> None:
        after = self._end_of(end - 1) if end > self.first_unit else 0
        self._reset(after, end)
        if start < end:
            self.min_offset = self._base_of(start)
        if cut and end < self.capacity_unit:
            self._files.cut(end * UNIT)

    def truncate(self, offset: int) -> None:
        """Remove the units with any message from `offset` on."""
        unit = self._unit_ending_behind(offset)
        self._files.cut(unit * UNIT)
        self._end_unit = unit
        self._synced_unit = min(self._synced_unit, unit)
        end = self._end_of(unit - 1) if unit > self.first_unit else offset
        self.written_offset = self.next_offset = end
        self.max_offset = min(self.max_offset, end)
        self.min_offset = min(self.min_offset, self.max_offset)

    def destroy(self) -> None:
        self._files.destroy()
        self._reset(0, 0)

    # Reading

    def unit(self, unit: int) -> Entry | None:
        located = self._files.locate(unit * UNIT)
        if located is None:
            return None
        physical_offset, size, tags_code, *_ = ENTRY.unpack_from(located[0].view, located[1])
        return physical_offset, size, tags_code

    def _span(self, unit: int) -> tuple[int, int]:
        """Return queue offset and number of the messages of a unit; (0, 0) if no file has it."""
        located = self._files.locate(unit * UNIT)
        if located is None:
            return 0, 0
        base, count = _BASE_AND_COUNT.unpack_from(located[0].view, located[1] + _BASE_AT)
        return base, count

    def _base_of(self, unit: int) -> int:
        return self._span(unit)[0]

    def _end_of(self, unit: int) -> int:
        base, count = self._span(unit)
        return base + count

    def offset_of(self, unit: int) -> int:
        return self._base_of(unit) if unit < self._end_unit else self.written_offset

    def _unit_ending_behind(self, offset: int) -> int:
        """Return the first unit that ends after `offset`; one past the last if there is none."""
        first = self.first_unit
        return first + bisect_left(range(first, self._end_unit), offset + 1, key=self._end_of)

    def border_units(self, start: int, end: int) -> tuple[Entry | None, Entry | None, Entry | None]:
        return self.unit(start), self.unit(end - 1), self.unit(end)

    def visible_units(self) -> tuple[int, int]:
        return self._unit_ending_behind(self.min_offset), self._unit_ending_behind(self.max_offset)

    def agrees(self, unit: int, record: Record) -> bool:
        located = self._files.locate(unit * UNIT)
        if located is None:
            return False
        (store_timestamp,) = _STORE_TIME.unpack_from(located[0].view, located[1] + _STORE_TIME_AT)
        base, count = self._span(unit)
        return (
            base == record.queue_offset
            and count == message_count(bytes(record.properties))
            and store_timestamp == record.store_timestamp
        )

    def entry(self, offset: int) -> Entry | None:
        unit = self._unit_ending_behind(offset)
        return self.unit(unit) if unit < self._end_unit and self._base_of(unit) <= offset else None

    def entries(self, offset: int, count: int) -> npt.NDArray[np.void]:
        """Return units of about `count` messages as an array of `BATCH_CONSUME_QUEUE_DTYPE`.

        The first is the unit that holds `offset`, or the next after it.
        """
        first = self._unit_ending_behind(offset)
        located = self._files.locate(first * UNIT)
        if located is None:
            return np.empty(0, BATCH_CONSUME_QUEUE_DTYPE)
        file, position = located
        max_units = min(count, self._end_unit - first, (self._files.file_bytes - position) // UNIT)
        units = np.frombuffer(file.view, BATCH_CONSUME_QUEUE_DTYPE, max_units, position)
        # If no record has `offset`, `count` begins at the next record.
        end = min(max(offset, int(units["base_offset"][0]) if max_units > 0 else 0) + count, self.max_offset)
        return units[: int(np.searchsorted(units["base_offset"].astype(np.int64), end))]
