"""Search in the encoded properties of many records at once, in words of 8 bytes.

The rules for one record are those of `sprocket.remoting.message.properties`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.properties import VALUE_END_OCTET
from store.scan.distinct_names import Integers, Words

# Bytes searched at once: intermediate arrays then fit the processor's cache.
_BLOCK_BYTES: Final = 64 * 1024
_EVERY_BIT: Final = 0xFF
# Of a word whose wanted bytes became zero, the lowest zero byte shows.
_ONES: Final = np.uint64(0x0101_0101_0101_0101)
_TOPS: Final = np.uint64(0x8080_8080_8080_8080)
_ONE: Final = np.uint64(1)
_SEPARATORS: Final = np.uint64(VALUE_END_OCTET) * _ONES


def candidates(
    data: memoryview, properties_at: Integers, width: int, letter: int, mask: int = _EVERY_BIT
) -> tuple[Integers, Integers]:
    """Return records and columns, in order, where a property begins whose name begins with the byte `letter`.

    A column counts from the first byte of the record's properties and is less than `width`.  With `mask`, only its bits
    of the first byte are compared.
    """
    windows: npt.NDArray[np.void] = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    last = windows.size - 1
    rows = max(1, _BLOCK_BYTES // width)
    found = []
    for at in range(0, properties_at.size, rows):
        octets = windows[np.minimum(properties_at[at : at + rows], last)].view(np.uint8)
        begins = (octets if mask == _EVERY_BIT else octets & np.uint8(mask)) == letter
        is_first_column = begins[::width].copy()
        begins[1:] &= octets[:-1] == VALUE_END_OCTET
        begins[::width] = is_first_column
        found.append(np.flatnonzero(begins) + at * width)
    records, columns = np.divmod(np.concatenate(found), width)
    return records, columns


def octet_bits(words: Words, octet: int) -> Words:
    """Return words whose lowest set bit is the top bit of the first byte that equals `octet`; 0 if there is none."""
    return _zero_bits(words ^ (np.uint64(octet) * _ONES))


def separator_bits(words: Words) -> Words:
    """Return `octet_bits` of the separator after a property."""
    return _zero_bits(words ^ _SEPARATORS)


def _zero_bits(words: Words) -> Words:
    return (words - _ONES) & ~words & _TOPS


def byte_of(bits: Words) -> Integers:
    """Return the index of the byte with the lowest set bit of each word, which is the top bit of its byte; 8 if 0."""
    lowest = bits & (~bits + _ONE)
    # The bits below the lowest set bit; without one, all 64.
    return np.bitwise_count(lowest - _ONE).astype(np.int64) >> 3
