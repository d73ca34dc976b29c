"""Batches of usual records in arrays: a walk along the chain, then the columns of what it found.

`store.scan.compiled.batches` is the compiled twin.  `store.scan.engine` chooses between both.
"""

from collections.abc import Iterator

from sprocket.remoting.message.record import BLANK_MIN_BYTES, MIN_RECORD_BYTES
from store.scan.log_walk import walk
from store.scan.record_batch import RecordBatch, read_batch


def batches(
    data: memoryview, base: int, walk_bytes: int, batch_records: int, *, check_crc: bool, require_seal: bool
) -> Iterator[RecordBatch]:
    """Yield the records that begin in the first `walk_bytes` of `data`, up to the first unusual one.

    A record begins at byte 0, whose physical offset is `base`.  A batch has at most `batch_records` and is not empty.
    """
    if len(data) < MIN_RECORD_BYTES + BLANK_MIN_BYTES:
        return
    positions = walk(data, base, walk_bytes)
    for first in range(0, positions.size, batch_records):
        part = positions[first : first + batch_records]
        start = int(part[0])
        batch = read_batch(data[start:], base + start, part - start, check_crc=check_crc, require_seal=require_seal)
        if len(batch):
            yield batch
        if len(batch) < part.size:
            return
