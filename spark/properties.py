"""Message properties of many records at once: the separators are found once and shared by every name.

The text is ``name 0x01 value 0x02 ...``; the last 0x02 may be missing.  A value may hold 0x01, a repeated
name counts with its last value, and an entry without 0x01 is none.
Source: RocketMQ 5.3.3, `MessageDecoder.string2messageProperties`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from remoting.message_record import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from spark.binary_array import Positions, as_text, gather, offsets_of

_NAME_END: Final = NAME_VALUE_SEPARATOR[0]
_ENTRY_END: Final = PROPERTY_SEPARATOR[0]
# So that a comparison of a name may read past the last entry.
_PADDING: Final = 64
_MANY_NAMES: Final = 64
# Names of so many bytes, as integers.
_NUMBERS: Final = {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}


class PropertyTable:
    """The properties of a run of records.

    `data` holds the records' property texts; text i is [`begins`[i], `ends`[i]), in order.
    """

    def __init__(self, data: pa.Buffer, begins: Positions, ends: Positions) -> None:
        # Where a text does not end in a separator, all get a byte more, to be overwritten by one; the file may end with
        # the last text.
        all_end = _all_end_in_separators(data, begins, ends)
        texts = gather(data, begins, ends if all_end else np.minimum(ends + 1, data.size))
        self._row_begins = np.zeros(begins.size + 1, np.int64)
        np.cumsum(ends - begins + (not all_end), out=self._row_begins[1:])
        length = int(self._row_begins[-1])
        held = int(offsets_of(texts)[-1]) if begins.size else 0
        self._text = np.empty(length + _PADDING, np.uint8)
        if held:
            self._text[:held] = np.frombuffer(texts.buffers()[2], np.uint8, held)
        self._text[held:] = 0
        if not all_end:
            self._text[self._row_begins[1:] - 1] = _ENTRY_END
        self._find_entries(length)

    def __len__(self) -> int:
        return self._row_begins.size - 1

    def find(self, name: bytes) -> pa.Array:
        """The value of `name` in each record, as strings; null where a record has none."""
        entries = np.flatnonzero(self._name_ends - self._entry_begins == len(name))
        # Integers are compared much faster than texts.
        kind = _NUMBERS.get(len(name), f"S{len(name)}")
        names = np.ndarray((self._text.size - len(name) + 1,), kind, self._text, 0, (1,))
        entries = entries[names[self._entry_begins[entries]] == np.frombuffer(name, kind)[0]]
        rows = self._rows_of(entries)
        if rows is None:
            return as_text(gather(pa.py_buffer(self._text), self._name_ends[entries] + 1, self._value_ends[entries]))
        begins = self._row_begins[:-1].copy()
        ends = begins.copy()
        begins[rows] = self._name_ends[entries] + 1
        ends[rows] = self._value_ends[entries]
        present = np.zeros(len(self), np.bool_)
        present[rows] = True
        return as_text(gather(pa.py_buffer(self._text), begins, ends, present))

    def maps(self) -> pa.Array:
        """All properties of each record, as a map array."""
        bounds = np.searchsorted(self._name_ends, self._row_begins)
        entries = self._last_of_each_name(bounds)
        bounds = np.searchsorted(entries, bounds)
        data = pa.py_buffer(self._text)
        names = as_text(gather(data, self._entry_begins[entries], self._name_ends[entries]))
        values = as_text(gather(data, self._name_ends[entries] + 1, self._value_ends[entries]))
        return pa.MapArray.from_arrays(pa.array(bounds, pa.int32()), names, values)

    def _find_entries(self, length: int) -> None:
        """Set, for every entry, where it begins, where its name ends and where its value ends."""
        text = self._text[:length]
        found = np.flatnonzero((text - np.uint8(1)) <= 1)  # 0x01 or 0x02
        is_name_end = text[found] == _NAME_END
        if found.size % 2 == 0 and is_name_end[::2].all() and not is_name_end[1::2].any():
            self._name_ends, self._value_ends = found[::2], found[1::2]
            self._entry_begins = np.zeros(self._name_ends.size, np.int64)
            np.add(self._value_ends[:-1], 1, out=self._entry_begins[1:])
            return
        begins = np.concatenate((np.zeros(1, np.int64), found[:-1] + 1)) if found.size else found
        if (is_name_end[1:] & is_name_end[:-1]).any():
            # A 0x01 inside a value: it ends no name.
            kept = ~is_name_end
            kept[0] = True
            kept[1:] |= is_name_end[1:] & ~is_name_end[:-1]
            found, is_name_end = found[kept], is_name_end[kept]
            begins = np.concatenate((np.zeros(1, np.int64), found[:-1] + 1))
        at = np.flatnonzero(is_name_end)
        self._entry_begins = begins[at]
        self._name_ends = found[at]
        self._value_ends = found[at + 1]  # there always is one: each text ends in a separator

    def _rows_of(self, entries: Positions) -> Positions | None:
        """Which record each of `entries` belongs to; None if each record has one of them."""
        at = self._name_ends[entries]
        if at.size == len(self) and (at >= self._row_begins[:-1]).all() and (at < self._row_begins[1:]).all():
            return None
        return np.searchsorted(self._row_begins, at, "right") - 1

    def _last_of_each_name(self, bounds: npt.NDArray[np.int64]) -> Positions:
        """Entries without those that a later entry of the same record and name overrides."""
        dropped: set[int] = set()
        for row in self._rows_with_a_repeated_name(bounds).tolist():
            last: dict[bytes, int] = {}
            for entry in range(int(bounds[row]), int(bounds[row + 1])):
                name = self._text[self._entry_begins[entry] : self._name_ends[entry]].tobytes()
                if name in last:
                    dropped.add(last[name])
                last[name] = entry
        every = np.arange(self._name_ends.size)
        return np.delete(every, sorted(dropped)) if dropped else every

    def _rows_with_a_repeated_name(self, bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Records where two names look alike, and those with too many to compare; repeated names are rare."""
        counts = np.diff(bounds)
        rows = np.repeat(np.arange(len(self)), counts)
        signatures = self._name_signatures()
        suspects = [np.flatnonzero(counts > _MANY_NAMES)]
        for distance in range(1, min(int(counts.max(initial=1)), _MANY_NAMES)):
            alike = (signatures[distance:] == signatures[:-distance]) & (rows[distance:] == rows[:-distance])
            suspects.append(rows[distance:][alike])
        return np.unique(np.concatenate(suspects))

    def _name_signatures(self) -> npt.NDArray[np.uint64]:
        """A number for each entry's name; equal names have equal numbers."""
        every = np.ndarray((self._text.size - 7,), "<u8", self._text, 0, (1,))
        lengths = self._name_ends - self._entry_begins
        unused_bits = (8 * np.clip(8 - lengths, 0, 7)).astype(np.uint64)
        first = every[self._entry_begins] << unused_bits
        last = np.where(lengths < 8, first, every[np.maximum(self._name_ends - 8, 0)])
        mixed: npt.NDArray[np.uint64] = first * np.uint64(0x9E3779B97F4A7C15) + last + lengths.astype(np.uint64)
        return mixed


def _all_end_in_separators(data: pa.Buffer, begins: Positions, ends: Positions) -> bool:
    if not (ends > begins).all():
        return False
    octets = np.frombuffer(data, np.uint8)
    return bool((octets[ends - 1] == _ENTRY_END).all())
