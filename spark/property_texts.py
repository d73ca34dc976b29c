"""The property texts of many records in one array, and where their entries end.

The text is ``name 0x01 value 0x02 ...``; the last 0x02 may be missing, and is put in then.
Source: RocketMQ 5.3.3, `MessageDecoder.string2messageProperties`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from remoting.message_record import PROPERTY_SEPARATOR
from spark.binary_array import Positions, gather

ENTRY_END: Final = PROPERTY_SEPARATOR[0]
# So that a comparison of a name may read past the last entry.
PADDING: Final = 64
_WORD: Final = 8
# Texts of so much more than they hold: in rows of one size they are copied several times as fast as end to end.
_MOST_WIDENING: Final = 2
_MOST_RAGGED_WORDS: Final = 16
# Which bytes of a word are kept if the first 0 to 8 are; the first byte is the lowest.
_FIRST_BYTES: Final = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], "<u8")
# Times a word in which one byte is 1, it has the number of that byte in its highest.
_BYTE_NUMBERS: Final = np.uint64(0x0001020304050607)


class PropertyTexts:
    """Copies of [`begins`, `ends`) of `data`, in order: text i is what stands from `begins`[i] on up to a separator at
    `last_ends`[i], the last of its entries.

    `octets` holds them, `entry_ends` is where all their entries end.  What is between two texts has no separators.
    """

    def __init__(self, data: pa.Buffer, begins: Positions, ends: Positions) -> None:
        sizes = ends - begins
        # At least one byte more than the longest has: for a separator.
        width = (int(sizes.max(initial=0)) + _WORD) // _WORD * _WORD
        self.begins: Positions
        if _are_alike(sizes, width) and width <= data.size:
            self.octets = _rows(data, begins, sizes, width)
            self.begins = np.arange(0, sizes.size * width, width)
        else:
            self.begins = np.zeros(sizes.size, np.int64)
            np.cumsum(sizes[:-1] + 1, out=self.begins[1:])
            self.octets = _end_to_end(data, begins, ends, self.begins + sizes)
        self.last_ends: Positions = self.begins + (sizes - 1)
        self.entry_ends = self._find_entry_ends()
        # How many entries each text has if all have as many, else None.
        self.entries_per_text = self._count_entries()
        if self.entries_per_text is None and self._put_in_separators(sizes):
            self.entry_ends = self._find_entry_ends()
            self.entries_per_text = self._count_entries()

    def __len__(self) -> int:
        return self.begins.size

    def _find_entry_ends(self) -> Positions:
        return _places(self.octets == ENTRY_END)

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


def _are_alike(sizes: npt.NDArray[np.int64], width: int) -> bool:
    if not sizes.size or width * sizes.size > _MOST_WIDENING * int(sizes.sum()):
        return False
    return len(_ragged_words(sizes, width)) <= _MOST_RAGGED_WORDS


def _rows(data: pa.Buffer, begins: Positions, sizes: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
    """The texts in rows of `width` bytes, zeros behind each, and padding behind all."""
    count = sizes.size
    every = np.ndarray((data.size - width + 1,), f"V{width}", data, 0, (1,))
    inside = int(np.searchsorted(begins, every.size))
    at = np.zeros(count + -(-PADDING // width), np.int64)
    at[:inside] = begins[:inside]
    rows = every[at].view(np.uint8).reshape(-1, width)
    rows[count:] = 0
    for row in range(inside, count):  # so near to the end of the data: a few
        rows[row, : sizes[row]] = np.frombuffer(data, np.uint8, int(sizes[row]), int(begins[row]))
    words = rows.view("<u8")
    for number in _ragged_words(sizes, width):
        words[:count, number] &= _FIRST_BYTES[np.clip(sizes - number * _WORD, 0, _WORD)]
    return rows.reshape(-1)


def _ragged_words(sizes: npt.NDArray[np.int64], width: int) -> range:
    """Which words of the rows belong to only some of the texts, or in part."""
    return range(int(sizes.min()) // _WORD, width // _WORD)


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
