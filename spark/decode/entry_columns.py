"""Entries of property texts that all have as many: column k has entry k of each text.

One producer writes its properties in one order, so a name is most often in one column and in no other.
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
    """Some entries of property texts in `octets`: from `begins` on, each up to the separator at one of `ends`."""

    def __init__(self, octets: npt.NDArray[np.uint8], begins: Positions, ends: Positions) -> None:
        self._octets = octets
        self.begins = begins
        self.ends = ends
        self._heads: npt.NDArray[np.uint64] | None = None

    def have(self, key: bytes) -> npt.NDArray[np.bool_]:
        """Which entries begin with `key`, a name and the byte that ends it."""
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
    """The entries of `texts`, of which each has `count`."""

    def __init__(self, texts: PropertyTexts, count: int) -> None:
        ends = texts.entry_ends.reshape(-1, count)
        self._columns: list[Entries] = []
        begins = texts.begins
        for number in range(count):
            # A copy: what follows reads it several times.
            self._columns.append(Entries(texts.octets, begins, ends[:, number].copy()))
            begins = self._columns[-1].ends + 1
        self._first = [bytes(texts.octets[each.begins[0] : each.ends[0]]) for each in self._columns]

    def __getitem__(self, number: int) -> Entries:
        return self._columns[number]

    def column_of(self, key: bytes) -> int | None:
        """The column that has `key`, a name and the byte that ends it, in each text while no later one has it in any;
        ABSENT if no text has it; None if it is not so simple."""
        for number in reversed(range(len(self._columns))):
            found = self._columns[number].have(key)
            if self._first[number].startswith(key):
                return number if found.all() else None
            if found.any():
                return None
        return ABSENT
