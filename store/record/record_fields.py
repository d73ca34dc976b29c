"""Fields of a batch of records that a `RecordBatch` does not hold, as arrays."""

from typing import Final

import numpy as np

from sprocket.remoting.message.record import HEAD, SysFlag
from store.record.distinct_names import Integers
from store.record.record import IPV4_HOST_BYTES, IPV6_HOST_BYTES
from store.record.record_batch import RecordBatch

_BORN_V6: Final = int(SysFlag.BORN_HOST_V6)


def store_timestamps(batch: RecordBatch) -> Integers:
    """Return the store timestamp, ms, of each record."""
    # One view of the int64 at every byte: fancy indexing then reads each record's.
    every = np.ndarray((len(batch.data) - 7,), ">i8", batch.data, 0, (1,))
    at = batch.positions + (HEAD.size + IPV4_HOST_BYTES)
    is_v6 = batch.sys_flags & _BORN_V6 != 0
    if is_v6.any():
        at += (IPV6_HOST_BYTES - IPV4_HOST_BYTES) * is_v6
    timestamps: Integers = every[at].astype(np.int64)
    return timestamps
