"""Records whose properties look like those of the first of a batch, because one producer wrote them all.

They have the same names, and each value has the same length.  Then the keys are at the same places.  This check costs
less than half of a search for the keys.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.properties import (
    KEYS,
    NAME_END_BYTES,
    NAME_END_OCTET,
    UNIQ_KEY,
    VALUE_END_BYTES,
    VALUE_END_OCTET,
)
from store.scan.record_batch import RecordBatch

_BLANK: Final = ord(" ")
# Longer properties are searched for their keys one by one.
_MAX_BYTES: Final = 512
_BLOCK_BYTES: Final = 256 * 1024
_WORD_BYTES: Final = 8
# Number among a record's keys, and begin and end of the text, counted from the first byte of the properties.
Place = tuple[int, int, int]


def texts_like_first(
    batch: RecordBatch, properties_bytes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], list[Place]]:
    """Return which records of a non-empty batch look like its first, and where these have their keys."""
    count = int(properties_bytes[0])
    is_alike = (properties_bytes == count) & (batch.properties_at + count + _WORD_BYTES <= len(batch.data))
    pattern = _pattern(batch.properties(0)) if 0 < count <= _MAX_BYTES else None
    if pattern is None:
        return np.zeros(len(batch), np.bool_), []
    places, fixed, values, keys = pattern
    width = fixed.size
    windows: npt.NDArray[np.void] = np.ndarray((len(batch.data) - width + 1,), f"V{width}", batch.data, 0, (1,))
    rows = np.flatnonzero(is_alike)
    first = np.frombuffer(batch.data, np.uint8, width, int(batch.properties_at[0]))
    step = max(1, _BLOCK_BYTES // width)
    for at in range(0, rows.size, step):
        part = rows[at : at + step]
        octets = windows[batch.properties_at[part]].view(np.uint8).reshape(part.size, width)
        # The same names, and no separator inside a value.
        wrong = (octets ^ first) & fixed
        wrong |= (octets <= VALUE_END_OCTET) & values
        if keys is not None:
            wrong |= (octets == _BLANK) & keys
        is_alike[part] = np.bitwise_or.reduce(wrong.view(np.uint64), axis=1) == 0
    return is_alike, places


Mask = npt.NDArray[np.uint8]


def _pattern(properties: bytes) -> tuple[list[Place], Mask, Mask, Mask | None] | None:
    """Return places of the keys, and masks of names with separators, of values, and of KEYS.  None if unusual."""
    width = -(-len(properties) // _WORD_BYTES) * _WORD_BYTES
    fixed, values = np.zeros(width, np.uint8), np.zeros(width, np.uint8)
    fixed[: len(properties)] = 0xFF
    keys: Mask | None = None
    places: list[Place] = []
    names: set[bytes] = set()
    at = 0
    for item in properties.split(VALUE_END_BYTES):
        name, separator, value = item.partition(NAME_END_BYTES)
        start = at + len(name) + 1
        at += len(item) + 1
        if not item:
            continue
        if not separator or not value or name in names or NAME_END_OCTET in value:
            return None
        names.add(name)
        fixed[start : start + len(value)] = 0
        values[start : start + len(value)] = 0xFF
        if name == UNIQ_KEY.encode():
            places.append((0, start, start + len(value)))
        elif name == KEYS.encode():
            if _BLANK in value:
                return None
            places.append((1, start, start + len(value)))
            keys = np.zeros(width, np.uint8)
            keys[start : start + len(value)] = 0xFF
    return sorted(places), fixed, values, keys
