"""Search for the few different names at many places of the log, without an object per place.

The log repeats topics and tags.  Names are compared as 64-bit words: a hash of a name's words groups equal names.  Then
every word of every place is compared with that of its group, so the result is exact.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

WORD_BYTES: Final = 8
# Keeps the first k bytes of a little-endian word.
_KEEP: Final = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], np.uint64)
# If there are more different values than this, all are sorted.
_FEW: Final = 16
_FACTOR: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_SHIFT: Final = np.uint64(29)


def words_at(data: memoryview) -> Words:
    """Return a view of `data`: at each position the 8 bytes from there on, as a little-endian number."""
    return np.ndarray((len(data) - WORD_BYTES + 1,), "<u8", data, 0, (1,))


def groups_of(values: npt.NDArray[np.generic]) -> tuple[Integers, Integers]:
    """Return a place of each different value, and for each place the index of its value among those.

    A log usually has few topics and tags; comparing with each of them is cheaper than sorting.
    """
    index = np.zeros(values.size, np.int64)
    places = [0]
    rest = np.flatnonzero(values != values[0])
    while rest.size:
        if len(places) == _FEW:
            _, place, index = np.unique(values, return_index=True, return_inverse=True)
            return place, index
        place = int(rest[0])
        is_same = values[rest] == values[place]
        index[rest[is_same]] = len(places)
        places.append(place)
        rest = rest[~is_same]
    return np.array(places, np.int64), index


def distinct(data: memoryview, starts: Integers, lengths: Integers) -> tuple[list[bytes], Integers]:
    """Return the different names among ``data[start : start + length]``, and for each place the index of its name.

    At least 8 bytes must follow the begin of each name's last word.  The index is -1 for the rare name that has the
    same hash as another name.
    """
    if not starts.size:
        return [], np.empty(0, np.int64)
    words = words_at(data)
    last = words.size - 1
    longest = int(lengths.max())
    are_even = longest == int(lengths.min())
    rows = []
    for at in range(0, max(longest, 1), WORD_BYTES):
        row = words[np.minimum(starts + at, last)]
        row &= _KEEP[min(longest - at, WORD_BYTES)] if are_even else _KEEP[np.clip(lengths - at, 0, WORD_BYTES)]
        rows.append(row)
    if are_even and len(rows) == 1:
        place, index = groups_of(rows[0])
        return _names(data, starts[place], lengths[place]), index
    hashes = lengths.astype(np.uint64)
    for row in rows:
        hashes = (hashes ^ row) * _FACTOR
        hashes ^= hashes >> _SHIFT
    place, index = groups_of(hashes)
    same = lengths == lengths[place][index]
    for row in rows:
        same &= row == row[place][index]
    return _names(data, starts[place], lengths[place]), index if same.all() else np.where(same, index, -1)


def _names(data: memoryview, starts: Integers, lengths: Integers) -> list[bytes]:
    spots = zip(starts.tolist(), lengths.tolist(), strict=True)
    return [bytes(data[start : start + length]) for start, length in spots]
