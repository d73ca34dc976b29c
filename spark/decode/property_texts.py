"""Property texts of many records in one array, and the ends of their entries.

The text is ``name 0x01 value 0x02 ...``; a missing last 0x02 is added.
Source: RocketMQ 5.3.3, `MessageDecoder.string2messageProperties`.

`store.scan.property_scan` finds one name; here all entries are found once, for any number of names.
"""

from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark.decode.binary_array import Positions
from spark.decode.engine import gather
from spark.decode.text_rows import PADDING, TextRows
from sprocket.remoting.message.properties import VALUE_END_OCTET

_WORD: Final = 8
# The product with a word in which one byte is 1 has the index of that byte in its highest byte.
_BYTE_NUMBERS: Final = np.uint64(0x0001020304050607)


class PropertyTexts:
    """Property texts in `octets`: text i begins at `begins`[i] and ends with the separator at `last_ends`[i].

    `entry_ends` are the ends of all entries.  Other bytes may be between two texts; `PADDING` bytes follow the last
    one.
    """

    def __init__(
        self,
        octets: npt.NDArray[np.uint8],
        begins: Positions,
        sizes: npt.NDArray[np.int64],
        rows: TextRows | None = None,
    ) -> None:
        """Take texts of `sizes` in `octets` and add separators.  Without `rows`, zeros are between the texts."""
        self.octets = octets
        self.begins = begins
        self.last_ends: Positions = begins + (sizes - 1)
        self._rows = rows
        self.entry_ends = self.places_of(VALUE_END_OCTET)
        # Number of entries of each text if all have the same number, else None.
        self.entries_per_text = self._count_entries()
        if self.entries_per_text is None and self._put_in_separators(sizes):
            self.entry_ends = self.places_of(VALUE_END_OCTET)
            self.entries_per_text = self._count_entries()

    @classmethod
    def copied(cls, data: pa.Buffer, begins: Positions, ends: Positions) -> Self:
        """Copy the texts [`begins`, `ends`) of `data`, in order."""
        sizes = ends - begins
        rows = TextRows.of(data, begins, ends)
        if rows is not None:
            return cls(rows.octets, rows.begins, sizes, rows)
        places = np.zeros(sizes.size, np.int64)
        np.cumsum(sizes[:-1] + 1, out=places[1:])
        return cls(_end_to_end(data, begins, ends, places + sizes), places, sizes)

    def __len__(self) -> int:
        return self.begins.size

    def places_of(self, octet: int) -> Positions:
        """Return the places of `octet` in the texts."""
        found = self.octets == octet
        if self._rows is not None:
            self._rows.within(found, self.begins, self.last_ends + 1)
        return _places(found)

    def _count_entries(self) -> int | None:
        if not len(self):
            return None
        count, left = divmod(self.entry_ends.size, len(self))
        # If each count-th entry ends its text, all texts have that number of entries.
        alike = not left and count > 0 and np.array_equal(self.entry_ends[count - 1 :: count], self.last_ends)
        return count if alike else None

    def _put_in_separators(self, sizes: npt.NDArray[np.int64]) -> bool:
        """Make each text end in a separator; return whether one was missing."""
        lacks = (sizes == 0) | (self.octets[self.last_ends] != VALUE_END_OCTET)
        if not lacks.any():
            return False
        self.last_ends = self.last_ends + lacks
        self.octets[self.last_ends] = VALUE_END_OCTET
        return True


def _end_to_end(data: pa.Buffer, begins: Positions, ends: Positions, gaps: Positions) -> npt.NDArray[np.uint8]:
    """Return the texts with a zero after each, at `gaps`, and padding after the last."""
    octets = np.zeros((int(gaps[-1]) + _WORD if gaps.size else 0) // _WORD * _WORD + PADDING, np.uint8)
    # Copy one more byte of each, in place of the zero; the data may end with the last text.
    held = gather(data, begins, np.minimum(ends + 1, data.size)).buffers()[2]
    if held is not None:
        octets[: held.size] = np.frombuffer(held, np.uint8)
    octets[gaps] = 0
    return octets


def _places(found: npt.NDArray[np.bool_]) -> Positions:
    """Return the places where `found` is true: they must be few, and its size a multiple of 8."""
    words = found.view("<u8")
    at = np.flatnonzero(words != 0)
    if np.count_nonzero(found) != at.size:  # some word has several places
        return np.flatnonzero(found)
    bytes_of_words = words[at] * _BYTE_NUMBERS >> np.uint64(56)
    at *= _WORD
    at += bytes_of_words.view(np.int64)
    return at
