"""Fixed fields of many records, gathered at once."""

import mmap
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import BORN_V6, STORE_V6, V6_GROWTH_BYTES
from store.layout import RECORD_FIXED_DTYPE
from store.scan.distinct_names import Integers

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


def v6_growth(sys_flags: npt.NDArray[np.int32]) -> Integers:
    """Return the bytes by which the body of each record begins later than with two IPv4 hosts."""
    v6_hosts: Integers = (sys_flags & BORN_V6 != 0).astype(np.int64) + (sys_flags & STORE_V6 != 0)
    return V6_GROWTH_BYTES * v6_hosts
