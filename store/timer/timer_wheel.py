"""Wheel: for each slot of time, where its messages begin and end in the timer log.

The file is a ring of ``2 * slots_total`` slots of 32 bytes.  A slot's own time says whether it is in use.  Past slots
are never cleared, they are overwritten.
Source: RocketMQ 5.3.3, `TimerWheel`, `Slot`.
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from store.config.timer_config import SLOTS_TOTAL
from store.disk.disk import Disk, DiskFile
from store.layout import TIMER_SLOT_DTYPE

SLOT_BYTES: Final = TIMER_SLOT_DTYPE.itemsize
_SLOT: Final = struct.Struct(">qqqii")
_TIME: Final = struct.Struct(">q")
# Slots to scan at once.
_SCAN: Final = 4096


class Slot(NamedTuple):
    """Slot in use: positions in the timer log of its oldest and newest unit, and its number of messages."""

    first: int
    last: int
    messages: int


class TimerWheel:
    """Slots of the wheel.  Methods take the time at which a slot begins, ms, a multiple of `slot_ms`."""

    def __init__(self, disk: Disk, path: Path, slot_ms: int, slots_total: int = SLOTS_TOTAL) -> None:
        self._disk = disk
        self.path = path
        self.slot_ms = slot_ms
        self.ring_slots = slots_total * 2
        self.size_bytes = self.ring_slots * SLOT_BYTES
        self._file: DiskFile | None = None
        self._view = memoryview(b"")

    @property
    def is_open(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def open(self) -> bool:
        """Open the file.  Return False if there is none of the right size.  Raises `DiskFailed`."""
        if self._disk.size(self.path) != self.size_bytes:
            return False
        self._hold(self._disk.open(self.path, preallocate=False))
        return True

    def create(self) -> None:
        """Create the file with all slots free, replacing an old one.  Raises `DiskFull` or `DiskFailed`."""
        self.close()
        self._hold(self._disk.create(self.path, self.size_bytes, preallocate=False))

    def remove(self) -> None:
        """Remove the file.  Raises `DiskFailed`."""
        self.close()
        self._disk.remove(self.path)

    def _hold(self, file: DiskFile) -> None:
        self._file = file
        self._view = file.view

    def sync(self) -> None:
        """Sync every slot to the disk.  May run in any thread.  Raises `DiskFailed`."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file.  A wheel without a file has no slots."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # One slot

    def _position(self, number: int) -> int:
        return number % self.ring_slots * SLOT_BYTES

    def get(self, time_ms: int) -> Slot | None:
        """Return the slot of a time; None if it was never set."""
        if self._file is None:
            return None
        number = time_ms // self.slot_ms
        time, first, last, count, _ = _SLOT.unpack_from(self._view, self._position(number))
        return Slot(first, last, count) if time == number else None

    def occupant_ms(self, time_ms: int) -> int:
        """Return the time, this or a past one, whose slot occupies the place of `time_ms`; 0 for none."""
        if self._file is None:
            return 0
        time: int = _TIME.unpack_from(self._view, self._position(time_ms // self.slot_ms))[0]
        return time * self.slot_ms

    def put(self, time_ms: int, first: int, last: int, count: int) -> None:
        """Set a slot.  Raises `DiskFull` or `DiskFailed`."""
        assert self._file is not None
        number = time_ms // self.slot_ms
        self._file.write(self._position(number), _SLOT.pack(number, first, last, count, 0))

    def read_raw(self, time_ms: int) -> bytes:
        """Return the bytes at the place of a time's slot."""
        position = self._position(time_ms // self.slot_ms)
        return bytes(self._view[position : position + SLOT_BYTES])

    def write_raw(self, time_ms: int, content: bytes) -> None:
        """Write back what `read_raw` returned.  Raises `DiskFull` or `DiskFailed`."""
        assert self._file is not None
        self._file.write(self._position(time_ms // self.slot_ms), content)

    # Many slots

    def _slots(self) -> npt.NDArray[np.void]:
        return np.frombuffer(self._view, TIMER_SLOT_DTYPE)

    def next_used(self, from_ms: int, to_ms: int) -> int:
        """Return the time of the first slot in use in ``[from_ms, to_ms)``; `to_ms` without one."""
        if self._file is None:
            return to_ms
        number, end = from_ms // self.slot_ms, to_ms // self.slot_ms
        times = self._slots()["time"]
        if end - number > self.ring_slots:
            used = times[(times >= max(1, number)) & (times < end)]
            return int(used.min()) * self.slot_ms if len(used) else to_ms
        while number < end:
            begin = number % self.ring_slots
            count = min(end - number, self.ring_slots - begin, _SCAN)
            used = np.flatnonzero(times[begin : begin + count] == np.arange(number, number + count))
            if len(used):
                return (number + int(used[0])) * self.slot_ms
            number += count
        return to_ms

    def _pending(self, from_ms: int) -> npt.NDArray[np.void]:
        """Return the slots of times from `from_ms` on."""
        slots = self._slots()
        return slots[slots["time"] >= max(1, from_ms // self.slot_ms)]

    def count_from(self, from_ms: int) -> int:
        """Return the number of messages in the slots from `from_ms` on (`getAllNum`)."""
        if self._file is None:
            return 0
        return int(self._pending(from_ms)["count"].sum())

    def count_between(self, from_ms: int, to_ms: int) -> int:
        """Return the number of messages in the slots in ``[from_ms, to_ms)``, which are no more than the ring has."""
        number, end, count = from_ms // self.slot_ms, to_ms // self.slot_ms, 0
        while self._file is not None and number < end:
            begin = number % self.ring_slots
            size = min(end - number, self.ring_slots - begin)
            part = self._slots()[begin : begin + size]
            count += int(part["count"][part["time"] == np.arange(number, number + size)].sum())
            number += size
        return count

    def latest_ms(self) -> int:
        """Return the latest time of any slot ever set; 0 for none."""
        if self._file is None:
            return 0
        return int(self._slots()["time"].max()) * self.slot_ms

    def earliest_ms(self) -> int | None:
        """Return the earliest time of a slot in use, delivered or not; None without one."""
        if self._file is None:
            return None
        times = self._pending(0)["time"]
        return int(times.min()) * self.slot_ms if len(times) else None

    def oldest_position(self, from_ms: int) -> int | None:
        """Return the position of the oldest unit of the slots from `from_ms` on; None if all are free."""
        if self._file is None:
            return None
        pending = self._pending(from_ms)
        return int(pending["first_position"].min()) if len(pending) else None

    def reaching(self, from_ms: int, position: int) -> dict[int, Slot]:
        """Return, by time, the slots from `from_ms` on whose newest unit is at or after `position` (`checkPhyPos`)."""
        if self._file is None:
            return {}
        pending = self._pending(from_ms)
        chosen = pending[pending["last_position"] >= position]
        return {
            int(slot["time"]) * self.slot_ms: Slot(
                int(slot["first_position"]), int(slot["last_position"]), int(slot["count"])
            )
            for slot in chosen
        }

    def free(self, time_ms: int) -> None:
        """Free a slot.  Raises `DiskFull` or `DiskFailed`."""
        self.write_raw(time_ms, bytes(SLOT_BYTES))
