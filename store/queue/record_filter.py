"""Filter of records by their properties, which a ConsumeQueue does not hold.

Source: RocketMQ 5.3.3, `MessageFilter.isMatchedByCommitLog`, `MessageDecoder.decodeProperties`.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sprocket.engine.choice import native
from sprocket.remoting.message.record import (
    ANY_V6,
    BORN_V6,
    FIXED_IPV4,
    MAGIC_V1,
    MAGIC_V2,
    STORE_V6,
    V6_GROWTH_BYTES,
    struct_of,
)
from store.layout import RECORD_IPV4_DTYPE
from store.scan.distinct_names import Integers
from store.scan.heads import heads_at

# Of a record with two IPv4 hosts: what leads to its properties.
_FIELDS: Final = ("magic", "sys_flag", "body_length")
_BEFORE_BODY: Final = struct_of(*_FIELDS)
_LENGTH: Final = struct.Struct(">i")
_SHORT_LENGTH: Final = struct.Struct(">h")

# Maximum operations of one read, so that other requests do not wait for long.
_MAX_OPERATIONS: Final = 4_000
# Records filtered together.
_CHUNK_RECORDS: Final = 128
# Compiled search for wanted records, or None.
engine: Final = native("store.queue.record_filter_native")
_HEAD: Final = RECORD_IPV4_DTYPE[[*_FIELDS]]

# Entries of a ConsumeQueue, or one field of them.
Entries: TypeAlias = npt.NDArray[np.void]


class RecordFilter:
    """Filter of records by `matches`, which takes encoded properties and makes about `operations` comparisons.

    `names`, each with its end 0x01, are all properties that `matches` asks for; without them, the compiled search is
    not used.
    """

    __slots__ = ("chooser", "matches", "max_records")

    def __init__(self, matches: Callable[[bytes], bool], operations: int = 1, names: Sequence[bytes] = ()) -> None:
        self.matches = matches
        # `store.queue.record_filter_native.ValueChooser` or None
        self.chooser: Any = None
        if engine is not None and 0 < len(names) <= engine.MAX_NAMES:
            self.chooser = engine.ValueChooser(tuple(names), self)
        self.max_records = max(1, _MAX_OPERATIONS // max(1, operations))

    def wanted(self, segment: memoryview, positions: Integers, sizes: Integers, limit: int) -> list[int]:
        """Return the numbers of the first `limit` wanted records at `positions` of `segment`, in order.

        A record without readable properties is wanted: its reader will find the damage.
        """
        numbers: list[int] = []
        matches = self.matches
        for first in range(0, len(positions), _CHUNK_RECORDS):
            part, part_sizes = positions[first : first + _CHUNK_RECORDS], sizes[first : first + _CHUNK_RECORDS]
            starts, ends = property_bounds(segment, part, part_sizes)
            stops = ends.tolist()
            for number, start in enumerate(starts.tolist()):
                if start:
                    is_wanted = matches(bytes(segment[start : stops[number]]))
                else:
                    is_wanted = self(segment[part[number] : part[number] + part_sizes[number]])
                if is_wanted:
                    numbers.append(first + number)
                    if len(numbers) == limit:
                        return numbers
        return numbers

    def __call__(self, record: memoryview) -> bool:
        """Return whether a whole record is wanted.

        A record without readable properties is wanted: its reader will find the damage.
        """
        properties = properties_of(record)
        return properties is None or self.matches(properties)


def property_bounds(segment: memoryview, positions: Integers, sizes: Integers) -> tuple[Integers, Integers]:
    """Return where the properties of records begin and end in `segment`; 0 for unusual records, to be read alone.

    Usual is a record with MAGIC_V1 and two IPv4 hosts whose lengths are within its size.
    """
    last = len(segment) - 2
    octets = np.frombuffer(segment, np.uint8)
    heads = heads_at(segment, np.minimum(positions, len(segment) - _HEAD.itemsize), _HEAD)
    body_bytes = heads["body_length"].astype(np.int64)
    usual = (heads["magic"] == MAGIC_V1) & (heads["sys_flag"] & ANY_V6 == 0) & (body_bytes >= 0)
    if not usual.all():
        body_bytes[~usual] = 0
    at = np.minimum(positions + body_bytes + FIXED_IPV4.size, last)
    at = np.minimum(at + octets[at] + 1, last)
    lengths = np.ndarray((last + 1,), ">i2", segment, 0, (1,))[at].astype(np.int64)
    starts = at + 2
    ends = starts + lengths
    usual &= (lengths >= 0) & (ends <= positions + sizes)
    if not usual.all():
        starts[~usual] = ends[~usual] = 0
    return starts, ends


def properties_of(record: memoryview) -> bytes | None:
    """Return the encoded properties of a record, without other checks; None if it is damaged."""
    try:
        magic, sys_flag, body_bytes = _BEFORE_BODY.unpack_from(record)
        at = _BEFORE_BODY.size
        if sys_flag & ANY_V6:
            at += V6_GROWTH_BYTES * (bool(sys_flag & BORN_V6) + bool(sys_flag & STORE_V6))
            body_bytes = _LENGTH.unpack_from(record, at - _LENGTH.size)[0]
        at += body_bytes
        if body_bytes < 0:
            return None
        at += 2 + _SHORT_LENGTH.unpack_from(record, at)[0] if magic == MAGIC_V2 else 1 + record[at]
        end = at + 2 + _SHORT_LENGTH.unpack_from(record, at)[0]
    except (struct.error, IndexError):
        return None
    return bytes(record[at + 2 : end]) if at + 2 <= end <= len(record) else None
