"""Message properties of many records at once: the entries are found once for all names.

The text is ``name 0x01 value 0x02 ...``.  A value may hold 0x01.  The last value of a repeated name counts.  An entry
without 0x01 is ignored.
Source: RocketMQ 5.3.3, `MessageDecoder.string2messageProperties`.
"""

from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark.decode.binary_array import Positions, as_text
from spark.decode.engine import gather
from spark.decode.entry_columns import ABSENT, Entries, EntryColumns
from spark.decode.property_texts import PropertyTexts
from spark.decode.text_rows import PADDING
from sprocket.remoting.message.properties import NAME_END_BYTES, NAME_END_OCTET

_MANY_NAMES: Final = 64
# In texts with more entries, a name is searched for in all entries at once.
_MOST_COLUMNS: Final = 32


class PropertyTable:
    """Properties of some records, whose texts are `texts`."""

    def __init__(self, texts: PropertyTexts) -> None:
        self._texts = texts
        self._text = texts.octets
        count = self._texts.entries_per_text
        self._columns = None if count is None or count > _MOST_COLUMNS else EntryColumns(self._texts, count)

    def __len__(self) -> int:
        return len(self._texts)

    def find(self, name: bytes) -> pa.Array:
        """Return the value of `name` (at most 63 bytes) in each record, as strings; null if a record has none."""
        key = name + NAME_END_BYTES
        assert len(key) <= PADDING
        number = None if self._columns is None else self._columns.column_of(key)
        if number == ABSENT:
            return pa.nulls(len(self), pa.string())
        if self._columns is not None and number is not None:
            column = self._columns[number]
            return as_text(gather(pa.py_buffer(self._text), column.begins + len(key), column.ends))
        return self._find_in_all(key)

    def _find_in_all(self, key: bytes) -> pa.Array:
        entries = np.flatnonzero(self._entries.have(key))
        rows = self._rows[entries]
        begins = self._texts.begins.copy()
        ends = begins.copy()
        # The last one of a row overrides the others.
        begins[rows] = self._entries.begins[entries] + len(key)
        ends[rows] = self._entries.ends[entries]
        present = np.zeros(len(self), np.bool_)
        present[rows] = True
        return as_text(gather(pa.py_buffer(self._text), begins, ends, present))

    @cached_property
    def _bounds(self) -> Positions:
        """Return the first entry of each row, and the number of entries."""
        count = self._texts.entries_per_text
        if count is not None:
            return np.arange(0, len(self) * count + 1, count)
        bounds = np.zeros(len(self) + 1, np.int64)
        np.add(np.searchsorted(self._texts.entry_ends, self._texts.last_ends), 1, out=bounds[1:])
        return bounds

    @cached_property
    def _rows(self) -> Positions:
        """Return the row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self._bounds))

    @cached_property
    def _entries(self) -> Entries:
        """Return the entries of all rows, with and without 0x01."""
        ends = self._texts.entry_ends
        begins = np.empty_like(ends)
        begins[1:] = ends[:-1] + 1
        begins[self._bounds[:-1]] = self._texts.begins
        return Entries(self._text, begins, ends)

    def maps(self) -> pa.Array:
        """Return all properties of each record, as a map array."""
        bounds = self._find_names()
        entries = self._last_of_each_name(bounds)
        bounds = np.searchsorted(entries, bounds)
        data = pa.py_buffer(self._text)
        names = as_text(gather(data, self._entry_begins[entries], self._name_ends[entries]))
        values = as_text(gather(data, self._name_ends[entries] + 1, self._value_ends[entries]))
        return pa.MapArray.from_arrays(pa.array(bounds, pa.int32()), names, values)

    def _find_names(self) -> Positions:
        """Set, for every entry with a name, its start, the end of its name and the end of its value.

        Returns the first such entry of each row, and their number.
        """
        begins, ends = self._entries.begins, self._entries.ends
        found = self._texts.places_of(NAME_END_OCTET)
        if found.size != ends.size or not ((found >= begins).all() and (found < ends).all()):
            # Some entry has none, or several: a 0x01 inside a value ends no name.
            first = np.searchsorted(found, begins)
            found = np.append(found, self._text.size)[first]
        has_name = found < ends
        self._entry_begins, self._name_ends, self._value_ends = begins[has_name], found[has_name], ends[has_name]
        return np.append(0, np.cumsum(has_name))[self._bounds]

    def _last_of_each_name(self, bounds: npt.NDArray[np.int64]) -> Positions:
        """Return the entries that no later entry of the same record and name overrides."""
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
        """Return records with equal signatures of names, and records with too many names to compare."""
        counts = np.diff(bounds)
        rows = np.repeat(np.arange(len(self)), counts)
        signatures = self._name_signatures()
        suspects = [np.flatnonzero(counts > _MANY_NAMES)]
        for distance in range(1, min(int(counts.max(initial=1)), _MANY_NAMES)):
            alike = (signatures[distance:] == signatures[:-distance]) & (rows[distance:] == rows[:-distance])
            suspects.append(rows[distance:][alike])
        return np.unique(np.concatenate(suspects))

    def _name_signatures(self) -> npt.NDArray[np.uint64]:
        """Return a number for each entry's name; equal names have equal numbers."""
        every = np.ndarray((self._text.size - 7,), "<u8", self._text, 0, (1,))
        lengths = self._name_ends - self._entry_begins
        unused_bits = (8 * np.clip(8 - lengths, 0, 7)).astype(np.uint64)
        first = every[self._entry_begins] << unused_bits
        last = np.where(lengths < 8, first, every[np.maximum(self._name_ends - 8, 0)])
        mixed: npt.NDArray[np.uint64] = first * np.uint64(0x9E3779B97F4A7C15) + last + lengths.astype(np.uint64)
        return mixed
