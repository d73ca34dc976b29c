"""One ConsumeQueue: where the k-th message of a topic's queue lies in the CommitLog.

Source: RocketMQ 5.3.3, `ConsumeQueue`.  Entry k is the 20 bytes at byte 20 * k of the queue:
physical offset i64, size i32, tags code i64.

Its files are sparse and written with `pwrite`.  A file is 6 MB by default and most queues of a broker
are nearly empty, so reserving blocks as for the CommitLog would cost a thousand queues 6 GB.  A full
disk still shows as an error of the write, not as SIGBUS, because nothing is stored through a mapping.
"""

import logging
import struct
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from store.disk.disk import Disk, DiskFile
from store.disk.mapped_file_queue import MappedFileQueue
from store.layout import CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_UNIT_BYTES
from store.record.record import SCHEDULE_TOPIC, Record, topic_field

_log = logging.getLogger(__name__)
UNIT: Final = CONSUME_QUEUE_UNIT_BYTES
ENTRY: Final = struct.Struct(">qiq")
# What stands for messages that were never in this queue (`ConsumeQueue.fillPreBlank`).
BLANK_SIZE: Final = 0x7FFFFFFF
_BLANK_ENTRY: Final = ENTRY.pack(0, BLANK_SIZE, 0)
_PACK_AT_ONCE: Final = 128
_BLANKS_AT_ONCE: Final = 4096
# Fixed bytes of a record that are no topic, body or property: 88 before the body, 2 of properties length.
_RECORD_FIXED_BYTES: Final = 90


@cache
def _packer(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)


class ConsumeQueue:
    """Entries of one queue.  A `store.queue.logic_queue.LogicQueue` whose units are its entries.

    ``min_offset <= max_offset <= written_offset <= next_offset``: what may be read, what consumers see
    (all of it confirmed), what is in the file, what appends have assigned.
    """

    __slots__ = (
        "_files",
        "_flushed_offset",
        "_last_end",
        "_last_file",
        "_last_start",
        "_last_view",
        "cold_end",
        "is_plain",
        "is_schedule",
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
    is_batch = False

    def __init__(self, disk: Disk, directory: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.magic, self.topic_bytes = topic_field(topic)
        self.record_base_bytes = _RECORD_FIXED_BYTES + len(self.topic_bytes)
        self._files = MappedFileQueue(disk, directory.joinpath(topic, str(queue_id)), file_bytes, preallocate=False)
        self.is_schedule = topic == SCHEDULE_TOPIC
        self.is_plain = not self.is_schedule
        # Fields of entries that are assigned and not yet written: three per entry.
        self.pending: list[int] = []
        self._reset(0)

    def _reset(self, offset: int) -> None:
        self.min_offset = self.max_offset = self.written_offset = self.next_offset = offset
        self._flushed_offset = offset
        self.cold_end = 0
        self.pending.clear()
        self._forget_last_file()

    def _forget_last_file(self) -> None:
        self._last_file: DiskFile | None = None
        # Mapped with the first read only: a mapping holds a descriptor of its own.
        self._last_view: memoryview | None = None
        self._last_start = self._last_end = 0

    @property
    def directory(self) -> Path:
        return self._files.directory

    @property
    def reported_min_offset(self) -> int:
        """What consumers and tools are told."""
        return self.min_offset

    @property
    def first_offset(self) -> int:
        """Index of the first entry for which there is a file."""
        return self._files.first_offset // UNIT

    def load(self) -> None:
        """Open the files.  Raises `StoreError` if they are no sequence of files of the configured size."""
        self._files.load()
        self._reset(self.first_offset)

    @property
    def first_unit(self) -> int:
        return self.first_offset

    @property
    def capacity_unit(self) -> int:
        """One past the last entry for which there is a file."""
        return self._files.end_offset // UNIT

    # Writing

    def add(self, physical_offset: int, size_bytes: int, tags_code: int, store_timestamp: int, count: int) -> None:
        """Assign the next offset to a message; its entry is then pending.  It knows neither time nor `count`."""
        self.pending += (physical_offset, size_bytes, tags_code)
        self.next_offset += 1

    def write_pending(self) -> None:
        """Write the pending entries.  Raises `DiskFull` or `DiskFailed`; they are then still pending."""
        entries = self.pending
        count = len(entries) // 3
        if count == 1:
            content = ENTRY.pack(*entries)
        elif count <= _PACK_AT_ONCE:
            content = _packer(count).pack(*entries)
        else:
            step = 3 * _PACK_AT_ONCE
            runs = (entries[at : at + step] for at in range(0, len(entries), step))
            content = b"".join(_packer(len(run) // 3).pack(*run) for run in runs)
        at, start = self.written_offset * UNIT, self._last_start
        if start <= at <= self._last_end - len(content) and self._last_file is not None:
            self._last_file.write(at - start, content)
        else:
            self._write(at, content)
        self.written_offset += count
        entries.clear()

    def append_entries(self, entries: npt.NDArray[np.void]) -> None:
        """Recovery: write entries of `CONSUME_QUEUE_DTYPE` behind the last; none may be pending."""
        content = entries.tobytes()
        at, start = self.written_offset * UNIT, self._last_start
        if start <= at <= self._last_end - len(content) and self._last_file is not None:
            self._last_file.write(at - start, content)
        else:
            self._write(at, content)
        self.written_offset += len(entries)
        self.next_offset = self.written_offset

    def roll_back(self, offset: int) -> None:
        """Let the entries from `offset` on be assigned anew: their batch failed."""
        self.pending.clear()
        self.written_offset = min(self.written_offset, offset)
        # What stands there next is not on the disk because what stood there was.
        self._flushed_offset = min(self._flushed_offset, offset)
        self.next_offset = offset

    def _write(self, at: int, content: bytes) -> None:
        if not self._files.files and at:
            self._fill_pre_blank(at // UNIT)
        self._files.write(at, content)
        self._last_file, self._last_view = self._files.files[-1], None
        self._last_end = self._files.end_offset
        self._last_start = self._last_end - self._files.file_bytes

    def _fill_pre_blank(self, offset: int) -> None:
        # A queue whose older entries are gone begins in the middle of a file; RocketMQ marks the part before.
        at = offset * UNIT
        self._files.first_offset = at - at % self._files.file_bytes
        self._write_blanks(self.first_offset, offset)
        _log.info("topic=%s queue=%d pre_blank_until=%d", self.topic, self.queue_id, offset)

    def _write_blanks(self, start: int, end: int) -> None:
        while start < end:
            count = min(end - start, _BLANKS_AT_ONCE)
            self._files.write(start * UNIT, _BLANK_ENTRY * count)
            start += count

    def put(
        self,
        offset: int,
        physical_offset: int,
        size_bytes: int,
        tags_code: int,
        store_timestamp: int = 0,
        count: int = 1,
    ) -> None:
        """Recovery: set entry `offset`, the newest.  Entries that are missing before it become blank."""
        if offset < self.next_offset:
            self.truncate(offset)
        if not self._files.files:
            self._reset(offset)
        elif offset > self.next_offset:
            self._write_blanks(self.next_offset, offset)
            if self.min_offset == self.next_offset:
                # All that was before has expired, and so has what stood where the blanks are.
                self.min_offset = offset
        self._write(offset * UNIT, ENTRY.pack(physical_offset, size_bytes, tags_code))
        self.next_offset = self.written_offset = self.max_offset = offset + 1

    def set_range(self, start: int, end: int, *, cut: bool) -> None:
        """Recovery: entries from `start` to before `end` are good; with `cut`, zero what is behind."""
        self._reset(end)
        self.min_offset = start
        if cut and end < self.capacity_unit:
            self._files.cut(end * UNIT)

    def truncate(self, offset: int) -> None:
        """Drop the entries from `offset` on."""
        self._files.cut(offset * UNIT)
        self.next_offset = self.written_offset = self.max_offset = offset
        self.min_offset = min(self.min_offset, offset)
        self._flushed_offset = min(self._flushed_offset, offset)
        self._forget_last_file()

    def destroy(self) -> None:
        """Remove all files; the queue is then empty and begins at 0."""
        self._files.destroy()
        self._reset(0)

    def close(self) -> None:
        self._forget_last_file()
        self._files.close()

    def drop_before(self, unit: int) -> list[DiskFile]:
        """Let go of the files with entries before `unit` only; return them for whoever removes them.

        The last file stays: it says where the queue goes on.  So do those that a flush may be working on.
        """
        return self._files.drop_before(min(unit, self._flushed_offset) * UNIT)

    # Flushing

    def unflushed_bytes(self) -> int:
        """Bytes of entries that no sync covers yet."""
        return (self.written_offset - self._flushed_offset) * UNIT

    def files_to_flush(self) -> tuple[list[DiskFile], int]:
        """The files with unflushed entries, and the offset to give to `flushed` after their sync."""
        if self.written_offset == self._flushed_offset:
            return [], self._flushed_offset
        written = self.written_offset
        return self._files.between(self._flushed_offset * UNIT, written * UNIT), written

    def flushed(self, offset: int) -> None:
        """Entries before `offset` are on the disk."""
        self._flushed_offset = max(self._flushed_offset, min(offset, self.written_offset))

    # Reading

    def view_at(self, offset: int) -> tuple[memoryview, int, int] | None:
        """Bytes of the file that holds entry `offset`, its position there, and how many entries fit behind it."""
        at = offset * UNIT
        start = self._last_start
        if start <= at < self._last_end and self._last_file is not None:
            view = self._last_view
            if view is None:
                view = self._last_view = self._last_file.view
            return view, at - start, (self._last_end - at) // UNIT
        located = self._files.locate(at)
        if located is None:
            return None
        file, position = located
        return file.view, position, (self._files.file_bytes - position) // UNIT

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """(physical_offset, size, tags_code) of entry `offset`, whatever it holds; None if no file has it."""
        located = self._files.locate(offset * UNIT)
        if located is None:
            return None
        # Not through the mapping: recovery looks at two entries of each queue, and a mapping costs more than reads.
        physical_offset, size, tags_code = ENTRY.unpack(located[0].read(located[1], UNIT))
        return physical_offset, size, tags_code

    def unit(self, unit: int) -> tuple[int, int, int] | None:
        """The entry of number `unit`, which is that of the queue offset."""
        return self.entry(unit)

    def offset_of(self, unit: int) -> int:
        """Queue offset of an entry: its number."""
        return unit

    def visible_units(self) -> tuple[int, int]:
        """The first entry that may be read, and one past the last."""
        return self.min_offset, self.max_offset

    def agrees(self, unit: int, record: Record) -> bool:
        """Whether `record` says that it is at this place of the queue."""
        return record.queue_offset == unit

    def entries(self, offset: int, count: int) -> npt.NDArray[np.void]:
        """Up to `count` entries from `offset` on as an array of `CONSUME_QUEUE_DTYPE`, within one file.  No copy."""
        found = self.view_at(offset)
        if found is None:
            return np.empty(0, CONSUME_QUEUE_DTYPE)
        view, position, available = found
        return np.frombuffer(view, CONSUME_QUEUE_DTYPE, min(count, available), position)
