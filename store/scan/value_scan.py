"""Search for the values of one property in many records.

A record's value is the last non-empty one of that name, as in `sprocket.remoting.message.properties.find_last`.  All
properties are searched in a few passes; unusual records and long values are read one by one.
"""

from typing import Final

import numpy as np

from sprocket.remoting.message.properties import VALUE_END_OCTET
from store.scan.distinct_names import WORD_BYTES, Integers, Words, words_at
from store.scan.property_scan import candidates, separator_bits

# Records with longer properties are read alone.
_WINDOW_BYTES: Final = 256
_ONE: Final = np.uint64(1)
# A value's key is its bytes followed by the separator, so no value has one of these two keys.
_NO_VALUE: Final = np.uint64(0)
ALONE: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


class ValueScan:
    """Search for the property `name`, which ends with 0x01."""

    __slots__ = ("_parts", "name")

    def __init__(self, name: bytes) -> None:
        self.name = name
        # For each word of the name: its begin, the mask of the name's bytes in it, and those bytes.
        pieces = [(at, name[at : at + WORD_BYTES]) for at in range(0, len(name), WORD_BYTES)]
        self._parts = [
            (at, np.uint64((1 << 8 * len(piece)) - 1), np.uint64(int.from_bytes(piece, "little")))
            for at, piece in pieces
        ]

    def keys(self, data: memoryview, starts: Integers, ends: Integers) -> Words:
        """Return a key for each record with properties from `starts` to before `ends`: equal keys, equal values.

        The key is `ALONE` for a record that must be read alone, such as one without a separator after its properties.
        """
        keys = np.full(starts.size, _NO_VALUE)
        longest = int((ends - starts).max())
        if longest <= 0:
            return keys
        width = min(longest, _WINDOW_BYTES, len(data))
        words = words_at(data)
        records, columns = candidates(data, starts, width, self.name[0])
        names = starts[records] + columns
        # Nothing is read outside the data; records near its end are read alone.
        last = words.size - 1
        if int(ends.max()) + width + len(self.name) > last:
            names = np.minimum(names, last - len(self.name))
        is_name = columns < (ends - starts)[records]
        for at, mask, word in self._parts:
            is_name &= words[names + at] & mask == word
        if not is_name.all():
            names, records = names[is_name], records[is_name]
        if records.size > 1:
            # Of several, the last one counts.
            is_last = np.append(records[1:] != records[:-1], True)
            if not is_last.all():
                names, records = names[is_last], records[is_last]
        keys[records] = _keys_at(words, names + len(self.name))
        is_unusual = np.frombuffer(data, np.uint8)[ends - 1] != VALUE_END_OCTET
        is_unusual |= ends + (len(self.name) + width) > last
        if longest > width:
            is_unusual |= ends - starts > width
        if is_unusual.any():
            keys[is_unusual & (ends > starts)] = ALONE
        return keys


def _keys_at(words: Words, values: Integers) -> Words:
    """Return the keys of the values that begin at `values` and end with a separator."""
    found = words[values]
    bits = separator_bits(found)
    # Keep all bits up to the lowest set one, which is the top bit of the first separator; without one, all 64.
    keys = found & (bits ^ (bits - _ONE))
    # An empty value does not count: an earlier one may.  A long value has no separator in its first word.
    keys[(bits == 0) | (keys == VALUE_END_OCTET)] = ALONE
    return keys
