"""Chooses records by their properties, which a ConsumeQueue does not hold.

Source: RocketMQ 5.3.3, `MessageFilter.isMatchedByCommitLog`, `MessageDecoder.decodeProperties`.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from mmap import mmap
from typing import Final

import numpy as np
import numpy.typing as npt

from remoting.message_record import FIXED_IPV4, MAGIC_V1, MAGIC_V2, SysFlag

# Of a record with two IPv4 hosts: magic, sys_flag and the length of the body.
_BEFORE_BODY: Final = struct.Struct(">4xi28xi44xi")
_LENGTH: Final = struct.Struct(">i")
_SHORT_LENGTH: Final = struct.Struct(">h")
assert _BEFORE_BODY.size == FIXED_IPV4.size
_IPV6_MORE_BYTES: Final = 12
_HOSTS_V6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_BORN_HOST_V6: Final = int(SysFlag.BORN_HOST_V6)
_STORE_HOST_V6: Final = int(SysFlag.STORE_HOST_V6)
# One read takes no more than this many operations, so that nobody else waits for long.
_MOST_OPERATIONS: Final = 16_000
# So many records are looked at together.
_CHUNK_RECORDS: Final = 128
# Where magic, sys_flag and length of the body stand in a record with two IPv4 hosts.
_HEAD_BYTES: Final = np.array([*range(4, 8), *range(36, 40), *range(84, 88)])
_SHORT_BYTES: Final = np.array([0, 1])
# Behind each property.
_SEPARATOR: Final = 2


@dataclass(frozen=True, slots=True)
class ValueVerdicts:
    """What is known about the values of the only property that a filter looks at.

    `name` ends with 0x01; `known` maps a value, or None for none, to whether such a record is wanted, and fills up
    as records are looked at.
    """

    name: bytes
    known: Mapping[bytes | None, bool]


class RecordFilter:
    """Wants the records whose encoded properties `matches`, which takes about `operations` comparisons for each.

    With `by_value` most records are decided by a look at one property.
    """

    __slots__ = ("_by_value", "_matches", "most_records")

    def __init__(
        self, matches: Callable[[bytes], bool], operations: int = 1, by_value: ValueVerdicts | None = None
    ) -> None:
        self._matches = matches
        self._by_value = by_value
        self.most_records = max(1, _MOST_OPERATIONS // max(1, operations))

    def wanted(
        self, segment: memoryview, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], limit: int
    ) -> list[int]:
        """The numbers of the first `limit` wanted ones of the records at `positions` of `segment`, in order.

        A record in which no properties can be found is wanted: whoever reads it finds the damage.
        """
        numbers: list[int] = []
        content = np.frombuffer(segment, np.uint8)
        choose = self._chosen if self._by_value is None else self._chosen_by_value
        for first in range(0, len(positions), _CHUNK_RECORDS):
            part, part_sizes = positions[first : first + _CHUNK_RECORDS], sizes[first : first + _CHUNK_RECORDS]
            starts, ends = _bounds(content, part, part_sizes)
            for number in choose(segment, starts, ends):
                at = int(part[number])
                if starts[number] or self(segment[at : at + int(part_sizes[number])]):
                    numbers.append(first + number)
                    if len(numbers) == limit:
                        return numbers
        return numbers

    def _chosen(self, segment: memoryview, starts: list[int], ends: list[int]) -> Iterator[int]:
        """Those with wanted properties, and those whose properties have no known place (start 0)."""
        matches = self._matches
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if not start or matches(bytes(segment[start:end])):
                yield number

    def _chosen_by_value(self, segment: memoryview, starts: list[int], ends: list[int]) -> Iterator[int]:
        """The same, with a search in the mapping itself in place of a copy of each record's properties."""
        content, by_value = segment.obj, self._by_value
        if by_value is None or not isinstance(content, mmap | bytearray) or len(content) != len(segment):
            yield from self._chosen(segment, starts, ends)
            return
        matches, known, name, width = self._matches, by_value.known.get, by_value.name, len(by_value.name)
        find, find_last = content.find, content.rfind
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if start:
                at = find_last(name, start, end)
                if at < 0:
                    verdict = known(None)
                elif at > start and content[at - 1] == _SEPARATOR:
                    at += width
                    stop = find(b"\x02", at, end)
                    verdict = known(bytes(content[at : end if stop < 0 else stop]))
                else:
                    # At the very beginning, or a part of something else.
                    verdict = None
                if verdict is None:
                    verdict = matches(bytes(content[start:end]))
                if not verdict:
                    continue
            yield number

    def __call__(self, record: memoryview) -> bool:
        """Whether a whole record is wanted.

        One in which no properties can be found is: whoever reads it finds the damage.
        """
        properties = properties_of(record)
        return properties is None or self._matches(properties)


def _bounds(
    content: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> tuple[list[int], list[int]]:
    """Where the properties of usual records begin and end in `content`; 0 where a look at the record itself is needed.

    Usual is a record of the first version with two IPv4 hosts, whose lengths are within its size.
    """
    last = len(content) - 2
    fits = positions + sizes <= len(content)
    head = content[np.minimum(positions[:, None] + _HEAD_BYTES, last)].view(">i4")
    usual = fits & (head[:, 0] == MAGIC_V1) & (head[:, 1] & _HOSTS_V6 == 0) & (head[:, 2] >= 0)
    at = positions + FIXED_IPV4.size + np.where(usual, head[:, 2], 0)
    at = np.minimum(at, last)
    at += 1 + content[at].astype(np.int64)
    at = np.minimum(at, last)
    lengths = content[at[:, None] + _SHORT_BYTES].view(">i2")[:, 0].astype(np.int64)
    starts = at + 2
    ends = starts + lengths
    usual &= (lengths >= 0) & (ends <= positions + sizes)
    starts[~usual] = 0
    result: tuple[list[int], list[int]] = starts.tolist(), ends.tolist()
    return result


def properties_of(record: memoryview) -> bytes | None:
    """The encoded properties of a record, of which nothing else is checked; None if it is damaged."""
    try:
        magic, sys_flag, body_bytes = _BEFORE_BODY.unpack_from(record)
        at = _BEFORE_BODY.size
        if sys_flag & _HOSTS_V6:
            at += _IPV6_MORE_BYTES * (bool(sys_flag & _BORN_HOST_V6) + bool(sys_flag & _STORE_HOST_V6))
            body_bytes = _LENGTH.unpack_from(record, at - _LENGTH.size)[0]
        at += body_bytes
        if body_bytes < 0:
            return None
        at += 2 + _SHORT_LENGTH.unpack_from(record, at)[0] if magic == MAGIC_V2 else 1 + record[at]
        end = at + 2 + _SHORT_LENGTH.unpack_from(record, at)[0]
    except (struct.error, IndexError):
        return None
    return bytes(record[at + 2 : end]) if at + 2 <= end <= len(record) else None
