"""One compaction of a queue: new messages of the log and some of its parts become one new part.

Two passes.  The first notes the last offset of each key among the new messages, until the map of keys is full; the
rest of them is left to the next compaction.  It also notes those of each part that is merged, except the oldest.  The
second copies what is kept, oldest first: from the parts, then from the log.  So memory is bounded by the map and by a
window of the files, however large the queue is.

A part is merged if it is not larger than everything after it.  So a queue has few parts, a message is copied a few
times only, and at most about half of what is kept is outdated.

Everything is read by name, not through the store's open files, because this runs in a thread of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from sprocket.common.errors import CorruptRecord, DiskFailed, StoreError
from store.compaction.key_offsets import KeyOffsets, Retained, key_of
from store.compaction.manifest import Manifest, Part, part_name, write_manifest
from store.disk.disk import Disk, DiskFile
from store.layout import (
    BATCH_CONSUME_QUEUE_DTYPE,
    BATCH_CONSUME_QUEUE_UNIT_BYTES,
    CONSUME_QUEUE_DTYPE,
    CONSUME_QUEUE_UNIT_BYTES,
    file_name,
)
from store.queue.batch_consume_queue import ENTRY
from store.queue.consume_queue import BLANK_SIZE
from store.record.record import Record, decode

# Files are read in windows: neighbours with gaps below one page or two, and not more than this at once.
_MAX_GAP_BYTES: Final = 8 * 1024
_WINDOW_BYTES: Final = 64 * 1024
_WRITE_BYTES: Final = 256 * 1024
_UNITS_AT_ONCE: Final = 4096
_NO_SEGMENTS: Final = 1 << 62


class Unit(NamedTuple):
    """Place of a record: its queue offset, and where it lies in its log."""

    queue_offset: int
    position: int
    size_bytes: int
    tags_code: int


@dataclass(frozen=True)
class Work:
    """What to compact: messages of a queue from `first_offset` to before `end_offset`, after the parts of `manifest`.

    They lie in the CommitLog before `log_end`.  `directory` is that of the compacted queue.
    """

    topic: str
    queue_id: int
    first_offset: int
    end_offset: int
    log_end: int
    manifest: Manifest
    directory: Path
    queue_directory: Path
    queue_file_bytes: int
    log_directory: Path
    segment_bytes: int


# Called after each window, with its bytes.  It rests, or raises to give up.
Pace = Callable[[int], None]


class Merge:
    """One compaction.  `delete_before_ms` is that of `Retained`."""

    def __init__(self, disk: Disk, work: Work, max_map_bytes: int, delete_before_ms: int, pace: Pace) -> None:
        self._disk = disk
        self._work = work
        self._offsets = KeyOffsets(max_map_bytes)
        self._delete_before_ms = delete_before_ms
        self._pace = pace

    def run(self) -> Manifest:
        """Write the new part and a manifest with it, durably; return the manifest.

        Raises `CorruptRecord` if a record is damaged, `DiskFull` or `DiskFailed`.
        """
        work = self._work
        end_offset, size_bytes = self._note_keys()
        parts = list(work.manifest.parts)
        merged: list[Part] = []
        while parts and parts[-1].log_bytes <= size_bytes and (not merged or self._notes_all(merged[0])):
            size_bytes += parts[-1].log_bytes
            merged.insert(0, parts.pop())
        retained = Retained(self._offsets, is_oldest=not parts, delete_before_ms=self._delete_before_ms)
        records = end_offset - work.first_offset + sum(part.records for part in merged)
        first_offset = merged[0].first_offset if merged else parts[-1].end_offset if parts else work.first_offset
        name = part_name(first_offset, end_offset)
        with PartWriter(self._disk, work.directory, name, size_bytes, records) as writer:
            for part in merged:
                self._copy(self._part_records(part), retained, writer)
            self._copy(self._log_records(work.first_offset, end_offset), retained, writer)
            writer.sync()
        made = Part(name, first_offset, end_offset, writer.records, writer.log_bytes, work.log_end)
        manifest = Manifest((*parts, made))
        write_manifest(self._disk, work.directory, manifest)
        return manifest

    def _note_keys(self) -> tuple[int, int]:
        """Do the first pass; return the end of the new messages that the map has room for, and their bytes."""
        work, size_bytes = self._work, 0
        for unit, record, _ in self._log_records(work.first_offset, work.end_offset):
            key = key_of(record)
            if key and not self._offsets.note(key, unit.queue_offset):
                return unit.queue_offset, size_bytes
            size_bytes += unit.size_bytes
        return work.end_offset, max(1, size_bytes)

    def _notes_all(self, part: Part) -> bool:
        """Note the keys of a part; return False if the map has no room for all of them."""
        records = self._part_records(part)
        return all(self._offsets.note(key_of(record), unit.queue_offset) for unit, record, _ in records)

    def _copy(
        self, records: Iterable[tuple[Unit, Record, memoryview]], retained: Retained, writer: "PartWriter"
    ) -> None:
        for unit, record, content in records:
            if retained.keeps(record):
                writer.add(unit, record.store_timestamp, content)

    # Sources

    def _log_records(self, first_offset: int, end_offset: int) -> Iterator[tuple[Unit, Record, memoryview]]:
        work = self._work

        def read(position: int, size_bytes: int) -> bytes:
            start = position - position % work.segment_bytes
            path = work.log_directory / file_name(start)
            return _peek(self._disk, path, work.segment_bytes, position - start, size_bytes)

        for units in self._log_units(first_offset, end_offset):
            yield from self._records(units, read, work.segment_bytes)

    def _log_units(self, first_offset: int, end_offset: int) -> Iterator[list[Unit]]:
        work, per_file = self._work, self._work.queue_file_bytes // CONSUME_QUEUE_UNIT_BYTES
        while first_offset < end_offset:
            start = first_offset - first_offset % per_file
            end = min(end_offset, start + per_file, first_offset + _UNITS_AT_ONCE)
            content = _peek(
                self._disk,
                work.queue_directory / file_name(start * CONSUME_QUEUE_UNIT_BYTES),
                work.queue_file_bytes,
                (first_offset - start) * CONSUME_QUEUE_UNIT_BYTES,
                (end - first_offset) * CONSUME_QUEUE_UNIT_BYTES,
            )
            entries = np.frombuffer(content, CONSUME_QUEUE_DTYPE).tolist()
            # Blanks: messages that were never in this queue, or were lost and repaired.
            yield [Unit(offset, *entry) for offset, entry in enumerate(entries, first_offset) if entry[1] != BLANK_SIZE]
            first_offset = end

    def _part_records(self, part: Part) -> Iterator[tuple[Unit, Record, memoryview]]:
        log_path, queue_path = (self._work.directory / name for name in part.file_names)
        log_size, queue_size = self._size(log_path), self._size(queue_path)
        for first in range(0, part.records, _UNITS_AT_ONCE):
            count = min(_UNITS_AT_ONCE, part.records - first)
            content = _peek(
                self._disk, queue_path, queue_size, first * BATCH_CONSUME_QUEUE_UNIT_BYTES,
                count * BATCH_CONSUME_QUEUE_UNIT_BYTES,
            )  # fmt: skip
            units = np.frombuffer(content, BATCH_CONSUME_QUEUE_DTYPE)
            names = ("base_offset", "physical_offset", "size", "tags_code")
            columns = [units[name].tolist() for name in names]
            yield from self._records(
                [Unit(*fields) for fields in zip(*columns, strict=True)],
                lambda position, size_bytes: _peek(self._disk, log_path, log_size, position, size_bytes),
                _NO_SEGMENTS,
            )

    def _size(self, path: Path) -> int:
        size = self._disk.size(path)
        if size is None:
            raise DiskFailed(f"{path}: missing")
        return size

    def _records(
        self, units: list[Unit], read: Callable[[int, int], bytes], segment_bytes: int
    ) -> Iterator[tuple[Unit, Record, memoryview]]:
        for window in _windows(units, segment_bytes):
            start = window[0].position
            content = memoryview(read(start, window[-1].position + window[-1].size_bytes - start))
            for unit in window:
                piece = content[unit.position - start : unit.position - start + unit.size_bytes]
                yield unit, self._checked(unit, piece), piece
            self._pace(len(content))

    def _checked(self, unit: Unit, content: memoryview) -> Record:
        work, record = self._work, decode(content)
        if isinstance(record, str):
            reason = record
        elif (record.topic, record.queue_id, record.queue_offset) != (work.topic, work.queue_id, unit.queue_offset):
            reason = f"record says topic {record.topic}, queue {record.queue_id}, offset {record.queue_offset}"
        else:
            return record
        where = f"topic {work.topic}, queue {work.queue_id}, queue offset {unit.queue_offset}"
        raise CorruptRecord(unit.position, f"{where}: {reason}")


def _peek(disk: Disk, path: Path, file_bytes: int, position: int, size_bytes: int) -> bytes:
    content = disk.peek(path, file_bytes, position, size_bytes)
    if content is None or len(content) != size_bytes:
        raise StoreError(f"{path}: is not a file of {file_bytes} bytes with {size_bytes} bytes at {position}")
    return content


def _windows(units: list[Unit], segment_bytes: int) -> Iterator[list[Unit]]:
    """Return the units in runs to read at once: in one segment, with small gaps, and in ascending order."""
    window: list[Unit] = []
    for unit in units:
        if window:
            last, start = window[-1], window[0].position
            end = last.position + last.size_bytes
            is_near = (
                end <= unit.position <= end + _MAX_GAP_BYTES
                and unit.position // segment_bytes == start // segment_bytes
            )
            if not is_near or unit.position + unit.size_bytes - start > _WINDOW_BYTES:
                yield window
                window = []
        window.append(unit)
    if window:
        yield window


class PartWriter:
    """Writer of a part's two files, with room for `max_log_bytes` bytes and `max_records` records."""

    def __init__(self, disk: Disk, directory: Path, name: str, max_log_bytes: int, max_records: int) -> None:
        part = Part(name, 0, 0, 0, 0, 0)
        sizes = max_log_bytes, max(1, max_records) * BATCH_CONSUME_QUEUE_UNIT_BYTES
        self._files: list[DiskFile] = []
        self._pending: tuple[bytearray, bytearray] = bytearray(), bytearray()
        self._written = [0, 0]
        self.records = 0
        self.log_bytes = 0
        for file, size_bytes in zip(part.file_names, sizes, strict=True):
            # Readers may still have a mapping of an older file of this name: it must not be truncated.
            disk.remove(directory / file)
            self._files.append(disk.create(directory / file, size_bytes, preallocate=False))

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, *raised: object) -> None:
        for file in self._files:
            file.close()

    def add(self, unit: Unit, store_timestamp: int, content: memoryview) -> None:
        """Append a record.  Raises `DiskFull` or `DiskFailed`."""
        self._pending[0].extend(content)
        self._pending[1].extend(
            ENTRY.pack(self.log_bytes, unit.size_bytes, unit.tags_code, store_timestamp, unit.queue_offset, 1, -1, 0)
        )
        self.log_bytes += unit.size_bytes
        self.records += 1
        if len(self._pending[0]) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        for number, pending in enumerate(self._pending):
            if pending:
                self._files[number].write(self._written[number], bytes(pending))
                self._written[number] += len(pending)
                pending.clear()

    def sync(self) -> None:
        """Write the rest and sync both files."""
        self._write()
        for file in self._files:
            file.sync()
