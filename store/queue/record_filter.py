"""Filter of records by their properties, which a ConsumeQueue does not hold.

Source: RocketMQ 5.3.3, `MessageFilter.isMatchedByCommitLog`, `MessageDecoder.decodeProperties`.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sprocket.engine.choice import native
from sprocket.remoting.message.record import (
    ANY_V6,
    BORN_V6,
    MAGIC_V2,
    STORE_V6,
    V6_GROWTH_BYTES,
    struct_of,
)
from store.scan.columns import Integers

# Of a record with two IPv4 hosts: what leads to its properties.
_BEFORE_BODY: Final = struct_of("magic", "sys_flag", "body_length")
_LENGTH: Final = struct.Struct(">i")
_SHORT_LENGTH: Final = struct.Struct(">h")

# Maximum operations of one read, so that other requests do not wait for long.
_MAX_OPERATIONS: Final = 4_000
# Compiled search for wanted records, or None.
engine: Final = native("store.queue.record_filter_native")

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
            # Not with this filter itself, to which it would belong in a circle.
            self.chooser = engine.ValueChooser(tuple(names), partial(_is_wanted, matches))
        self.max_records = max(1, _MAX_OPERATIONS // max(1, operations))

    def wanted(self, segment: memoryview, positions: Integers, sizes: Integers, limit: int) -> list[int]:
        """Return the numbers of the first `limit` wanted records at `positions` of `segment`, in order.

        A record without readable properties is wanted: its reader will find the damage.
        """
        numbers: list[int] = []
        for number, (at, size) in enumerate(zip(positions.tolist(), sizes.tolist(), strict=True)):
            if self(segment[at : at + size]):
                numbers.append(number)
                if len(numbers) == limit:
                    break
        return numbers

    def __call__(self, record: memoryview) -> bool:
        """Return whether a whole record is wanted.

        A record without readable properties is wanted: its reader will find the damage.
        """
        return _is_wanted(self.matches, record)


def _is_wanted(matches: Callable[[bytes], bool], record: memoryview) -> bool:
    properties = properties_of(record)
    return properties is None or matches(properties)


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
