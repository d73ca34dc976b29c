"""Reads of a compacted queue: from the parts that its manifest names, oldest first.

Source: RocketMQ 5.3.3, `CompactionLog.getMessage`: a read from an offset without a message begins at the next one.
"""

import logging
import struct
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.common.errors import CorruptRecord, StoreError
from store.compaction.manifest import Manifest, Part
from store.disk.disk import Disk, DiskFile
from store.layout import BATCH_CONSUME_QUEUE_DTYPE, BATCH_CONSUME_QUEUE_UNIT_BYTES
from store.queue.get_result import Boundary, GetResult, GetStatus
from store.queue.logic_queue import LogicQueue
from store.queue.queue_reader import MessageFilter, QueueReader
from store.queue.record_filter import RecordFilter
from store.record.record import decode

_log = logging.getLogger(__name__)
_UNIT: Final = BATCH_CONSUME_QUEUE_UNIT_BYTES
_BASE_AT: Final = BATCH_CONSUME_QUEUE_DTYPE.fields["base_offset"][1]  # type: ignore[index]
_TIME_AT: Final = BATCH_CONSUME_QUEUE_DTYPE.fields["store_timestamp"][1]  # type: ignore[index]
_LONG: Final = struct.Struct(">q")
# Units that a read with a filter searches: their records may be in no cache.
_MAX_SCANNED: Final = 2048


class OpenPart:
    """The open files of a part.  Slices of them stay valid after `close`."""

    def __init__(self, disk: Disk, directory: Path, part: Part) -> None:
        """Raises `StoreError` if a file is missing or too short."""
        self.part = part
        self._files: list[DiskFile] = []
        for name, size_bytes in zip(part.file_names, part.file_bytes, strict=True):
            path = directory / name
            found = disk.size(path)
            if found is None or found < size_bytes:
                self.close()
                raise StoreError(
                    f"{path}: {'missing' if found is None else f'has {found} of {size_bytes} bytes'}. Restore "
                    f"{directory} from a backup or from another member of the broker's group"
                )
            self._files.append(disk.open(path, preallocate=False))

    def close(self) -> None:
        """Close the descriptors."""
        for file in self._files:
            file.close()

    @property
    def path(self) -> Path:
        """Path of the file with records."""
        return self._files[0].path

    @property
    def log(self) -> memoryview:
        """The records."""
        return self._files[0].view[: self.part.log_bytes]

    def units(self, first: int, end: int) -> npt.NDArray[np.void]:
        """Return the units from number `first` to before `end`, without a copy."""
        view = self._files[1].view[first * _UNIT : min(end, self.part.records) * _UNIT]
        return np.frombuffer(view, BATCH_CONSUME_QUEUE_DTYPE)

    def number_at(self, value: int, field_at: int = _BASE_AT) -> int:
        """Return the number of the first unit whose queue offset (or the field at `field_at`) is at least `value`."""
        view = self._files[1].view
        return bisect_left(
            range(self.part.records),
            value,
            key=lambda number: int(_LONG.unpack_from(view, number * _UNIT + field_at)[0]),
        )


class CompactedQueue:
    """The parts of one queue, open for reads.  It belongs to the owner thread."""

    def __init__(self, parts: Sequence[OpenPart]) -> None:
        self._parts = tuple(parts)
        self.first_offset = parts[0].part.first_offset
        self.end_offset = parts[-1].part.end_offset

    @property
    def manifest(self) -> Manifest:
        """What its parts are."""
        return Manifest(tuple(one.part for one in self._parts))

    @property
    def records(self) -> int:
        """Number of kept messages; a key may have one in each part."""
        return sum(one.part.records for one in self._parts)

    @property
    def size_bytes(self) -> int:
        """Bytes of the kept messages."""
        return sum(one.part.log_bytes for one in self._parts)

    @property
    def first_store_time(self) -> int:
        """Store timestamp, ms, of the oldest kept message; -1 if there is none."""
        oldest = next((one for one in self._parts if one.part.records), None)
        return -1 if oldest is None else int(oldest.units(0, 1)["store_timestamp"][0])

    def close(self) -> None:
        """Close the files."""
        for part in self._parts:
            part.close()

    def get(
        self, offset: int, max_messages: int, max_bytes: int, matches: MessageFilter | None, max_offset: int
    ) -> GetResult:
        """Return messages from `offset`, which is before `end_offset`, on; `max_offset` is that of the whole queue.

        The first message may exceed `max_bytes`.  Without a message the result says where to continue.  Each record is
        checked.  A damaged one ends the result.  Raises `CorruptRecord` if the first record is damaged.
        """
        for one in self._parts:
            if offset >= one.part.end_offset:
                continue
            first = one.number_at(offset)
            if first < one.part.records:
                return self._get(one, first, max(1, max_messages), max_bytes, matches, max_offset)
            offset = one.part.end_offset
        return self._result(GetStatus.NO_MATCHED_MESSAGE, self.end_offset, max_offset)

    def _result(self, status: GetStatus, next_offset: int, max_offset: int) -> GetResult:
        return GetResult(status, next_offset, self.first_offset, max_offset, [], 0, 0, False)

    def _get(
        self, one: OpenPart, first: int, limit: int, max_bytes: int, matches: MessageFilter | None, max_offset: int
    ) -> GetResult:
        units = one.units(first, first + (limit if matches is None else _MAX_SCANNED))
        end = first + len(units)
        next_offset = int(units["base_offset"][-1]) + 1 if end < one.part.records else one.part.end_offset
        chosen = _chosen(one.log, units, matches, limit)
        if len(chosen) == limit:
            next_offset = int(units["base_offset"][chosen[-1]]) + 1
        slices, count, stop = _records(one, units[chosen], max_bytes)
        if stop is not None:
            next_offset = stop
        if not count:
            return self._result(GetStatus.NO_MATCHED_MESSAGE, next_offset, max_offset)
        size_bytes = sum(map(len, slices))
        return GetResult(
            GetStatus.FOUND, next_offset, self.first_offset, max_offset, slices, count, size_bytes, False
        )  # fmt: skip

    def offset_by_time(self, timestamp_ms: int, boundary: Boundary) -> int | None:
        """Return the offset of the first message stored at `timestamp_ms` or later; None if there is none.

        With `Boundary.UPPER`, of the last message that was stored at that very time, if there is one.
        """
        for one in self._parts:
            number = one.number_at(timestamp_ms, _TIME_AT)
            if number >= one.part.records:
                continue
            if boundary is Boundary.UPPER:
                after = one.number_at(timestamp_ms + 1, _TIME_AT)
                number = max(number, after - 1)
            return int(one.units(number, number + 1)["base_offset"][0])
        return None


def get_compacted(
    reader: QueueReader,
    queue: LogicQueue,
    compacted: CompactedQueue,
    offset: int,
    max_messages: int,
    max_bytes: int,
    matches: MessageFilter | None,
) -> GetResult:
    """Do `QueueReader.get` for a queue with a compacted part: return messages of that part, or else of the log."""
    first_offset, end_offset, max_offset = compacted.first_offset, compacted.end_offset, queue.max_offset
    if offset < first_offset:
        reader.missed(1)
        return GetResult(GetStatus.OFFSET_TOO_SMALL, first_offset, first_offset, max_offset, [], 0, 0, False)
    if offset < end_offset:
        max_count, max_transfer_bytes = reader.near
        found = compacted.get(
            offset, min(max_messages, max_count), min(max_bytes, max_transfer_bytes), matches, max_offset
        )
        if found.message_count:
            reader.found(1, found.message_count)
            return found
        if found.next_offset < end_offset or end_offset == max_offset or end_offset < queue.min_offset:
            reader.missed(1)
            return found
    found = reader.get(queue, max(offset, end_offset), max_messages, max_bytes, matches)
    found.min_offset = first_offset
    return found


def _chosen(log: memoryview, units: npt.NDArray[np.void], matches: MessageFilter | None, limit: int) -> list[int]:
    """Return the numbers of up to `limit` units whose messages match."""
    if matches is None:
        return list(range(min(limit, len(units))))
    if isinstance(matches, RecordFilter):
        positions, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        return matches.wanted(log, positions, sizes, limit)
    found: list[int] = np.flatnonzero(matches(units["tags_code"].astype(np.int64)))[:limit].tolist()
    return found


def _records(one: OpenPart, units: npt.NDArray[np.void], max_bytes: int) -> tuple[list[memoryview], int, int | None]:
    """Return the checked records of the units, those in a row as one slice, and their number.

    The third value is the queue offset of the first one that was left out; None if all are there.
    """
    log, runs, count, total_bytes = one.log, [[0, 0]], 0, 0
    positions, sizes = units["physical_offset"].tolist(), units["size"].tolist()
    offsets: list[int] = units["base_offset"].tolist()
    for position, size, offset in zip(positions, sizes, offsets, strict=True):
        if count and total_bytes + size > max_bytes:
            return _slices(log, runs), count, offset
        reason = _damage(log[position : position + size], offset)
        if reason:
            where = f"file {one.path}, position {position}, queue offset {offset}"
            _log.error("event=record_damaged where=%r reason=%r", where, reason)
            if not count:
                raise CorruptRecord(position, f"damaged, and not served: {reason} ({where})")
            return _slices(log, runs), count, offset
        if position != runs[-1][1]:
            runs.append([position, position])
        runs[-1][1] = position + size
        count, total_bytes = count + 1, total_bytes + size
    return _slices(log, runs), count, None


def _slices(log: memoryview, runs: list[list[int]]) -> list[memoryview]:
    return [log[start:end] for start, end in runs if start < end]


def _damage(content: memoryview, queue_offset: int) -> str:
    record = decode(content)
    if isinstance(record, str):
        return record
    return "" if record.queue_offset == queue_offset else f"record says queue offset {record.queue_offset}"
