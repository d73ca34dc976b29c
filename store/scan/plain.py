"""The plain twins of `store.scan.compiled`, record by record: the specification, and what serves without the engine."""

import struct
from array import array
from collections.abc import Iterator
from itertools import starmap
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.properties import find_last
from sprocket.remoting.message.record import BLANK_MIN_BYTES, CRC_MASK, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from store.record.checksum import DAMAGED_SEAL, NO_SEAL, SEAL_BYTES, crc32, sealed_crc
from store.record.record import TAGS_NAME, TagsCodes, checked_parts
from store.scan.columns import Chain, Integers
from store.scan.heads import Buffer
from store.scan.record_batch import RecordBatch, Row, batch_of

# Records of one batch: the event loop scans some batches, and makes them in a few milliseconds.
MAX_BATCH_RECORDS: Final = 512
# Here a size has no sign.
_SIZE_AND_MAGIC: Final = struct.Struct(">Ii")


def batches(
    data: memoryview, base: int, walk_bytes: int, batch_records: int, *, check_crc: bool, require_seal: bool
) -> Iterator[RecordBatch]:
    """Yield the valid records that begin in the first `walk_bytes` of `data`, up to the first other bytes.

    A record begins at byte 0, whose physical offset is `base`.  After each record `data` has room for a blank.  A batch
    has at most `batch_records` and is not empty.
    """
    at, last = 0, min(walk_bytes - 1, len(data) - MIN_RECORD_BYTES - BLANK_MIN_BYTES)
    rows: list[Row] = []
    # No object for each record: that takes a third of the time.
    while at <= last:
        size, _ = _SIZE_AND_MAGIC.unpack_from(data, at)
        if not MIN_RECORD_BYTES <= size <= len(data) - BLANK_MIN_BYTES - at:
            break
        parts = checked_parts(data[at : at + size], check_crc=check_crc, require_seal=require_seal)
        if isinstance(parts, str):
            break
        fields, _, topic, properties_at = parts
        if fields[6] != base + at:
            break
        rows.append((at, size, fields[3], fields[5], fields[7], at + properties_at, topic))
        at += size
        if len(rows) == batch_records:
            yield batch_of(rows, data, base)
            rows = []
    if rows:
        yield batch_of(rows, data, base)


def tags_codes_of(batch: RecordBatch, tags_codes: TagsCodes) -> Integers:
    """Return each record's tags code for the ConsumeQueue, except for the topic of scheduled messages.

    Source: RocketMQ 5.3.3, `CommitLog.checkMessageAndReturnSize`.
    """
    tags = (find_last(batch.properties(record), TAGS_NAME) or b"" for record in range(len(batch)))
    return np.fromiter(map(tags_codes.of_tag, tags), np.int64, len(batch))


def chain(segment: memoryview, end: int) -> Chain:
    """Return the records that follow one another from byte 0, before `end`: they have a magic number and fit `segment`.

    The rest of them is not checked.
    """
    positions = array("q")
    at, last = 0, min(end - 1, len(segment) - BLANK_MIN_BYTES)
    while at <= last:
        size, magic = _SIZE_AND_MAGIC.unpack_from(segment, at)
        if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_RECORD_BYTES <= size <= len(segment) - at:
            break
        positions.append(at)
        at += size
    return Chain(np.array(positions, np.int64), at)


def claimed_crcs(
    octets: Buffer | npt.NDArray[np.uint8], properties_bytes: Integers, properties_ends: Integers
) -> Integers:
    """Return the CRC in the seal of each record, `NO_SEAL`, or `DAMAGED_SEAL`.

    The properties have `properties_bytes` and end at `properties_ends` of `octets`.
    """

    def claim(size: int, end: int) -> int:
        return NO_SEAL if size < SEAL_BYTES else sealed_crc(bytes(octets[end - SEAL_BYTES : end]))

    places = zip(properties_bytes.tolist(), properties_ends.tolist(), strict=True)
    return np.fromiter(starmap(claim, places), np.int64, properties_ends.size)


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
    """Return whether the CRC of each record [`begins`, `ends`) of `data` holds: of the whole record, else of its body.

    `bodies` are the bounds of the bodies, `claims` the result of `claimed_crcs`.  An empty body matches any CRC.  With
    `require_seal` a record must have a seal.
    """

    def holds(begin: int, end: int, body_at: int, body_end: int, body_crc: int, claim: int) -> bool:
        if claim == DAMAGED_SEAL or (require_seal and claim == NO_SEAL):
            return False
        if claim != NO_SEAL:
            return crc32(data[begin : end - SEAL_BYTES]) & CRC_MASK == claim
        return body_end <= body_at or crc32(data[body_at:body_end]) & CRC_MASK == body_crc

    columns = (column.tolist() for column in (begins, ends, *bodies, body_crcs, claims))
    return np.fromiter(starmap(holds, zip(*columns, strict=True)), np.bool_, begins.size)
