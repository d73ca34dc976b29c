"""Fields of records that a `RecordBatch` does not hold, as arrays."""

import numpy as np

from sprocket.remoting.message.record import BODY_LENGTH_AT, BORN_V6, HEAD, IPV4_HOST_BYTES, V6_GROWTH_BYTES
from store.record.distinct_names import Integers
from store.record.record_batch import RecordBatch, v6_growth


def store_timestamps(batch: RecordBatch) -> Integers:
    """Return the store timestamp, ms, of each record."""
    at = batch.positions + (HEAD.size + IPV4_HOST_BYTES) + V6_GROWTH_BYTES * (batch.sys_flags & BORN_V6 != 0)
    return _int64(batch.data, at)


def body_lengths(batch: RecordBatch) -> Integers:
    """Return the bytes of each record's body as stored."""
    int32 = np.ndarray((len(batch.data) - 3,), ">i4", batch.data, 0, (1,))
    lengths: Integers = int32[batch.positions + BODY_LENGTH_AT + v6_growth(batch.sys_flags)].astype(np.int64)
    return lengths


def _int64(data: memoryview, at: Integers) -> Integers:
    every = np.ndarray((len(data) - 7,), ">i8", data, 0, (1,))
    values: Integers = every[at].astype(np.int64)
    return values
