"""One ConsumeQueue: the positions in the CommitLog of the messages of a topic's queue.

Source: RocketMQ 5.3.3, `ConsumeQueue`.  Entry k is the 20 bytes at byte 20 * k of the queue: physical offset i64, size
i32, tags code i64.

Its files are sparse and written with `pwrite`.  A file is 6 MB by default and most queues of a broker are nearly empty,
so reserved blocks as for the CommitLog would cost a thousand queues 6 GB.  A full disk still causes an error of the
write, not SIGBUS, because nothing is stored through a mapping.
"""

import logging
import struct
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC
from store.disk.disk import Disk, DiskFile
from store.layout import CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_UNIT_BYTES
from store.queue.logic_queue import NO_SLOTS, Entry, LogicQueue
from store.record.record import Record

_log = logging.getLogger(__name__)
UNIT: Final = CONSUME_QUEUE_UNIT_BYTES
ENTRY: Final = struct.Struct(">qiq")
# Size in a blank entry: the message was never in this queue (`ConsumeQueue.fillPreBlank`).
BLANK_SIZE: Final = 0x7FFFFFFF
_BLANK_ENTRY: Final = ENTRY.pack(0, BLANK_SIZE, 0)
_PACK_AT_ONCE: Final = 128
_BLANKS_AT_ONCE: Final = 4096
# Entries that are read at once where only the first and the last are needed: about a page.
NEAR_UNITS: Final = 200


@cache
def _packer(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)


def encode_entries(fields: list[int]) -> bytes:
    """Return the bytes of entries; `fields` has physical offset, size and tags code of each."""
    count = len(fields) // 3
    if count == 1:
        return ENTRY.pack(*fields)
    if count <= _PACK_AT_ONCE:
        return _packer(count).pack(*fields)
    step = 3 * _PACK_AT_ONCE
    runs = (fields[at : at + step] for at in range(0, len(fields), step))
    return b"".join(_packer(len(run) // 3).pack(*run) for run in runs)


class ConsumeQueue(LogicQueue):
    """Entries of one queue, which are its units.

    `pending` has three fields per entry.  The two kinds differ in what they keep in memory: `TopicQueue` all of it,
    `store.queue.light_queue.LightQueue` only what a quiet queue needs.
    """

    __slots__ = NO_SLOTS
    unit_bytes = UNIT
    is_batch = False
    # The first entries, from `load_listed` to `border_units`.
    _head: bytes
    _last_file: DiskFile | None
    # Mapped by the first read only, because a mapping holds a descriptor of its own.
    _last_view: memoryview | None
    _last_start: int
    _last_end: int

    def _reset(self, offset: int) -> None:
        self.min_offset = self.max_offset = self.written_offset = self.next_offset = offset
        self._synced_unit = offset
        self.cold_end = 0
        self._head = b""
        self._forget_work()

    def _forget_work(self) -> None:
        self.pending.clear()
        self._forget_last_file()

    def _forget_last_file(self) -> None:
        self._last_file = self._last_view = None
        self._last_start = self._last_end = 0

    @property
    def _end_unit(self) -> int:
        return self.written_offset

    @property
    def reported_min_offset(self) -> int:
        """`min_offset`, as consumers and tools see it."""
        return self.min_offset

    @property
    def first_offset(self) -> int:
        """Index of the first entry with a file."""
        return self._files.first_offset // UNIT

    def load(self) -> None:
        self._files.load()
        self._reset(self.first_offset)

    def load_listed(self, first: int, end: int) -> bool:
        at, file_bytes = first * UNIT, self._files.file_bytes
        if at % file_bytes or not at < end * UNIT <= at + file_bytes:
            return False
        # The check of the queue needs both ends.  The files of most queues of a large broker are nearly empty, so one
        # read has them, and the entry after them.
        content = self._files.load_only(at, 0, min(end - first + 1, NEAR_UNITS) * UNIT)
        if content is None:
            return False
        self._reset(first)
        self._head = content
        return True

    @property
    def first_unit(self) -> int:
        return self.first_offset

    @property
    def capacity_unit(self) -> int:
        return self._files.end_offset // UNIT

    # Writing

    def add(self, physical_offset: int, size_bytes: int, tags_code: int, store_timestamp: int, count: int) -> None:
        """Assign the next offset to a message; its entry is then pending.  `store_timestamp` and `count` are unused."""
        self.pending += (physical_offset, size_bytes, tags_code)
        self.next_offset += 1

    def write_pending(self) -> None:
        self.write_units(encode_entries(self.pending))
        self.pending.clear()

    def write_units(self, content: bytes) -> None:
        """Write encoded entries after the last written one; `next_offset` counts them already."""
        at, start = self.written_offset * UNIT, self._last_start
        if start <= at <= self._last_end - len(content) and self._last_file is not None:
            self._last_file.write(at - start, content)
        else:
            self._write(at, content)
        self.written_offset += len(content) // UNIT

    def append_entries(self, entries: npt.NDArray[np.void]) -> None:
        """Write entries of `CONSUME_QUEUE_DTYPE` after the last, in recovery; none may be pending."""
        self.write_units(entries.tobytes())
        self.next_offset = self.written_offset

    def roll_back(self, offset: int) -> None:
        self.pending.clear()
        self.written_offset = min(self.written_offset, offset)
        # The entries that replace them are not on the disk, even if these were.
        self._synced_unit = min(self._synced_unit, offset)
        self.next_offset = offset

    def _write(self, at: int, content: bytes) -> None:
        if not self._files.files and at:
            self._fill_pre_blank(at // UNIT)
        self._files.write(at, content)
        self._last_file, self._last_view = self._files.files[-1], None
        self._last_end = self._files.end_offset
        self._last_start = self._last_end - self._files.file_bytes

    def _fill_pre_blank(self, offset: int) -> None:
        # A queue whose older entries are gone begins within a file; RocketMQ fills the part before with blanks.
        at = offset * UNIT
        self._files.begin_at(at - at % self._files.file_bytes)
        self._write_blanks(self.first_offset, offset)
        peer_lines.info(
            _log, "", "event=queue_begins_with_blanks topic=%s queue=%d until=%d", self.topic, self.queue_id, offset
        )

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
        """Write entry `offset`, the newest, in recovery.  Missing entries before it become blanks."""
        if offset < self.next_offset:
            self.truncate(offset)
        if not self._files.files:
            self._reset(offset)
        elif offset > self.next_offset:
            self._write_blanks(self.next_offset, offset)
            if self.min_offset == self.next_offset:
                # All earlier messages have expired, also those at the offsets of the blanks.
                self.min_offset = offset
        self._write(offset * UNIT, ENTRY.pack(physical_offset, size_bytes, tags_code))
        self.next_offset = self.written_offset = self.max_offset = offset + 1

    def set_range(self, start: int, end: int, *, cut: bool) -> None:
        self._reset(end)
        self.min_offset = start
        if cut and end < self.capacity_unit:
            self._files.cut(end * UNIT)

    def truncate(self, offset: int) -> None:
        """Remove the entries from `offset` on."""
        self._files.cut(offset * UNIT)
        self.next_offset = self.written_offset = self.max_offset = offset
        self.min_offset = min(self.min_offset, offset)
        self._synced_unit = min(self._synced_unit, offset)
        self._forget_last_file()

    def destroy(self) -> None:
        self._files.destroy()
        self._reset(0)

    def close(self) -> None:
        self._forget_last_file()
        super().close()

    # Reading

    def view_at(self, offset: int) -> tuple[memoryview, int, int] | None:
        """Return the bytes of the file with entry `offset`, its position there, and the number of entries after it."""
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

    def entry(self, offset: int) -> Entry | None:
        """Return (physical_offset, size, tags_code) of entry `offset`, blank or not; None if no file has it."""
        located = self._files.locate(offset * UNIT)
        if located is None:
            return None
        # Not through the mapping: recovery reads two entries of each queue, and a mapping costs more than two reads.
        physical_offset, size, tags_code = ENTRY.unpack(located[0].read(located[1], UNIT))
        return physical_offset, size, tags_code

    def mapped_entry(self, offset: int) -> Entry | None:
        """Do as `entry`, through the mapping, which costs less than a read for a queue that is read often."""
        found = self.view_at(offset)
        if found is None:
            return None
        physical_offset, size, tags_code = ENTRY.unpack_from(found[0], found[1])
        return physical_offset, size, tags_code

    def unit(self, unit: int) -> Entry | None:
        """Return the entry at the queue offset `unit`."""
        return self.entry(unit)

    def border_units(self, start: int, end: int) -> tuple[Entry | None, Entry | None, Entry | None]:
        head, self._head = self._head, b""
        if start != self.first_offset or len(head) < (end - start + 1) * UNIT:
            return self.entry(start), self.entry(end - 1), self.entry(end)
        unpack, count = ENTRY.unpack_from, end - start
        return unpack(head), unpack(head, (count - 1) * UNIT), unpack(head, count * UNIT)

    def offset_of(self, unit: int) -> int:
        """Return the queue offset of an entry: its number."""
        return unit

    def visible_units(self) -> tuple[int, int]:
        return self.min_offset, self.max_offset

    def agrees(self, unit: int, record: Record) -> bool:
        """Return whether `record` belongs at this offset of the queue."""
        return record.queue_offset == unit

    def entries(self, offset: int, count: int) -> npt.NDArray[np.void]:
        """Return up to `count` entries of one file from `offset` on, a `CONSUME_QUEUE_DTYPE` array without a copy."""
        found = self.view_at(offset)
        if found is None:
            return np.empty(0, CONSUME_QUEUE_DTYPE)
        view, position, available = found
        return np.frombuffer(view, CONSUME_QUEUE_DTYPE, min(count, available), position)


class TopicQueue(ConsumeQueue):
    """A queue of a topic, with all of its state in memory."""

    __slots__ = (
        "_files",
        "_head",
        "_last_end",
        "_last_file",
        "_last_start",
        "_last_view",
        "_synced_unit",
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

    def __init__(self, disk: Disk, directory: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        super().__init__(disk, directory, topic, queue_id, file_bytes)
        self.is_schedule = topic == SCHEDULE_TOPIC
        self.is_plain = not self.is_schedule
        self._reset(0)
