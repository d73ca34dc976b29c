"""Entries of property texts with the same number of entries: column k has entry k of each text.

A producer writes its properties in one order, so a name is usually in a single column.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from spark.decode.binary_array import Positions
from spark.decode.property_texts import PropertyTexts

# No text has the name.
ABSENT: Final = -1
_WORD: Final = 8


class Entries:
    """Entries of property texts in `octets`, each from one of `begins` to the separator at one of `ends`."""

    def __init__(self, octets: npt.NDArray[np.uint8], begins: Positions, ends: Positions) -> None:
        self._octets = octets
        self.begins = begins
        self.ends = ends
        self._heads: npt.NDArray[np.uint64] | None = None

    def have(self, key: bytes) -> npt.NDArray[np.bool_]:
        """Return which entries begin with `key`, a name and the byte that ends it."""
        if self._heads is None:  # the first 8 bytes: shared by all names
            every: npt.NDArray[np.uint64] = np.ndarray((self._octets.size - _WORD + 1,), "<u8", self._octets, 0, (1,))
            self._heads = every[self.begins]
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


class EntryColumns:
    """Entries of `texts`, which have `count` entries each."""

    def __init__(self, texts: PropertyTexts, count: int) -> None:
        ends = texts.entry_ends.reshape(-1, count)
        self._columns: list[Entries] = []
        begins = texts.begins
        for number in range(count):
            # A copy: it is read several times below.
            self._columns.append(Entries(texts.octets, begins, ends[:, number].copy()))
            begins = self._columns[-1].ends + 1
        self._first = [bytes(texts.octets[each.begins[0] : each.ends[0]]) for each in self._columns]

    def __getitem__(self, number: int) -> Entries:
        return self._columns[number]

    def column_of(self, key: bytes) -> int | None:
        """Return the column that has `key` (a name and the byte that ends it) in every text.

        ABSENT: no text has it.  None: the column varies, or a later column of some text repeats the name.
        """
        for number in reversed(range(len(self._columns))):
            found = self._columns[number].have(key)
            if self._first[number].startswith(key):
                return number if found.all() else None
            if found.any():
                return None
        return ABSENT
