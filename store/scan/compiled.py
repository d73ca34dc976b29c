"""The compiled twins of `store.scan.plain`, with the same signatures.

`store.scan.engine` imports this module if the compiled engine is in use.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.properties import find_last
from sprocket.remoting.message.record import MIN_RECORD_BYTES
from store.record.record import TAGS_NAME, TagsCodes, topic_name
from store.scan import scan_native as scan
from store.scan.columns import Chain, Integers
from store.scan.heads import Buffer
from store.scan.record_batch import RecordBatch

MAX_BATCH_RECORDS: Final = 4 * 1024
# Positions of a chain that are found with one call.
_CHAIN_RECORDS: Final = 64 * 1024


def batches(
    data: memoryview, base: int, walk_bytes: int, batch_records: int, *, check_crc: bool, require_seal: bool
) -> Iterator[RecordBatch]:
    """Yield the records that begin in the first `walk_bytes` of `data`, up to the first unusual one."""
    at, limit = 0, min(walk_bytes, len(data))
    while at < limit:
        most = min(batch_records, (limit - at) // MIN_RECORD_BYTES + 1)
        batch = _read(data[at:], base + at, limit - at, most, check_crc=check_crc, require_seal=require_seal)
        if not len(batch):
            return
        at = batch.end_offset - base
        yield batch
        if len(batch) < most and at < limit:
            return


def _read(data: memoryview, base: int, limit: int, most: int, *, check_crc: bool, require_seal: bool) -> RecordBatch:
    positions, sizes, queue_offsets, properties_at, topic_index = (np.empty(most, np.int64) for _ in range(5))
    queue_ids, sys_flags = np.empty(most, np.int32), np.empty(most, np.int32)
    columns = (positions, sizes, queue_ids, queue_offsets, sys_flags, properties_at, topic_index)
    count, names = scan.read_batch(data, base, 0, limit, columns, most, check_crc=check_crc, require_seal=require_seal)
    topics = [topic_name(name) for name in names]
    for number, topic in enumerate(topics):
        if topic is None:
            # The first record of each topic is in the batch, so there is one to find before `count`, or it was cut.
            is_unnamed = topic_index[:count] == number
            count = int(is_unnamed.argmax()) if is_unnamed.any() else count
    return RecordBatch(
        data, base, positions[:count], sizes[:count], queue_ids[:count], queue_offsets[:count], sys_flags[:count],
        properties_at[:count], [topic or "" for topic in topics], topic_index[:count],
    )  # fmt: skip


def tags_codes_of(batch: RecordBatch, tags_codes: TagsCodes) -> Integers:
    """Return each record's tags code for the ConsumeQueue, except for the topic of scheduled messages."""
    codes = np.empty(len(batch), np.int64)
    others = scan.tags_codes(batch.data, batch.properties_at, batch.positions, batch.sizes, codes, len(batch))
    for record in others:
        codes[record] = tags_codes.of_tag(find_last(batch.properties(record), TAGS_NAME) or b"")
    return codes


def chain(segment: memoryview, end: int) -> Chain:
    """Return the records that follow one another from byte 0, before `end`."""
    at, pieces = 0, list[Integers]()
    while True:
        piece = np.empty(_CHAIN_RECORDS, np.int64)
        count, at = scan.chain(segment, at, end, piece, _CHAIN_RECORDS)
        pieces.append(piece[:count])
        if count < _CHAIN_RECORDS:
            return Chain(np.concatenate(pieces), at)


def claimed_crcs(
    octets: Buffer | npt.NDArray[np.uint8], properties_bytes: Integers, properties_ends: Integers
) -> Integers:
    """Return the CRC in the seal of each record, `NO_SEAL`, or `DAMAGED_SEAL`."""
    claims = np.empty(properties_ends.size, np.int64)
    lengths, ends = map(integers, (properties_bytes, properties_ends))
    scan.claimed_crcs(octets, lengths, ends, claims, claims.size)
    return claims


def crcs_hold(
    data: memoryview,
    begins: Integers,
    ends: Integers,
    bodies: tuple[Integers, Integers],
    body_crcs: npt.NDArray[np.int32] | Integers,
    claims: Integers,
    *,
    require_seal: bool = False,
) -> npt.NDArray[np.bool_]:
    """Return whether the CRC of each record holds."""
    holds = np.empty(begins.size, np.bool_)
    columns = tuple(map(integers, (begins, ends, *bodies, body_crcs, claims)))
    scan.crcs_hold(data, columns, holds, holds.size, require_seal=require_seal)
    return holds


def integers(column: npt.NDArray[np.int32] | Integers) -> Integers:
    """Return a column as compiled functions take it: int64 without gaps."""
    return np.ascontiguousarray(column, np.int64)
