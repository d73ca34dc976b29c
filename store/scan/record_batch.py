"""Many records of one segment, decoded and checked as arrays.

The checks are those of `store.scan.record_scan.record_at`.  Here they only give the records that pass; the single
decoder gives the reason for a failure.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import (
    ANY_V6,
    BLANK_MIN_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
)
from store.layout import RECORD_FIXED_DTYPE
from store.record.record import FIXED_IPV4_BYTES, NOT_DISPATCHED, Record, store_timestamp_of, topic_name
from store.scan.distinct_names import WORD_BYTES, Integers, distinct
from store.scan.heads import heads_at, v6_growth
from store.scan.record_crc import claimed_crcs, crcs_hold

# The single decoder handles longer topics.  RocketMQ's longest is the retry topic of a group of 255 bytes.
MAX_TOPIC_BYTES: Final = 288

_NATIVE_DTYPE: Final = RECORD_FIXED_DTYPE.newbyteorder("=")


@dataclass(slots=True)
class RecordBatch:
    """Valid records that follow one another in the log.  Positions count from the first byte of `data`.

    `topic_index` holds for each record the index of its topic in `topics`.
    """

    data: memoryview
    base: int
    positions: Integers
    sizes: Integers
    queue_ids: npt.NDArray[np.int32]
    queue_offsets: Integers
    sys_flags: npt.NDArray[np.int32]
    properties_at: Integers
    topics: list[str]
    topic_index: Integers

    def __len__(self) -> int:
        return self.positions.size

    @property
    def begin_offset(self) -> int:
        """Physical offset of the first record; `base` without records."""
        return self.base + int(self.positions[0]) if len(self) else self.base

    @property
    def end_offset(self) -> int:
        """One past the last record, as a physical offset; `base` without records."""
        return self.base + int(self.positions[-1] + self.sizes[-1]) if len(self) else self.base

    @property
    def in_consume_queue(self) -> npt.NDArray[np.bool_]:
        """`store.record.record.enters_consume_queue` of each record."""
        in_queue: npt.NDArray[np.bool_] = self.sys_flags & NOT_DISPATCHED == 0
        return in_queue

    def properties(self, record: int) -> bytes:
        """Return the properties of one record."""
        return bytes(self.data[self.properties_at[record] : self.positions[record] + self.sizes[record]])

    def store_timestamp(self, record: int) -> int:
        """Return the store timestamp, ms, of one record."""
        position = int(self.positions[record])
        return store_timestamp_of(self.data[position : position + int(self.sizes[record])])


def read_batch(
    data: memoryview, base: int, positions: Integers, *, check_crc: bool, require_seal: bool = False
) -> RecordBatch:
    """Return the records at `positions`, up to the first that fails a check.

    `data` reaches to the end of the segment.  At each position the record before it ends, by its size.  `check_crc` and
    `require_seal` are those of `store.record.record.decode`.
    """
    positions = positions[: np.searchsorted(positions, len(data) - MIN_RECORD_BYTES - BLANK_MIN_BYTES, "right")]
    if not positions.size:
        none = np.empty(0, np.int32)
        return RecordBatch(data, base, positions, positions, none, positions, none, positions, [], positions)
    heads, body_at = _heads(data, base, positions)
    fields = _Fields(data, heads, positions[: heads.size], body_at)
    if check_crc:
        fields.cut(_crc_holds(data, fields, require_seal))
    return _batch(data, base, fields)


def batch_of(record: Record, data: memoryview) -> RecordBatch:
    """Return a batch of one record, which begins `data`."""
    if len(data) < record.size_bytes + WORD_BYTES:
        # Searches read whole words, also of the record's last bytes.
        data = memoryview(bytes(data[: record.size_bytes]) + bytes(WORD_BYTES))
    position, queue_offset, size, properties_at = np.array(
        [[0], [record.queue_offset], [record.size_bytes], [record.size_bytes - len(record.properties)]], np.int64
    )
    queue_id, sys_flag = np.array([[record.queue_id], [record.sys_flag]], np.int32)
    return RecordBatch(
        data, record.physical_offset, position, size, queue_id, queue_offset, sys_flag, properties_at, [record.topic],
        np.zeros(1, np.int64),
    )  # fmt: skip


class _Fields:
    """Columns of records with consistent lengths."""

    __slots__ = ("body_at", "body_bytes", "count", "ends", "heads", "positions", "topic_at", "topic_bytes")

    def __init__(self, data: memoryview, heads: npt.NDArray[np.void], positions: Integers, body_at: Integers) -> None:
        self.heads = heads
        self.positions = positions
        self.body_at = body_at
        self.ends = positions + heads["total_size"]
        self.body_bytes, self.topic_at, self.topic_bytes, count = _lengths(
            data, heads["magic"] == MAGIC_V1, body_at, self.ends
        )
        self.count = positions.size
        self.cut(count)

    def cut(self, count: int) -> None:
        """Keep the first `count` records."""
        if count < self.count:
            for name in self.__slots__:
                if name != "count":
                    setattr(self, name, getattr(self, name)[:count])
            self.count = count

    @property
    def properties_at(self) -> Integers:
        return self.topic_at + self.topic_bytes + 2


def _heads(data: memoryview, base: int, positions: Integers) -> tuple[npt.NDArray[np.void], Integers]:
    """Return the fields before the born host and the bodies' positions, up to the first record with a wrong one."""
    # Converted to the machine's byte order once, instead of at each use of a field.
    heads = heads_at(data, positions).astype(_NATIVE_DTYPE)
    magics, sizes, sys_flags = heads["magic"], heads["total_size"], heads["sys_flag"]
    body_at = positions + FIXED_IPV4_BYTES
    if (sys_flags & ANY_V6).any():
        body_at += v6_growth(sys_flags)
    holds = (
        ((magics == MAGIC_V1) | (magics == MAGIC_V2))
        & (sizes >= MIN_RECORD_BYTES)
        & (sizes <= len(data) - BLANK_MIN_BYTES - positions)
        & (heads["physical_offset"] == positions + base)
        & (body_at + (MIN_RECORD_BYTES - FIXED_IPV4_BYTES) <= positions + sizes)
    )
    count = _prefix(holds)
    return heads[:count], body_at[:count]


def _lengths(
    data: memoryview, is_v1: npt.NDArray[np.bool_], body_at: Integers, ends: Integers
) -> tuple[Integers, Integers, Integers, int]:
    """Return body lengths, topics' positions and lengths, and the number of records before the first wrong one."""
    last = len(data) - 8
    int32 = np.ndarray((last,), ">i4", data, 0, (1,))
    uint16 = np.ndarray((last,), ">u2", data, 0, (1,))
    uint8 = np.frombuffer(data, np.uint8)
    body_bytes = int32[body_at - 4].astype(np.int64)
    topic_at = body_at + body_bytes + np.where(is_v1, 1, 2)
    holds = (body_bytes >= 0) & (topic_at + 2 <= ends)
    # For an inconsistent record, any position inside it: nothing is read outside the segment.
    at = np.where(holds, topic_at, body_at + 1)
    pairs = uint16[at - 2].astype(np.int64)
    topic_bytes = np.where(is_v1, pairs & 0xFF, pairs)
    properties_at = np.minimum(at + topic_bytes + 2, ends)
    holds &= at + topic_bytes + 2 <= ends
    holds &= topic_bytes <= MAX_TOPIC_BYTES
    holds &= uint16[properties_at - 2] == ends - properties_at
    holds &= (properties_at == ends) | (uint8[ends - 1] != 0)
    return body_bytes, topic_at, topic_bytes, _prefix(holds)


def _crc_holds(data: memoryview, fields: _Fields, require_seal: bool) -> int:
    """Return the number of records before the first that does not match its CRC."""
    claims = claimed_crcs(data, fields.ends - fields.properties_at, fields.ends)
    bodies = fields.body_at, fields.body_at + fields.body_bytes
    return _prefix(
        crcs_hold(
            data, fields.positions, fields.ends, bodies, fields.heads["body_crc"], claims, require_seal=require_seal
        )
    )


def _batch(data: memoryview, base: int, fields: _Fields) -> RecordBatch:
    """Return the batch, up to the first record whose topic is not a valid name."""
    names, index = distinct(data, fields.topic_at, fields.topic_bytes)
    topics = [topic_name(name) for name in names]
    if (index < 0).any() or None in topics:
        is_name = np.array([topic is not None for topic in topics], np.bool_)
        count = _prefix((index >= 0) & is_name[index])
        fields.cut(count)
        index = index[:count]
    heads = fields.heads
    return RecordBatch(
        data, base, fields.positions, fields.ends - fields.positions, heads["queue_id"], heads["queue_offset"],
        heads["sys_flag"], fields.properties_at, [topic or "" for topic in topics], index,
    )  # fmt: skip


def _prefix(holds: npt.NDArray[np.bool_]) -> int:
    """Return the number of true values before the first false one."""
    return holds.size if holds.all() else int(holds.argmin())
