"""Many records of one segment, decoded and checked as arrays.

The checks are those of `store.record.decode` and `store.commit_log.LogScan`.  This side only says which records
pass them all; why one does not is for them to say.
"""

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from remoting.message_record import BLANK_MIN_BYTES, CRC_MASK, MAGIC_V1, MAGIC_V2, SysFlag
from store.distinct_names import Integers, distinct
from store.layout import RECORD_FIXED_DTYPE
from store.record import (
    FIXED_IPV4_BYTES,
    IPV4_HOST_BYTES,
    IPV6_HOST_BYTES,
    MIN_RECORD_BYTES,
    store_timestamp_of,
    topic_name,
)

# Longer topics than RocketMQ makes (a retry topic of a group of 255 bytes) are left to the single decoder.
MAX_TOPIC_BYTES: Final = 288
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_BORN_V6: Final = int(SysFlag.BORN_HOST_V6)
_STORE_V6: Final = int(SysFlag.STORE_HOST_V6)
_ANY_V6: Final = _BORN_V6 | _STORE_V6
_HOST_GROWTH: Final = IPV6_HOST_BYTES - IPV4_HOST_BYTES
_FIXED_BYTES: Final = RECORD_FIXED_DTYPE.itemsize


@dataclass(slots=True)
class RecordBatch:
    """Valid records, one after the other in the log.  Positions count from the first byte of `data`.

    `topic_index` says for each record which of `topics` is its own.
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
    def end_offset(self) -> int:
        """Physical offset behind the last record; `base` without one."""
        return self.base + int(self.positions[-1] + self.sizes[-1]) if len(self) else self.base

    @property
    def in_consume_queue(self) -> npt.NDArray[np.bool_]:
        """As `store.record.enters_consume_queue`, for each record."""
        in_queue: npt.NDArray[np.bool_] = self.sys_flags & _PREPARED == 0
        return in_queue

    def properties(self, record: int) -> bytes:
        """Properties of one record."""
        return bytes(self.data[self.properties_at[record] : self.positions[record] + self.sizes[record]])

    def store_timestamp(self, record: int) -> int:
        """Store timestamp, ms, of one record."""
        position = int(self.positions[record])
        return store_timestamp_of(self.data[position : position + int(self.sizes[record])])


def read_batch(data: memoryview, base: int, positions: Integers, *, check_crc: bool) -> RecordBatch:
    """The records at `positions`, up to the first that does not pass every check.

    `data` reaches to the end of the segment, and each position is where the record before it ends by its size.
    """
    positions = positions[: np.searchsorted(positions, len(data) - MIN_RECORD_BYTES - BLANK_MIN_BYTES, "right")]
    if not positions.size:
        return _batch(data, base, positions, np.empty(0, RECORD_FIXED_DTYPE), positions, positions, positions)
    fixed, body_at = _fixed_fields(data, base, positions)
    positions = positions[: fixed.size]
    ends = positions + fixed["total_size"]
    body_bytes, topic_at, topic_bytes, count = _lengths(data, fixed["magic"] == MAGIC_V1, body_at, ends)
    if check_crc:
        count = _crc_holds(data, body_at[:count], body_bytes[:count], fixed["body_crc"][:count])
    return _batch(data, base, positions[:count], fixed[:count], topic_at[:count], topic_bytes[:count], ends[:count])


def _fixed_fields(data: memoryview, base: int, positions: Integers) -> tuple[npt.NDArray[np.void], Integers]:
    """Fields up to the born host, and the bodies' places, up to the first record whose size or place does not hold."""
    places: npt.NDArray[np.void] = np.ndarray((len(data) - _FIXED_BYTES + 1,), f"V{_FIXED_BYTES}", data, 0, (1,))
    fixed = places[positions].view(RECORD_FIXED_DTYPE)
    magics, sizes, sys_flags = fixed["magic"], fixed["total_size"], fixed["sys_flag"]
    body_at = positions + FIXED_IPV4_BYTES
    if (sys_flags & _ANY_V6).any():
        body_at += _HOST_GROWTH * ((sys_flags & _BORN_V6 != 0).astype(np.int64) + (sys_flags & _STORE_V6 != 0))
    holds = (
        ((magics == MAGIC_V1) | (magics == MAGIC_V2))
        & (sizes >= MIN_RECORD_BYTES)
        & (sizes <= len(data) - BLANK_MIN_BYTES - positions)
        & (fixed["physical_offset"] == positions + base)
        & (body_at + (MIN_RECORD_BYTES - FIXED_IPV4_BYTES) <= positions + sizes)
    )
    count = _prefix(holds)
    return fixed[:count], body_at[:count]


def _lengths(
    data: memoryview, is_v1: npt.NDArray[np.bool_], body_at: Integers, ends: Integers
) -> tuple[Integers, Integers, Integers, int]:
    """Body lengths, topics' places and lengths, and how many of the first records add up to their sizes."""
    last = len(data) - 8
    int32 = np.ndarray((last,), ">i4", data, 0, (1,))
    uint16 = np.ndarray((last,), ">u2", data, 0, (1,))
    uint8 = np.frombuffer(data, np.uint8)
    body_bytes = int32[body_at - 4].astype(np.int64)
    topic_at = body_at + body_bytes + np.where(is_v1, 1, 2)
    holds = (body_bytes >= 0) & (topic_at + 2 <= ends)
    # Where that does not hold any place inside the record does: nothing is read outside of the segment.
    at = np.where(holds, topic_at, body_at + 1)
    pairs = uint16[at - 2].astype(np.int64)
    topic_bytes = np.where(is_v1, pairs & 0xFF, pairs)
    properties_at = np.minimum(at + topic_bytes + 2, ends)
    holds &= at + topic_bytes + 2 <= ends
    holds &= topic_bytes <= MAX_TOPIC_BYTES
    holds &= uint16[properties_at - 2] == ends - properties_at
    holds &= (properties_at == ends) | (uint8[ends - 1] != 0)
    return body_bytes, topic_at, topic_bytes, _prefix(holds)


def _crc_holds(data: memoryview, body_at: Integers, body_bytes: Integers, crcs: npt.NDArray[np.int32]) -> int:
    """How many of the first bodies match their CRC; one without bytes always does."""
    crc32 = zlib.crc32
    begins, ends = body_at.tolist(), (body_at + body_bytes).tolist()
    computed = np.array([crc32(data[begin:end]) for begin, end in zip(begins, ends, strict=True)], np.uint32)
    return _prefix((computed & CRC_MASK == crcs) | (body_bytes == 0))


def _batch(
    data: memoryview,
    base: int,
    positions: Integers,
    fixed: npt.NDArray[np.void],
    topic_at: Integers,
    topic_bytes: Integers,
    ends: Integers,
) -> RecordBatch:
    """The batch, up to the first record whose topic is no name."""
    names, index = distinct(data, topic_at, topic_bytes)
    topics = [topic_name(name) for name in names]
    is_name = np.array([topic is not None for topic in topics], np.bool_)
    count = positions.size
    if (index < 0).any() or not is_name.all():
        count = _prefix((index >= 0) & is_name[index])
    return RecordBatch(
        data, base, positions[:count], (ends - positions)[:count], fixed["queue_id"][:count].astype(np.int32),
        fixed["queue_offset"][:count].astype(np.int64), fixed["sys_flag"][:count].astype(np.int32),
        (topic_at + topic_bytes + 2)[:count], [topic or "" for topic in topics], index[:count],
    )  # fmt: skip


def _prefix(holds: npt.NDArray[np.bool_]) -> int:
    """How many of the first are true."""
    return holds.size if holds.all() else int(holds.argmin())
