"""Arrow arrays from ranges of a buffer, without a Python object per value."""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sprocket.remoting.codec.java_text import java_text

Positions = npt.NDArray[np.int64]

# No bounds check: the indexes are in bounds, and a check costs as much as the copy.
_UNCHECKED: Final = pc.TakeOptions(boundscheck=False)
_LAST_ASCII: Final = 0x7F


def gather(
    data: pa.Buffer, begins: Positions, ends: Positions, present: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return a binary array of ``data[begin:end]`` for each pair, null where `present` is false (that pair is empty).

    The pairs must be in order and must not overlap.  A zero-copy array of values and the gaps between them is built
    first; taking every other element copies only the values.
    """
    count = begins.size
    if count == 0:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = begins
    offsets[1::2] = ends
    spread = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), data])
    values = pc.call_function("take", [spread, _every_other(count)], _UNCHECKED)
    if present is None:
        return values
    validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [validity, *values.buffers()[1:]])


def _every_other(count: int) -> pa.Array:
    """Return the first `count` even numbers: 0, 2, 4 ..."""
    return _even_numbers(max(0, count - 1).bit_length()).slice(0, count)


@lru_cache(maxsize=16)
def _even_numbers(bits: int) -> pa.Array:
    return pa.array(np.arange(0, 2 << bits, 2, dtype=np.int32))


def as_text(values: pa.Array) -> pa.Array:
    """Return binary `values` as strings; bytes that are not UTF-8 become U+FFFD, as Java reads them."""
    octets = values.buffers()[2]
    if values.offset == 0 and (octets is None or np.frombuffer(octets, np.uint8).max(initial=0) <= _LAST_ASCII):
        return values.view(pa.string())
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else java_text(value) for value in values.to_pylist()]
        return pa.array(texts, pa.string())
