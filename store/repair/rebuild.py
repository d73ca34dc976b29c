"""Rebuild of ConsumeQueues and index files from the log.

Index files are written by the broker's writer.  Queues are not: a queue of the broker is one that grows at its end.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from sprocket.common.files.atomic_file import sync_directory
from sprocket.remoting.message.topic_names import is_light
from store.disk.disk import RealDisk
from store.index.index_file import IndexFile, IndexHeader
from store.index.index_files import NAME_DIGITS
from store.index.key_scan import pieces_of
from store.inspection.queue_runs import QueueRuns, Run
from store.layout import CONSUME_QUEUE_UNIT_BYTES, file_name, index_file_bytes
from store.queue.consume_queue import BLANK_SIZE, ENTRY
from store.record.record import TagsCodes
from store.scan.record_batch import RecordBatch

UNIT: Final = CONSUME_QUEUE_UNIT_BYTES
_BLANK: Final = ENTRY.pack(0, BLANK_SIZE, 0)
_BLANKS_AT_ONCE: Final = 4096
_MAX_JUMP: Final = 1 << 24


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
    """Rebuild of the queues `wanted`, (topic, queue id), under `directory`.

    `blanks` are queue offsets of lost messages after each queue's last one.
    """

    def __init__(
        self,
        directory: Path,
        tags_codes: TagsCodes,
        file_bytes: int,
        wanted: Iterable[tuple[str, int]],
        skipped: Iterable[tuple[int, int]] = (),
        deleted: Mapping[str, int] = MappingProxyType({}),
        blanks: Iterable[tuple[str, int, int]] = (),
    ) -> None:
        self._blanks = blanks
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

    def finish(self) -> None:
        """Finish after the walk."""
        for run in self._runs.release():
            self._put(run)
        for topic, queue_id, offset in sorted(self._blanks):
            files = self._files.get((topic, queue_id))
            if files is not None and offset >= files.next_offset >= 0:
                files.put(offset, _BLANK)
        for files in self._files.values():
            files.finish()


class IndexRebuild:
    """Rebuild of index files of `slot_count` slots and `max_units` units, by the broker's writer.

    A file is named by the store time of its first message; RocketMQ names it by the time of its creation.
    """

    def __init__(self, directory: Path, slot_count: int, max_units: int) -> None:
        self._directory = directory
        self._slot_count, self._max_units = slot_count, max_units
        self._disk = RealDisk()
        self._file: IndexFile | None = None
        self._last_name = 0

    def add(self, found: RecordBatch) -> None:
        """Add records, which come in the order of the log."""
        for entries, _ in pieces_of(found):
            done = 0
            while done < len(entries):
                file = self._file = self._file or self._new_file(int(entries.store_timestamps[done]))
                done += file.put(entries.between(done, len(entries)))
                if file.is_full:
                    self.finish()

    def _new_file(self, store_timestamp: int) -> IndexFile:
        self._last_name = max(self._last_name + 1, _name_of(store_timestamp))
        path = self._directory / f"{self._last_name:0{NAME_DIGITS}d}"
        made = self._disk.create(path, index_file_bytes(self._slot_count, self._max_units), preallocate=False)
        file = IndexFile(made, self._slot_count, self._max_units, IndexHeader(), is_new=True)
        file.open_slots()
        return file

    def finish(self) -> None:
        """Write and sync the open file."""
        if self._file is not None:
            self._file.flush()
            self._file.close()
            self._disk.sync_entries(self._directory)
            self._file = None


def _name_of(store_timestamp: int) -> int:
    """Return a time as the number yyyyMMddHHmmssSSS, UTC."""
    seconds = np.datetime64(max(0, min(store_timestamp, 253_402_300_799_999)), "ms")
    text = str(seconds).replace("-", "").replace("T", "").replace(":", "").replace(".", "")
    return int(text)
