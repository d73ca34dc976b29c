"""One IndexFile: from keys to the records that have them.

Source: RocketMQ 5.3.3, `IndexFile`, `IndexHeader`.  The file is a header of 40 bytes, hash slots of 4 bytes, and units
of 20 bytes, declared in `store.layout`.  Unit 0 is never used: 0 in a slot or a unit ends the chain.
A slot holds the newest unit of all keys that hash to it, and each unit names the one before it.

The file is sparse and written with `pwrite`, like files of a ConsumeQueue.  Units follow one another, so a batch of
them is one write.  Slots are scattered.  The slots of the growing file are kept in memory, where searches read them.
They are written in runs of pages, after the units that they name and before the header that counts them.

One thread writes, others may search: a unit is written before a slot names it.
"""

import logging
import struct
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from sprocket.common.errors import StoreError
from sprocket.common.logs.peer_lines import peer_lines
from store.disk.disk import DiskFile
from store.index.key_scan import IndexEntries
from store.layout import INDEX_HEADER_DTYPE, INDEX_SLOT_BYTES, INDEX_UNIT_DTYPE

_log = logging.getLogger(__name__)
HEADER_BYTES: Final = INDEX_HEADER_DTYPE.itemsize
UNIT_BYTES: Final = INDEX_UNIT_DTYPE.itemsize
# Units that one search reads at most.  Otherwise a client could keep us busy with a key whose slot has millions.
MAX_STEPS: Final = 4_000_000
_HEADER: Final = struct.Struct(">qqqqii")
_UNIT: Final = struct.Struct(">iqii")
_SLOT: Final = struct.Struct(">i")
_INVALID: Final = 0
_MAX_INT: Final = (1 << 31) - 1
_ORDER_BITS: Final = 32
_ORDER_MASK: Final = (1 << _ORDER_BITS) - 1
_PAGE_SLOTS: Final = 4096 // INDEX_SLOT_BYTES
# Clean pages between dirty ones are written with them: one call costs more than this many pages.
_PAGE_GAP: Final = 16


class IndexDamaged(StoreError):
    """An index file does not hold what was written to it.  The index is rebuilt from the log."""


@dataclass(slots=True)
class IndexHeader:
    """Header as on disk: times in ms, offsets in the log, `index_count` the number of the next unit."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    @classmethod
    def decode(cls, content: memoryview) -> Self:
        """Return the header at the beginning of a file."""
        header = cls(*_HEADER.unpack_from(content))
        if header.index_count <= 0:
            header.index_count = 1
        return header

    def encode(self) -> bytes:
        """Return the 40 bytes of the header."""
        return _HEADER.pack(*astuple(self))


class IndexFile:
    """File of `slot_count` slots and room for ``max_units - 1`` entries."""

    def __init__(self, file: DiskFile, slot_count: int, max_units: int, header: IndexHeader, *, is_new: bool) -> None:
        self._file = file
        # Taken once: a search may still hold a file that is closed meanwhile.
        self._view = file.view
        self._slot_count = slot_count
        self._max_units = max_units
        self._units_at = HEADER_BYTES + slot_count * INDEX_SLOT_BYTES
        self.header = header
        # Slots of the growing file, and which of their pages are not yet written.
        self._slots: npt.NDArray[np.int32] | None = None
        self._dirty_pages = np.zeros(-(-slot_count // _PAGE_SLOTS), np.bool_)
        self._is_header_dirty = is_new
        # Whether the whole file is on the disk.
        self.is_flushed = not is_new

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._file.path

    @property
    def is_full(self) -> bool:
        """Whether it has no room for more entries."""
        return self.header.index_count >= self._max_units

    # Writing

    def open_slots(self) -> None:
        """Make ready to write.  Raises `IndexDamaged` if the slots do not fit the header."""
        if self._slots is not None:
            return
        if self.header.index_count == 1:
            self._slots = np.zeros(self._slot_count, np.int32)
            return
        self._slots = self._checked_slots()

    def check_slots(self) -> None:
        """Raise `IndexDamaged` if the slots do not fit the header.  Reads all of them."""
        self._checked_slots()

    def _checked_slots(self) -> npt.NDArray[np.int32]:
        # Not through the mapping: most of it may never have been written, see `header_fault`.
        stored = self._file.read(HEADER_BYTES, self._slot_count * INDEX_SLOT_BYTES)
        slots = np.frombuffer(stored, ">i4").astype(np.int32)
        used = int(np.count_nonzero(slots))
        if used != self.header.hash_slot_count:
            raise IndexDamaged(f"{self.path}: {used} slots are used, the header says {self.header.hash_slot_count}")
        if int(slots.min()) < 0 or int(slots.max()) >= self.header.index_count:
            raise IndexDamaged(f"{self.path}: a slot names a unit that is not there")
        return slots

    def put(self, entries: IndexEntries) -> int:
        """Put the first of `entries`, as many as fit.  Return how many.

        Call `open_slots` first.  Raises `DiskFull` or `DiskFailed` with nothing put.
        """
        header, slots = self.header, self._slots
        assert slots is not None
        first = header.index_count
        count = min(len(entries), self._max_units - first)
        if count <= 0:
            return 0
        self.is_flushed = False
        entries = entries.between(0, count)
        # Entries of one slot side by side, in their order: the low bits make this a stable sort.
        keys = (entries.key_hashes % self._slot_count).astype(np.int64)
        keys <<= _ORDER_BITS
        keys |= np.arange(count)
        keys.sort()
        numbers = keys & _ORDER_MASK
        keys >>= _ORDER_BITS
        follows = keys[1:] == keys[:-1]
        before = slots[keys].astype(np.int64)
        before[1:][follows] = numbers[:-1][follows] + first
        units = np.empty(count, INDEX_UNIT_DTYPE)
        units["key_hash"] = entries.key_hashes
        units["physical_offset"] = entries.physical_offsets
        units["time_diff_s"] = self._time_diffs(entries)
        units["previous_index"][numbers] = before
        self._file.write(self._units_at + first * UNIT_BYTES, units.view(np.uint8).data)
        self._count(entries, int(np.count_nonzero(before == _INVALID)))
        # From here on searches find the entries.
        is_newest = np.ones(count, np.bool_)
        np.logical_not(follows, out=is_newest[:-1])
        touched = keys[is_newest]
        slots[touched] = numbers[is_newest] + first
        self._dirty_pages[touched // _PAGE_SLOTS] = True
        return count

    def _time_diffs(self, entries: IndexEntries) -> npt.NDArray[np.int64]:
        """Return seconds after the file's begin.  The first entry counts from the end of the file before it."""
        times = entries.store_timestamps
        begin, is_first = self.header.begin_timestamp, self.header.index_count <= 1
        base = int(times[0]) if is_first else begin
        diffs = np.clip((times - base) // 1000, 0, _MAX_INT) if base > 0 else np.zeros(times.size, np.int64)
        if is_first:
            diffs[0] = min(max((int(times[0]) - begin) // 1000, 0), _MAX_INT) if begin > 0 else 0
        return diffs

    def _count(self, entries: IndexEntries, new_slots: int) -> None:
        header = self.header
        if header.index_count <= 1:
            header.begin_physical_offset = int(entries.physical_offsets[0])
            header.begin_timestamp = int(entries.store_timestamps[0])
        header.end_physical_offset = int(entries.physical_offsets[-1])
        header.end_timestamp = int(entries.store_timestamps[-1])
        header.hash_slot_count += new_slots
        header.index_count += len(entries)
        self._is_header_dirty = True

    def write_slots(self) -> None:
        """Write the slots that changed, then the header.  Raises `DiskFull` or `DiskFailed`; then call it again."""
        slots, pages = self._slots, np.flatnonzero(self._dirty_pages)
        if slots is not None and pages.size:
            breaks = np.flatnonzero(np.diff(pages) > _PAGE_GAP) + 1
            for run in np.split(pages, breaks):
                start, end = int(run[0]) * _PAGE_SLOTS, (int(run[-1]) + 1) * _PAGE_SLOTS
                content = slots[start:end].astype(">i4").view(np.uint8)
                self._file.write(HEADER_BYTES + start * INDEX_SLOT_BYTES, content.data)
            self._dirty_pages[pages] = False
            self._is_header_dirty = True
        if self._is_header_dirty:
            self._file.write(0, self.header.encode())
            self._is_header_dirty = False

    def flush(self) -> None:
        """Write what is in memory and sync the file.  Raises as `write_slots`."""
        self.write_slots()
        self._file.sync()
        self.is_flushed = True

    def drop_slots(self) -> None:
        """Free the slots' memory of a file that is full and flushed.  Searches then read its slots from the file."""
        self._slots = None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # Searching

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Return whether the file may hold entries of the times `begin` to `end`, ms."""
        first, last = self.header.begin_timestamp, self.header.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def select(self, found: list[int], key_hash: int, limit: int, begin: int, end: int) -> None:
        """Add to `found`, newest first, up to `limit` records with the hash and a time from `begin` to `end`, ms.

        Raises `IndexDamaged` if the chain of units is broken.
        """
        header = self.header
        slot = key_hash % self._slot_count
        index = self._slot(slot)
        if not _INVALID < index <= header.index_count or header.index_count <= 1:
            return
        view, units_at, file_begin = self._view, self._units_at, header.begin_timestamp
        for _ in range(MAX_STEPS):
            if len(found) >= limit:
                return
            unit_hash, physical_offset, diff_s, previous = _UNIT.unpack_from(view, units_at + index * UNIT_BYTES)
            if unit_hash < 0 or unit_hash % self._slot_count != slot or previous >= index:
                raise IndexDamaged(f"{self.path}: unit {index} does not belong to slot {slot}")
            if diff_s < 0:
                return
            time = file_begin + diff_s * 1000
            if unit_hash == key_hash and begin <= time <= end:
                found.append(physical_offset)
            if previous <= _INVALID or time < begin:
                return
            index = previous
        peer_lines.warning(_log, "", "event=index_search_ended file=%s slot=%d reason=chain_too_long", self.path, slot)

    def _slot(self, slot: int) -> int:
        slots = self._slots
        if slots is not None:
            return int(slots[slot])
        index: int = _SLOT.unpack_from(self._view, HEADER_BYTES + slot * INDEX_SLOT_BYTES)[0]
        return index

    # Checking

    def units(self, start: int, end: int) -> npt.NDArray[np.void]:
        """Return a copy of units ``[start, end)``."""
        content = self._file.read(self._units_at + start * UNIT_BYTES, (end - start) * UNIT_BYTES)
        return np.frombuffer(content, INDEX_UNIT_DTYPE)

    def header_fault(self) -> str | None:
        """Return why header and last unit cannot be those of an index file; None if they can.

        Pages that may never have been written are not read through the mapping: a full tmpfs raises SIGBUS for them.
        """
        header = self.header
        count = header.index_count
        if not 1 <= count <= self._max_units:
            return f"index count {count} is not within 1 to {self._max_units}"
        if not 0 <= header.hash_slot_count <= min(count - 1, self._slot_count):
            return f"hash slot count {header.hash_slot_count} does not fit index count {count}"
        if not 0 <= header.begin_physical_offset <= header.end_physical_offset or header.begin_timestamp < 0:
            return "its offsets or times are invalid"
        if count == 1:
            return None
        first, last = self.units(1, 2)[0], self.units(count - 1, count)[0]
        if first["physical_offset"] != header.begin_physical_offset:
            return "its first unit is not at the begin offset"
        if last["physical_offset"] != header.end_physical_offset:
            return "its last unit is not at the end offset"
        return None

    def fault(self) -> str | None:
        """Return why the file differs from what writing its units would make; None if equal.  Reads all of it."""
        reason = self.header_fault()
        count = self.header.index_count
        if reason is not None or count == 1:
            return reason
        units = self.units(1, count)
        hashes = units["key_hash"].astype(np.int64)
        if (hashes < 0).any() or (units["time_diff_s"] < 0).any() or (np.diff(units["physical_offset"]) < 0).any():
            return "a unit has a negative field, or its offsets decrease"
        order = np.argsort(hashes % self._slot_count, kind="stable")
        slots = (hashes % self._slot_count)[order]
        follows = np.concatenate(([False], slots[1:] == slots[:-1]))
        expected = np.zeros(hashes.size, np.int64)
        expected[order[follows]] = order[np.flatnonzero(follows) - 1] + 1
        wrong = np.flatnonzero(expected != units["previous_index"])
        if wrong.size:
            return f"unit {int(wrong[0]) + 1} names the wrong unit before it"
        heads = np.zeros(self._slot_count, np.int64)
        heads[slots] = order + 1
        stored = self._slots
        if stored is None:
            stored = np.ndarray((self._slot_count,), ">i4", self._view, HEADER_BYTES)
        wrong = np.flatnonzero(heads != stored)
        return f"slot {int(wrong[0])} names the wrong unit" if wrong.size else None
