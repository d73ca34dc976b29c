"""Number of slots of an index file, derived from its content, because its size allows several.

The header does not hold it, and maxHashSlotNum may have any value.  The units begin after the slots, the newest unit
has the last offset of the header, and the slot of its key leads to it.  Only one number of slots satisfies this.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from store.layout import INDEX_HEADER_DTYPE, INDEX_SLOT_BYTES, INDEX_UNIT_DTYPE

_HEADER_BYTES: Final = INDEX_HEADER_DTYPE.itemsize
_UNIT_BYTES: Final = INDEX_UNIT_DTYPE.itemsize
_UNIT_WORDS: Final = _UNIT_BYTES // INDEX_SLOT_BYTES
# maxIndexNum is four times maxHashSlotNum by default.
UNITS_PER_SLOT: Final = 4
_DEFAULT_BYTES: Final = INDEX_SLOT_BYTES + UNITS_PER_SLOT * _UNIT_BYTES


def default_slots(size_bytes: int) -> int | None:
    """Return the number of slots if the size is that of four units per slot; None otherwise."""
    rest = size_bytes - _HEADER_BYTES
    return rest // _DEFAULT_BYTES if rest > 0 and rest % _DEFAULT_BYTES == 0 else None


def slot_count_of(data: memoryview) -> int | None:
    """Return the number of slots that fits the units of an index file; None if none does.

    For a file without units any number of slots fits.
    """
    size_bytes = len(data)
    rest = size_bytes - _HEADER_BYTES
    if rest < INDEX_SLOT_BYTES + _UNIT_BYTES or rest % INDEX_SLOT_BYTES:
        return None
    header = np.frombuffer(data, INDEX_HEADER_DTYPE, 1)[0]
    newest = int(header["index_count"]) - 1
    words = np.frombuffer(data, ">u4", rest // INDEX_SLOT_BYTES, _HEADER_BYTES)
    first = words.size % _UNIT_WORDS or _UNIT_WORDS
    default = default_slots(size_bytes)
    if newest < 1:
        return default or first
    end = words.size - _UNIT_WORDS * (newest + 1) + 1
    if default is not None and default < end and _fitting(words, header, newest, default, default + 1).size:
        return default
    found = _fitting(words, header, newest, first, end)
    return int(found[0]) if found.size else None


def _fitting(
    words: npt.NDArray[np.uint32], header: np.void, newest: int, first: int, end: int
) -> npt.NDArray[np.int64]:
    """Return the numbers of slots from `first` to `end`, in steps of a unit's words, that fit the newest unit."""
    at = _UNIT_WORDS * newest
    high, low = divmod(int(header["end_physical_offset"]) & (1 << 64) - 1, 1 << 32)
    fits = words[first + at + 2 : end + at + 2 : _UNIT_WORDS] == low
    fits &= words[first + at + 1 : end + at + 1 : _UNIT_WORDS] == high
    slots: npt.NDArray[np.int64] = first + _UNIT_WORDS * np.flatnonzero(fits)
    slots = slots[words[words[slots + at] % slots] == newest]
    # Unit 0 is never used.
    is_blank: npt.NDArray[np.bool_] = ~words[slots[:, None] + np.arange(_UNIT_WORDS)].any(axis=1)
    return slots[is_blank]
