"""The property texts of many records in one array, and where their entries end.

The text is ``name 0x01 value 0x02 ...``; the last 0x02 may be missing, and is put in then.
Source: RocketMQ 5.3.3, `MessageDecoder.string2messageProperties`.
"""

from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark.decode.binary_array import Positions, gather
from spark.decode.text_rows import PADDING, TextRows
from sprocket.remoting.message.record import PROPERTY_SEPARATOR

ENTRY_END: Final = PROPERTY_SEPARATOR[0]
_WORD: Final = 8
# Times a word in which one byte is 1, it has the number of that byte in its highest.
_BYTE_NUMBERS: Final = np.uint64(0x0001020304050607)


class PropertyTexts:
    """Property texts in `octets`: text i is what stands from `begins`[i] on up to a separator at `last_ends`[i], the
    last of its entries.

    `entry_ends` is where all their entries end.  Something else may stand between two texts, and `PADDING` bytes
    behind the last.
    """

    def __init__(
        self,
        octets: npt.NDArray[np.uint8],
        begins: Positions,
        sizes: npt.NDArray[np.int64],
        rows: TextRows | None = None,
    ) -> None:
        """Texts of `sizes` in `octets`, which get separators.  If those are not of `rows`, zeros are between them."""
        self.octets = octets
        self.begins = begins
        self.last_ends: Positions = begins + (sizes - 1)
        self._rows = rows
        self.entry_ends = self.places_of(ENTRY_END)
        # How many entries each text has if all have as many, else None.
        self.entries_per_text = self._count_entries()
        if self.entries_per_text is None and self._put_in_separators(sizes):
            self.entry_ends = self.places_of(ENTRY_END)
            self.entries_per_text = self._count_entries()

    @classmethod
    def copied(cls, data: pa.Buffer, begins: Positions, ends: Positions) -> Self:
        """Copies of [`begins`, `ends`) of `data`, in order."""
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
        """Where in the texts `octet` stands."""
        found = self.octets == octet
        if self._rows is not None:
            self._rows.within(found, self.begins, self.last_ends + 1)
        return _places(found)

    def _count_entries(self) -> int | None:
        if not len(self):
            return None
        count, left = divmod(self.entry_ends.size, len(self))
        # In order, and each last of so many ends its text: then all have so many.
        alike = not left and count > 0 and np.array_equal(self.entry_ends[count - 1 :: count], self.last_ends)
        return count if alike else None

    def _put_in_separators(self, sizes: npt.NDArray[np.int64]) -> bool:
        """Let each text end in a separator; whether one had none."""
        lacks = (sizes == 0) | (self.octets[self.last_ends] != ENTRY_END)
        if not lacks.any():
            return False
        self.last_ends = self.last_ends + lacks
        self.octets[self.last_ends] = ENTRY_END
        return True


def _end_to_end(data: pa.Buffer, begins: Positions, ends: Positions, gaps: Positions) -> npt.NDArray[np.uint8]:
    """The texts with a zero behind each, at `gaps`, and padding behind all."""
    octets = np.zeros((int(gaps[-1]) + _WORD if gaps.size else 0) // _WORD * _WORD + PADDING, np.uint8)
    # One byte more of each, for the zero; the data may end with the last text.
    held = gather(data, begins, np.minimum(ends + 1, data.size)).buffers()[2]
    if held is not None:
        octets[: held.size] = np.frombuffer(held, np.uint8)
    octets[gaps] = 0
    return octets


def _places(found: npt.NDArray[np.bool_]) -> Positions:
    """Where `found` is true.  Its size is a multiple of 8, and few are."""
    words = found.view("<u8")
    at = np.flatnonzero(words != 0)
    if np.count_nonzero(found) != at.size:  # some word has several
        return np.flatnonzero(found)
    bytes_of_words = words[at] * _BYTE_NUMBERS >> np.uint64(56)
    at *= _WORD
    at += bytes_of_words.view(np.int64)
    return at
