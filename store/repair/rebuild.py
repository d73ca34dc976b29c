"""Rebuild of ConsumeQueues and index files from the log.

It shares no code with the broker's writers on purpose.  A repair depends only on the layouts, and each side's tests
read what the other side writes.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.common.files.atomic_file import sync_directory
from sprocket.remoting.message.topic_names import is_light
from store.index.engine import entries_of
from store.index.key_scan import IndexEntries
from store.inspection.queue_runs import QueueRuns, Run
from store.layout import (
    CONSUME_QUEUE_UNIT_BYTES,
    INDEX_HEADER_DTYPE,
    INDEX_SLOT_BYTES,
    INDEX_UNIT_DTYPE,
    file_name,
)
from store.queue.consume_queue import BLANK_SIZE, ENTRY
from store.record.record import TagsCodes
from store.scan.record_batch import RecordBatch

UNIT: Final = CONSUME_QUEUE_UNIT_BYTES
_BLANK: Final = ENTRY.pack(0, BLANK_SIZE, 0)
_BLANKS_AT_ONCE: Final = 4096
_MAX_JUMP: Final = 1 << 24
_MAX_TIME_DIFF_S: Final = (1 << 31) - 1


def write_at(directory: Path, file_bytes: int, at: int, content: bytes) -> None:
    """Write `content` at byte `at` of a sequence of files.  Create missing files."""
    while content:
        position = at % file_bytes
        piece = content[: file_bytes - position]
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / file_name(at - position)
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(file_bytes)
            file.seek(position)
            file.write(piece)
        at += len(piece)
        content = content[len(piece) :]


def sync_queue(directory: Path) -> None:
    """Sync the files of a queue, and their names."""
    for path in directory.iterdir():
        with path.open("r+b") as file:
            os.fsync(file.fileno())
    for folder in (directory, directory.parent, directory.parent.parent):
        sync_directory(folder)


class QueueFiles:
    """New files of one queue."""

    def __init__(self, directory: Path, file_bytes: int) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self.next_offset = -1
        self._written = 0
        self._first = 0

    def put(self, offset: int, entries: bytes) -> None:
        """Put entries from queue offset `offset` on; fill missing ones before it with blanks."""
        if self.next_offset < 0:
            self._first = offset
            # RocketMQ also marks the part of the first file before the first message.
            self._blanks(offset - offset % (self._file_bytes // UNIT), offset)
        elif offset > self.next_offset:
            self._blanks(self.next_offset, offset)
        self._write(offset, entries)
        self.next_offset = offset + len(entries) // UNIT
        self._written = max(self._written, self.next_offset)

    def finish(self) -> None:
        """Zero what remains from before the queue restarted at a lower offset, and sync all."""
        if self.next_offset < 0:
            return
        for at in range(self.next_offset, self._written, _BLANKS_AT_ONCE):
            self._write(at, bytes(UNIT * min(_BLANKS_AT_ONCE, self._written - at)))
        sync_queue(self._directory)

    def _blanks(self, start: int, end: int) -> None:
        for at in range(start, end, _BLANKS_AT_ONCE):
            self._write(at, _BLANK * min(_BLANKS_AT_ONCE, end - at))

    def _write(self, offset: int, content: bytes) -> None:
        write_at(self._directory, self._file_bytes, offset * UNIT, content)


class QueueRebuild:
    """Rebuild of the queues `wanted`, (topic, queue id), under `directory`."""

    def __init__(
        self,
        directory: Path,
        tags_codes: TagsCodes,
        file_bytes: int,
        wanted: Iterable[tuple[str, int]],
        skipped: Iterable[tuple[int, int]] = (),
        deleted: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._deleted = deleted
        self._skipped = {place for place, _ in skipped}
        self._files = {
            (topic, queue_id): QueueFiles(directory / topic / str(queue_id), file_bytes) for topic, queue_id in wanted
        }
        self._runs = QueueRuns(tags_codes, with_light=any(is_light(topic) for topic, _ in self._files))

    def add(self, found: RecordBatch) -> None:
        """Add records, which come in the order of the log."""
        for run in self._runs.add(found):
            self._put(run)

    def _put(self, run: Run) -> None:
        files = self._files.get((run.topic, run.queue_id))
        run = run.from_offset(self._deleted.get(run.topic, 0))
        if (
            files is None
            or not len(run.entries)
            or int(run.entries[0]["physical_offset"]) in self._skipped
            or run.offset < 0
        ):
            return
        if files.next_offset >= 0 and run.offset > files.next_offset + _MAX_JUMP:
            return
        files.put(run.offset, run.entries.tobytes())

    def finish(self, blanks: Iterable[tuple[str, int, int]]) -> None:
        """Finish after the walk.  `blanks` are queue offsets of lost messages after each queue's last one."""
        for run in self._runs.release():
            self._put(run)
        for topic, queue_id, offset in sorted(blanks):
            files = self._files.get((topic, queue_id))
            if files is not None and offset >= files.next_offset >= 0:
                files.put(offset, _BLANK)
        for files in self._files.values():
            files.finish()


class IndexRebuild:
    """Writer of index files of `slot_count` slots and `capacity` units.

    A file is named by the store time of its first message; RocketMQ names it by the time of its creation.
    """

    def __init__(self, directory: Path, slot_count: int, capacity: int) -> None:
        self._directory = directory
        self._slot_count, self._capacity = slot_count, capacity
        self._slots: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._path: Path | None = None
        self._count = 1
        self._begin = (0, 0)
        self._end = (0, 0)
        self._last_name = 0

    def add(self, found: RecordBatch) -> None:
        """Add records, which come in the order of the log."""
        entries = entries_of(found)
        while len(entries):
            if self._path is None:
                self._begin_file(int(entries.physical_offsets[0]), int(entries.store_timestamps[0]))
            room = self._capacity - self._count
            self._put(entries.between(0, room))
            entries = entries.between(room, len(entries))
            if self._count >= self._capacity:
                self.finish()

    def _begin_file(self, physical_offset: int, store_timestamp: int) -> None:
        self._last_name = max(self._last_name + 1, _name_of(store_timestamp))
        self._directory.mkdir(parents=True, exist_ok=True)
        self._path = self._directory / f"{self._last_name:017d}"
        size = INDEX_HEADER_DTYPE.itemsize + self._slot_count * INDEX_SLOT_BYTES
        with self._path.open("wb") as file:
            file.truncate(size + self._capacity * INDEX_UNIT_DTYPE.itemsize)
        self._slots = np.zeros(self._slot_count, np.int32)
        self._count, self._begin = 1, (physical_offset, store_timestamp)

    def _put(self, entries: IndexEntries) -> None:
        assert self._path is not None
        slots = entries.key_hashes.astype(np.int64) % self._slot_count
        numbers = np.arange(self._count, self._count + len(entries), dtype=np.int64)
        order = np.argsort(slots, kind="stable")
        in_order = slots[order]
        is_first = np.concatenate(([True], in_order[1:] != in_order[:-1]))
        previous = np.empty(len(entries), np.int64)
        before = np.concatenate(([0], numbers[order][:-1]))
        previous[order] = np.where(is_first, self._slots[in_order], before)
        is_last = np.concatenate((is_first[1:], [True]))
        self._slots[in_order[is_last]] = numbers[order][is_last]
        units = np.empty(len(entries), INDEX_UNIT_DTYPE)
        units["key_hash"], units["physical_offset"] = entries.key_hashes, entries.physical_offsets
        seconds = (entries.store_timestamps - self._begin[1]) // 1000
        units["time_diff_s"] = np.clip(seconds, 0, _MAX_TIME_DIFF_S)
        units["previous_index"] = previous
        at = INDEX_HEADER_DTYPE.itemsize + self._slot_count * INDEX_SLOT_BYTES + self._count * INDEX_UNIT_DTYPE.itemsize
        with self._path.open("r+b") as file:
            file.seek(at)
            file.write(units.tobytes())
        self._count += len(entries)
        self._end = int(entries.physical_offsets[-1]), int(entries.store_timestamps[-1])

    def finish(self) -> None:
        """Write header and slots of the open file and sync it."""
        if self._path is None:
            return
        header = np.zeros(1, INDEX_HEADER_DTYPE)
        used = int(np.count_nonzero(self._slots))
        header[0] = (self._begin[1], self._end[1], self._begin[0], self._end[0], used, self._count)
        with self._path.open("r+b") as file:
            file.write(header.tobytes())
            file.write(self._slots.astype(">i4").tobytes())
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._directory)
        self._path = None


def _name_of(store_timestamp: int) -> int:
    """Return a time as the number yyyyMMddHHmmssSSS, UTC."""
    seconds = np.datetime64(max(0, min(store_timestamp, 253_402_300_799_999)), "ms")
    text = str(seconds).replace("-", "").replace("T", "").replace(":", "").replace(".", "")
    return int(text)
