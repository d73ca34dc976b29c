"""Many valid records of one segment, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from store.record.record import NOT_DISPATCHED, Record, store_timestamp_of
from store.scan.columns import Integers

# Bytes that are searched at once.
_SEARCH_BYTES: Final = 4 << 20


@dataclass(slots=True)
class RecordBatch:
    """Valid records that follow one another in the log.  Positions count from the first byte of `data`.

    `topic_index` holds for each record the index of its topic in `topics`.
    """

    data: memoryview
    base: int
    positions: Integers
    sizes: Integers
    queue_ids: npt.NDArray[np.int32]
    queue_offsets: Integers
    sys_flags: npt.NDArray[np.int32]
    properties_at: Integers
    topics: list[str]
    topic_index: Integers

    def __len__(self) -> int:
        return self.positions.size

    @property
    def begin_offset(self) -> int:
        """Physical offset of the first record; `base` without records."""
        return self.base + int(self.positions[0]) if len(self) else self.base

    @property
    def end_offset(self) -> int:
        """One past the last record, as a physical offset; `base` without records."""
        return self.base + int(self.positions[-1] + self.sizes[-1]) if len(self) else self.base

    @property
    def in_consume_queue(self) -> npt.NDArray[np.bool_]:
        """`store.record.record.enters_consume_queue` of each record."""
        in_queue: npt.NDArray[np.bool_] = self.sys_flags & NOT_DISPATCHED == 0
        return in_queue

    def properties(self, record: int) -> bytes:
        """Return the properties of one record."""
        return bytes(self.data[self.properties_at[record] : self.positions[record] + self.sizes[record]])

    def store_timestamp(self, record: int) -> int:
        """Return the store timestamp, ms, of one record."""
        position = int(self.positions[record])
        return store_timestamp_of(self.data[position : position + int(self.sizes[record])])

    def records_with(self, text: bytes) -> list[int]:
        """Return the records in whose properties `text` occurs; few have it.

        Large pieces of the log are searched: ten times as fast as a search of each record.
        """
        positions, ends = self.positions, self.positions + self.sizes
        found: list[int] = []
        first = 0
        while first < len(self):
            last = max(first + 1, int(np.searchsorted(ends, positions[first] + _SEARCH_BYTES, "right")))
            start = int(positions[first])
            piece = bytes(self.data[start : int(ends[last - 1])])
            at = piece.find(text)
            while at >= 0:
                record = int(np.searchsorted(positions, start + at, "right")) - 1
                if start + at >= self.properties_at[record]:
                    found.append(record)
                    at = piece.find(text, int(ends[record]) - start)
                else:
                    # A body may hold the text any number of times.
                    at = piece.find(text, int(self.properties_at[record]) - start)
            first = last
        return found


# Position, size, queue id, queue offset, flags, position of the properties, topic.
Row = tuple[int, int, int, int, int, int, str]


def row_of(record: Record, position: int) -> Row:
    """Return the row of a decoded record at `position`."""
    size = record.size_bytes
    properties_at = position + size - len(record.properties)
    return position, size, record.queue_id, record.queue_offset, record.sys_flag, properties_at, record.topic


def batch_of(rows: Sequence[Row], data: memoryview, base: int) -> RecordBatch:
    """Return a batch of records, which follow one another in `data`; `base` is its physical offset."""
    positions, sizes, queue_ids, queue_offsets, sys_flags, properties_at, topics = zip(*rows, strict=True)
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    return RecordBatch(
        data, base, np.array(positions, np.int64), np.array(sizes, np.int64), np.array(queue_ids, np.int32),
        np.array(queue_offsets, np.int64), np.array(sys_flags, np.int32), np.array(properties_at, np.int64),
        list(numbers), np.array([numbers[topic] for topic in topics], np.int64),
    )  # fmt: skip
