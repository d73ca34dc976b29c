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
from spark.decode.property_texts import PADDING, PropertyTexts
from sprocket.remoting.message.properties import NAME_END_BYTES, NAME_END_OCTET

_MANY_NAMES: Final = 64
_WORD: Final = 8


class _Entries:
    """Entries of property texts in `octets`, each from one of `begins` to the separator at one of `ends`."""

    def __init__(self, octets: npt.NDArray[np.uint8], begins: Positions, ends: Positions) -> None:
        self._octets = octets
        self.begins = begins
        self.ends = ends
        # The first 8 bytes: shared by all names.
        every: npt.NDArray[np.uint64] = np.ndarray((octets.size - _WORD + 1,), "<u8", octets, 0, (1,))
        self._heads = every[begins]

    def have(self, key: bytes) -> npt.NDArray[np.bool_]:
        """Return which entries begin with `key`, a name and the byte that ends it."""
        start = key[:_WORD]
        wanted = np.uint64(int.from_bytes(start, "little"))
        found: npt.NDArray[np.bool_]
        if len(start) == _WORD:
            found = self._heads == wanted
        else:
            found = self._heads & np.uint64((1 << 8 * len(start)) - 1) == wanted
        if len(key) > _WORD and found.any():
            at = np.flatnonzero(found)
            texts = np.ndarray((self._octets.size - len(key) + 1,), f"S{len(key)}", self._octets, 0, (1,))
            found[at] = texts[self.begins[at]] == key
        return found


class PropertyTable:
    """Properties of some records, whose texts are `texts`."""

    def __init__(self, texts: PropertyTexts) -> None:
        self._texts = texts
        self._text = texts.octets

    def __len__(self) -> int:
        return len(self._texts)

    def find(self, name: bytes) -> pa.Array:
        """Return the value of `name` (at most 63 bytes) in each record, as strings; null if a record has none."""
        key = name + NAME_END_BYTES
        assert len(key) <= PADDING
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
        bounds = np.zeros(len(self) + 1, np.int64)
        np.add(np.searchsorted(self._texts.entry_ends, self._texts.last_ends), 1, out=bounds[1:])
        return bounds

    @cached_property
    def _rows(self) -> Positions:
        """Return the row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self._bounds))

    @cached_property
    def _entries(self) -> _Entries:
        """Return the entries of all rows, with and without 0x01."""
        ends = self._texts.entry_ends
        begins = np.empty_like(ends)
        begins[1:] = ends[:-1] + 1
        begins[self._bounds[:-1]] = self._texts.begins
        return _Entries(self._text, begins, ends)

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
