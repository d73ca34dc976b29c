"""Timer log: one unit for each message that entered the wheel.  The units of a slot are chained from new to old.

A unit of 52 bytes never spans two files.  Where a unit and 16 bytes no longer fit, the rest of the file is a blank.
Source: RocketMQ 5.3.3, `TimerLog`, `MappedFileQueue.deleteExpiredFileByOffsetForTimerLog`.
"""

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from store.disk.disk import Disk, DiskFile
from store.disk.mapped_file_queue import MappedFileQueue
from store.layout import TIMER_UNIT_DTYPE

_log = logging.getLogger(__name__)

UNIT_BYTES: Final = TIMER_UNIT_DTYPE.itemsize
BLANK_BYTES: Final = 16
# `TimerLog.BLANK_MAGIC_CODE`, as a signed number.
BLANK_MAGIC: Final = (0xBBCCDDEE ^ (1880681586 + 8)) - (1 << 32)
DEFAULT: Final = 1
ROLL: Final = 1 << 1
DELETE: Final = 1 << 2
_UNIT: Final = struct.Struct(">iqiqiqiiq")
_BLANK: Final = struct.Struct(">iqi")


class Unit(NamedTuple):
    """Unit: where its message's record lies, and when the message is due."""

    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    physical_offset: int
    record_bytes: int
    topic_hash: int

    @property
    def time_ms(self) -> int:
        """Due time, ms."""
        return self.write_ms + self.delay_ms


class UnitBatch:
    """Units to write together."""

    def __init__(self, start: int, file_bytes: int) -> None:
        self.start = start
        self.file_bytes = file_bytes
        self.content = bytearray()

    @property
    def end(self) -> int:
        """Position of the next unit, or of a blank before it."""
        return self.start + len(self.content)

    def add(self, unit: tuple[int, int, int, int, int, int, int]) -> int:
        """Add the fields of a `Unit`, after a blank if the file has no room for it.  Return its position."""
        position = self.end
        room = self.file_bytes - position % self.file_bytes
        if room < UNIT_BYTES + BLANK_BYTES:
            self.content += _BLANK.pack(room, 0, BLANK_MAGIC).ljust(room, b"\0")
            position += room
        self.content += _UNIT.pack(UNIT_BYTES, *unit, 0)
        return position


class TimerLog:
    """Files of the timer log; `end` is the position of the next unit."""

    def __init__(self, disk: Disk, directory: Path, file_bytes: int) -> None:
        self._disk = disk
        self._files = MappedFileQueue(disk, directory, file_bytes, preallocate=False)
        # Units per file.  RocketMQ leaves room for a blank after them.
        self._units_per_file = (file_bytes - BLANK_BYTES) // UNIT_BYTES
        self.end = 0

    @property
    def first(self) -> int:
        """Position at which the oldest file begins."""
        return self._files.first_offset

    def load(self) -> bool:
        """Open the files.  Return False if one does not follow the file before it.  Raises `DiskFailed`."""
        fits = not self._files.load_front()
        self.end = self._files.end_offset
        return fits

    def begin(self) -> UnitBatch:
        """Return an empty batch that starts after the last unit."""
        return UnitBatch(self.end, self._files.file_bytes)

    def write(self, batch: UnitBatch) -> None:
        """Write a batch.  Raises `DiskFull` or `DiskFailed`; then `end` is unchanged."""
        self._files.write(batch.start, batch.content)
        self.end = batch.end

    def unit(self, position: int) -> Unit | None:
        """Return the unit at `position`; None without one."""
        located = self._files.locate(position)
        if located is None or position + UNIT_BYTES > self.end:
            return None
        file, at = located
        if at + UNIT_BYTES > self._files.file_bytes:
            return None
        fields = _UNIT.unpack_from(file.view, at)
        return Unit._make(fields[1:8]) if fields[0] == UNIT_BYTES and is_magic(fields[2]) else None

    def file_at(self, position: int) -> tuple[memoryview, int, int] | None:
        """Return the file with `position`, where it begins, and where its units end; None without one."""
        located = self._files.locate(position)
        if located is None:
            return None
        file, at = located
        return file.view, position - at, min(position - at + self._files.file_bytes, self.end)

    def files_between(self, start: int, end: int) -> list[DiskFile]:
        """Return the files with bytes of ``[start, end)``, for a sync in another thread."""
        return self._files.between(start, end)

    def units(self, start: int, end: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """Iterate over possible units of ``[start, end)``: a position, and the units from there to its file's end.

        Blanks and parts that were never written are included.
        """
        file_bytes = self._files.file_bytes
        position = max(start, self.first)
        while position < end:
            located = self._files.locate(position)
            if located is None:
                return
            file, at = located
            number = at // UNIT_BYTES
            last = min(self._units_per_file, (at + end - position) // UNIT_BYTES)
            if last > number:
                begin = number * UNIT_BYTES
                units = np.frombuffer(file.view, TIMER_UNIT_DTYPE, last - number, begin)
                yield position - at + begin, units
            position += file_bytes - at

    def valid_end(self, start: int) -> int:
        """Return the end of the units that follow each other without a gap from `start` on."""
        position = max(start, self.first)
        for begin, units in self.units(position, self._files.end_offset):
            magic = units["magic"]
            bad = np.flatnonzero(
                (units["size"] != UNIT_BYTES) | (magic <= 0) | (magic > 0xF) | (units["record_size"] <= 0)
            )
            if len(bad):
                position = begin + int(bad[0]) * UNIT_BYTES
                if int(magic[bad[0]]) != BLANK_MAGIC:
                    return position
            else:
                position = begin + len(units) * UNIT_BYTES
        return min(position, self._files.end_offset)

    def position_before(self, position: int) -> int | None:
        """Return the position of the unit before the one at `position`; None if that is the oldest."""
        at = position % self._files.file_bytes
        if position <= self.first:
            return None
        if at == 0:
            return position - self._files.file_bytes + (self._units_per_file - 1) * UNIT_BYTES
        return position - at + (min(at // UNIT_BYTES, self._units_per_file) - 1) * UNIT_BYTES

    def cut(self, end: int) -> None:
        """Cut off what lies after `end`.  Raises `DiskFull` or `DiskFailed`."""
        if end < self._files.end_offset:
            self._files.cut(end)
        self.end = end

    def destroy(self) -> None:
        """Remove all files and begin at 0 again.  Raises `DiskFailed`."""
        self._files.destroy()
        self.end = 0

    def remove_expired(self, log_min_offset: int) -> int:
        """Remove the oldest files whose messages have left the CommitLog.  Return how many.  Raises `DiskFailed`."""
        count = 0
        last_at = (self._units_per_file - 1) * UNIT_BYTES
        for file in self._files.files[:-1]:
            _, _, magic, _, _, physical_offset, _, _, _ = _UNIT.unpack_from(file.view, last_at)
            if not is_magic(magic) or physical_offset >= log_min_offset:
                break
            count += 1
        for file in self._files.drop_oldest(count):
            file.close()
            self._disk.remove(file.path)
            _log.info("event=timer_log_file_removed file=%s log_min=%d", file.path.name, log_min_offset)
        return count

    def close(self) -> None:
        """Close all files."""
        self._files.close()


def is_magic(magic: int) -> bool:
    """Return whether `magic` is that of a unit (`TimerMessageStore.isMagicOK`)."""
    return magic | 0xF == 0xF
