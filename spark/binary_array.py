"""Arrow arrays cut out of a buffer by positions, without a Python object per value."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64]


def gather(
    data: pa.Buffer, begins: Positions, ends: Positions, present: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """A binary array of ``data[begin:end]`` for each pair; null where `present` is false.

    The pairs must be in order and must not overlap.  They become one zero-copy array of values and the gaps
    between them; taking every other element copies the values and nothing else.
    """
    count = begins.size
    if count == 0:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = begins
    offsets[1::2] = ends
    spread = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), data])
    index = np.arange(0, 2 * count, 2, dtype=np.int32)
    return spread.take(pa.array(index, mask=None if present is None else ~present))


def as_text(values: pa.Array) -> pa.Array:
    """`values` as strings; bytes that are not UTF-8 become U+FFFD, as Java reads them."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def offsets_of(values: pa.Array) -> npt.NDArray[np.int32]:
    """Where each value begins in the data of a binary array that begins at offset 0, and the end of the last."""
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1)
