"""Fields of records that a `RecordBatch` does not hold, as arrays."""

from typing import Final

import numpy as np

from sprocket.remoting.message.record import HEAD, SysFlag
from store.record.distinct_names import Integers
from store.record.record import FIXED_IPV4_BYTES, IPV4_HOST_BYTES, IPV6_HOST_BYTES
from store.record.record_batch import RecordBatch

_GROWTH: Final = IPV6_HOST_BYTES - IPV4_HOST_BYTES
_BORN_V6: Final = int(SysFlag.BORN_HOST_V6)
_STORE_V6: Final = int(SysFlag.STORE_HOST_V6)


def store_timestamps(batch: RecordBatch) -> Integers:
    """Return the store timestamp, ms, of each record."""
    at = batch.positions + (HEAD.size + IPV4_HOST_BYTES) + _GROWTH * (batch.sys_flags & _BORN_V6 != 0)
    return _int64(batch.data, at)


def body_lengths(batch: RecordBatch) -> Integers:
    """Return the bytes of each record's body as stored."""
    flags = batch.sys_flags
    growth = _GROWTH * ((flags & _BORN_V6 != 0).astype(np.int64) + (flags & _STORE_V6 != 0))
    int32 = np.ndarray((len(batch.data) - 3,), ">i4", batch.data, 0, (1,))
    lengths: Integers = int32[batch.positions + FIXED_IPV4_BYTES - 4 + growth].astype(np.int64)
    return lengths


def _int64(data: memoryview, at: Integers) -> Integers:
    every = np.ndarray((len(data) - 7,), ">i8", data, 0, (1,))
    values: Integers = every[at].astype(np.int64)
    return values
