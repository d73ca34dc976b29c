"""The scanner of records: whole, checked records of a part of the log, and the reason why the scan stopped.

Recovery, replicas, redispatch, the index, inspection and repair scan through it (`store.log.log_scan` for an open log);
Spark shares its parts (`spark.files.segment`, `spark.decode.record_parts`).

It is pure.  A part of the log is bytes in, `data`, of one segment: `base` is the physical offset of its first byte, and
`room` the bytes from there to the segment's end, which may be more than `data` has.  Out come columns: a `RecordBatch`
of many records at a time.  Usual records come from `store.scan.engine`, compiled or plain; what stops them is judged
here, by one function for both.
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from sprocket.remoting.message.record import (
    BLANK_MIN_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SIZE_AND_MAGIC,
)
from store.record.record import Record, decode
from store.scan.engine import MAX_BATCH_RECORDS, batches
from store.scan.record_batch import RecordBatch, batch_of, row_of


class Stop(Enum):
    """Kinds of reasons why a scan stopped."""

    LIMIT = auto()  # the next record would begin at or after the limit
    END = auto()  # nothing follows
    NO_ROOM = auto()  # fewer bytes follow than a blank has
    BLANK = auto()  # a blank fills the segment to its end
    ZEROS = auto()
    BAD_MAGIC = auto()
    BAD_SIZE = auto()  # smaller than any record, or too large for the segment
    HALF_RECORD = auto()  # the data ends within the record
    MALFORMED = auto()  # lengths that do not add up, or a topic that is not a name
    BAD_CRC = auto()
    MISPLACED = auto()  # the record says another physical offset


# Reasons that more data may remove.
UNFINISHED: Final = frozenset({Stop.END, Stop.NO_ROOM, Stop.HALF_RECORD})


class ScanEnd(NamedTuple):
    """Position at which a scan stopped, the kind of reason, and the reason in a few words."""

    stop: Stop
    position: int
    reason: str


def record_at(
    data: memoryview, position: int, base: int, room: int, *, check_crc: bool, require_seal: bool = False
) -> Record | ScanEnd:
    """Return the record at `position` of `data`, or why none begins there.

    `check_crc` and `require_seal` are those of `store.record.record.decode`.
    """
    left = len(data) - position
    if left < BLANK_MIN_BYTES:
        if left <= 0:
            return ScanEnd(Stop.END, position, "end of the last segment")
        return ScanEnd(Stop.NO_ROOM, position, "no room for a blank")
    size, magic = SIZE_AND_MAGIC.unpack_from(data, position)
    remaining = room - position
    if magic == MAGIC_BLANK and size == remaining:
        return ScanEnd(Stop.BLANK, position, "end of the segment")
    if magic not in (MAGIC_V1, MAGIC_V2):
        if size == magic == 0:
            return ScanEnd(Stop.ZEROS, position, "zeros")
        return ScanEnd(Stop.BAD_MAGIC, position, f"unknown magic number {magic}")
    if not MIN_RECORD_BYTES <= size <= remaining - BLANK_MIN_BYTES:
        return ScanEnd(Stop.BAD_SIZE, position, f"size {size} does not fit the segment")
    if size > left:
        return ScanEnd(Stop.HALF_RECORD, position, "the record goes beyond the log's end")
    view = data[position : position + size]
    record = decode(view, check_crc=check_crc, require_seal=require_seal)
    if isinstance(record, str):
        is_well_formed = isinstance(decode(view, check_crc=False), Record)
        return ScanEnd(Stop.BAD_CRC if is_well_formed else Stop.MALFORMED, position, record)
    if record.physical_offset != base + position:
        return ScanEnd(Stop.MISPLACED, position, f"record says physical offset {record.physical_offset}")
    return record


class RecordScan:
    """One scan of `data` from its first byte, where a record begins or the log ends.

    Iteration gives the valid records in order, in batches of at most `batch_records` (default `MAX_BATCH_RECORDS`).
    After it, `end` says where the scan stopped and why.  A record that begins at `limit` or after it is not read.

    Where the batches of the engine break off (a blank, the end, damage, a valid but rare record), `record_at` decides;
    so it alone says what counts as damage.
    """

    def __init__(
        self,
        data: memoryview,
        base: int,
        room: int,
        *,
        check_crc: bool,
        require_seal: bool = False,
        limit: int | None = None,
        batch_records: int | None = None,
    ) -> None:
        self._data, self._base, self._room = data, base, room
        self._check_crc, self._require_seal = check_crc, require_seal
        self._limit = room + 1 if limit is None else limit
        self._batch_records = batch_records or MAX_BATCH_RECORDS
        self.end = ScanEnd(Stop.LIMIT, 0, "")

    def __iter__(self) -> Iterator[RecordBatch]:
        data, base, limit = self._data, self._base, self._limit
        at = 0
        while at < limit:
            for batch in batches(
                data[at:], base + at, limit - at, self._batch_records,
                check_crc=self._check_crc, require_seal=self._require_seal,
            ):  # fmt: skip
                at = batch.end_offset - base
                yield batch
            if at >= limit:
                break
            found = record_at(
                data, at, base, self._room, check_crc=self._check_crc, require_seal=self._require_seal
            )  # fmt: skip
            if isinstance(found, ScanEnd):
                self.end = found
                return
            batch = batch_of([row_of(found, 0)], data[at:], base + at)
            at += found.size_bytes
            yield batch
        self.end = ScanEnd(Stop.LIMIT, at, "the scan's limit")
