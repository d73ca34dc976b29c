"""Entry of alike messages into the timer wheel by columns, and chains of units: the way of pure Python.

It has the interface of `sprocket.engine.store.timer_units`, so `TimerEnqueue` and `SlotDelivery` work by either.
Messages that are few, or not alike (`store.alike.stored_records`), are left to `TimerEnqueue._enter`.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import ANY_V6
from store.alike.columns import Longs, numbers_of
from store.alike.stored_records import read_alike
from store.layout import TIMER_UNIT_DTYPE

# After messages that are not alike, this many are entered one by one before a look at the next: it costs more than that
# of the compiled engine.
UNUSUAL: Final = 256
_UNIT_BYTES: Final = TIMER_UNIT_DTYPE.itemsize
_PLAIN_UNIT: Final = 1  # magic number of a unit whose message is delivered when its slot is over
# A file of the timer log ends with a blank of at least this size.
_BLANK_BYTES: Final = 16
_MAX_DELAY_MS: Final = (1 << 31) - 1
_ALL_FLAGS: Final = ~ANY_V6
_LINK: Final = struct.Struct(">iqi")

# First and last unit, and number of messages.
_Slot = tuple[int, int, int]


class UnitWriter:
    """Entry of the messages of one call, all of them or none.  See `sprocket.engine.store.timer_units.UnitWriter`."""

    def __init__(
        self,
        topic_field: bytes,
        now_slot: int,
        slot_ms: int,
        window_ms: int,
        position: int,
        file_bytes: int,
        slot_of: Callable[[int], _Slot | None],
        hash_of: Callable[[bytes], int | None],
    ) -> None:
        self._topic_field, self._now_slot, self._slot_ms, self._window_ms = topic_field, now_slot, slot_ms, window_ms
        self._position, self._file_bytes, self._slot_of, self._hash_of = position, file_bytes, slot_of, hash_of
        self._slots: list[tuple[int, int, int, int]] = []
        self._topics: list[tuple[bytes, int]] = []

    def enter(self, entries: npt.NDArray[np.void], segment: memoryview, base: int, end: int) -> bytes:
        """Enter the messages with which `entries` begin, up to the end of the segment or of the timer log's file.

        Return the units; none if the messages are unusual.  `segment` begins at the physical offset `base`; bytes from
        `end` on are not read.
        """
        room_bytes = self._file_bytes - self._position % self._file_bytes - _BLANK_BYTES
        entries = entries[: max(0, room_bytes) // _UNIT_BYTES]
        offsets, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
        inside = (offsets >= base) & (sizes > 0) & (offsets <= end - sizes)
        count = len(inside) if inside.all() else int(inside.argmin())
        offsets, sizes = offsets[:count], sizes[:count]
        parts = read_alike(segment[: max(0, end - base)], offsets - base, sizes, self._topic_field, _ALL_FLAGS)
        if parts is None:
            return b""
        units = np.zeros(count, TIMER_UNIT_DTYPE)
        due_ms = np.empty(count, np.int64)
        for part in parts:
            topic = part.shape.real_topic.encode()
            topic_hash = self._hash_of(topic)
            if topic_hash is None or b"TIMER_OUT_MS" not in part.shape.gaps:
                return b""
            due_ms[part.rows] = numbers_of(part.values(b"TIMER_OUT_MS"))
            units["topic_hash"][part.rows] = topic_hash
            self._topics.append((topic, len(part.rows)))
        delays_ms = due_ms - self._now_slot
        slots_ms = due_ms - due_ms % self._slot_ms
        if int(slots_ms.min()) < self._now_slot or int(delays_ms.max()) >= min(self._window_ms, _MAX_DELAY_MS):
            return b""
        if not self._chain(units, slots_ms):
            return b""
        units["size"], units["magic"], units["write_time"] = _UNIT_BYTES, _PLAIN_UNIT, self._now_slot
        units["delay"], units["physical_offset"], units["record_size"] = delays_ms, offsets, sizes
        return units.tobytes()

    def _chain(self, units: npt.NDArray[Any], slots_ms: Longs) -> bool:
        """Chain the units of each slot; return whether all slots may be used."""
        positions = self._position + np.arange(len(units)) * _UNIT_BYTES
        for slot_ms in np.unique(slots_ms).tolist():
            known = self._slot_of(slot_ms)
            if known is None:
                return False
            first, last, messages = known
            rows = (slots_ms == slot_ms).nonzero()[0]
            chain = positions[rows]
            units["previous_position"][rows[0]] = last
            units["previous_position"][rows[1:]] = chain[:-1]
            first = int(chain[0]) if first == -1 else first
            self._slots.append((slot_ms, first, int(chain[-1]), messages + len(chain)))
        return True

    def slots_entered(self) -> list[tuple[int, int, int, int]]:
        """Return time, first and last unit and number of messages of each slot that got any."""
        return self._slots

    def topics_entered(self) -> list[tuple[bytes, int]]:
        """Return name and number of messages of each topic."""
        return self._topics


def chained(file: memoryview, base: int, end: int, position: int, stop: int, max_units: int) -> tuple[list[int], int]:
    """Do as `sprocket.engine.store.timer_units.chained`."""
    found: list[int] = []
    unpack, last = _LINK.unpack_from, min(end, base + len(file)) - _UNIT_BYTES
    while len(found) < max_units and position >= stop and base <= position <= last:
        size, previous, magic = unpack(file, position - base)
        if size != _UNIT_BYTES or magic != _PLAIN_UNIT or previous >= position:
            break
        found.append(position)
        position = previous
    return found, position
