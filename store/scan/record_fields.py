"""Fields of records that a `RecordBatch` does not hold, as arrays."""

import numpy as np

from sprocket.remoting.message.record import BORN_V6, HEAD, IPV4_HOST_BYTES, V6_GROWTH_BYTES
from store.scan.columns import Integers
from store.scan.record_batch import RecordBatch


def store_timestamps(batch: RecordBatch) -> Integers:
    """Return the store timestamp, ms, of each record."""
    # One view of the int64 at every byte: fancy indexing then reads each record's.
    every = np.ndarray((len(batch.data) - 7,), ">i8", batch.data, 0, (1,))
    at = batch.positions + (HEAD.size + IPV4_HOST_BYTES)
    is_v6 = batch.sys_flags & BORN_V6 != 0
    if is_v6.any():
        at += V6_GROWTH_BYTES * is_v6
    timestamps: Integers = every[at].astype(np.int64)
    return timestamps
