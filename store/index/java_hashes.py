"""Java's `String.hashCode` of many texts at once.

The hash is a polynomial in 31 modulo 2**32, so zeros before a text add nothing.  Texts of different lengths are
therefore aligned at their ends, eight characters to a word.  The characters of a word are combined in lanes of 16, 32
and 64 bits, and no lane overflows.  `sprocket.remoting.codec.java_hash` hashes texts that are not ASCII.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codec.java_text import java_text
from store.scan.distinct_names import WORD_BYTES, Integers, Words

Hashes = npt.NDArray[np.uint32]

# Texts are grouped by the room that they need; longer ones are hashed one by one.
_ROOMS: Final = (32, 64, 128, 512)
_MODULUS: Final = 1 << 32
_POWERS: Final = np.array([pow(31, count, _MODULUS) for count in range(_ROOMS[-1] + 1)], np.uint32)
# Masks that keep the bytes of a little-endian word after the first k.
_AFTER: Final = np.array([~((1 << 8 * count) - 1) & ((1 << 64) - 1) for count in range(WORD_BYTES + 1)], np.uint64)
_NOT_ASCII: Final = np.uint64(0x8080_8080_8080_8080)
_LANES_8: Final = np.uint64(0x00FF_00FF_00FF_00FF)
_LANES_16: Final = np.uint64(0x0000_FFFF_0000_FFFF)
_LANES_32: Final = np.uint64(_MODULUS - 1)
_31_1, _31_2, _31_4, _31_8 = (np.uint64(31**power) for power in (1, 2, 4, 8))
_SHIFT_8, _SHIFT_16, _SHIFT_32 = (np.uint64(bits) for bits in (8, 16, 32))


def java_hashes(data: memoryview, ends: Integers, lengths: Integers, prefixes: Hashes) -> Hashes:
    """Return the hash of each UTF-8 text ``data[end - length : end]`` after a prefix with a hash of `prefixes`.

    Invalid UTF-8 is decoded as Java decodes it.
    """
    hashes = np.empty(ends.size, np.uint32)
    if not ends.size:
        return hashes
    is_done = np.zeros(ends.size, np.bool_)
    for room in _ROOMS:
        fits = (lengths <= room) & (ends >= room)
        if fits.all():
            # Usually all texts fit the first room.
            hashes[:], is_done[:] = _hashes_in(data, ends, lengths, room)
            break
        fits &= ~is_done
        if fits.any():
            hashes[fits], is_done[fits] = _hashes_in(data, ends[fits], lengths[fits], room)
    hashes += prefixes * _POWERS[np.minimum(lengths, _ROOMS[-1])]
    for text in np.flatnonzero(~is_done).tolist():
        name = java_text(data[ends[text] - lengths[text] : ends[text]])
        units = len(name.encode("utf-16-be", "surrogatepass")) // 2
        hashes[text] = (int(prefixes[text]) * pow(31, units, _MODULUS) + java_hash_code(name)) % _MODULUS
    return hashes


def _hashes_in(data: memoryview, ends: Integers, lengths: Integers, room: int) -> tuple[Words, npt.NDArray[np.bool_]]:
    """Return hashes of texts of at most `room` bytes, and whether each text is ASCII."""
    longest = max(int(lengths.max()), 1)
    width = -(-longest // WORD_BYTES) * WORD_BYTES
    places: npt.NDArray[np.void] = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    words = places[ends - width].view("<u8").reshape(ends.size, width // WORD_BYTES)
    if longest < width or int(lengths.min()) < width:
        foreign = width - lengths
        for column in range(width // WORD_BYTES):
            words[:, column] &= _AFTER[np.clip(foreign - WORD_BYTES * column, 0, WORD_BYTES)]
    parts = _of_words(words)
    hashes = parts[:, 0]
    for column in range(1, parts.shape[1]):
        hashes = hashes * _31_8 + parts[:, column]
    is_ascii = np.bitwise_or.reduce(words, axis=1) & _NOT_ASCII == 0
    return hashes & _LANES_32, is_ascii


def _of_words(words: Words) -> Words:
    """Return the polynomial of the eight characters of each word, the first in its lowest byte, modulo 2**32."""
    pairs = words & _LANES_8
    pairs *= _31_1
    pairs += (words >> _SHIFT_8) & _LANES_8
    fours = pairs & _LANES_16
    fours *= _31_2
    pairs >>= _SHIFT_16
    pairs &= _LANES_16
    fours += pairs
    eights = fours & _LANES_32
    eights *= _31_4
    fours >>= _SHIFT_32
    eights += fours
    return eights
