"""Fixed fields of many records, gathered at once."""

import mmap
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from store.layout import RECORD_FIXED_DTYPE

Buffer: TypeAlias = bytes | memoryview | mmap.mmap


def heads_at(
    data: Buffer, positions: npt.NDArray[np.int64], fields: np.dtype[np.void] = RECORD_FIXED_DTYPE
) -> npt.NDArray[np.void]:
    """Return the first `fields` of the records at `positions` of `data`, in the byte order of the log.

    Raises IndexError if `data` ends within the fields of one.
    """
    size = fields.itemsize
    every: npt.NDArray[np.void] = np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))
    return every[positions].view(fields)
