"""Chooses records by their properties, which a ConsumeQueue does not hold.

Source: RocketMQ 5.3.3, `MessageFilter.isMatchedByCommitLog`, `MessageDecoder.decodeProperties`.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from remoting.message_record import FIXED_IPV4, MAGIC_V1, MAGIC_V2, SysFlag
from store.distinct_names import Integers
from store.value_scan import ALONE, KeyVerdicts, ValueScan

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
# So many records are looked at together, and so many at the most.
_CHUNK_RECORDS: Final = 128
_MOST_CHUNK_RECORDS: Final = 1024
# Values of which a verdict is kept.
_MOST_VERDICTS: Final = 4096
# Fields of a record with two IPv4 hosts, up to its body.
_HEAD: Final = np.dtype(
    {
        "names": ["magic", "sys_flag", "body_bytes"],
        "formats": [">i4", ">i4", ">i4"],
        "offsets": [4, 36, 84],
        "itemsize": FIXED_IPV4.size,
    }
)

Flags: TypeAlias = npt.NDArray[np.bool_]


class ValueVerdicts:
    """What was found out about the values of the only property that a filter looks at, which may be kept for it.

    `name` ends with 0x01.
    """

    __slots__ = ("scan", "verdicts")

    def __init__(self, name: bytes) -> None:
        self.scan = ValueScan(name)
        self.verdicts = KeyVerdicts(_MOST_VERDICTS)


class RecordFilter:
    """Wants the records whose encoded properties `matches`, which takes about `operations` comparisons for each.

    With `by_value` most records are decided by a look at one property.
    """

    __slots__ = ("_by_value", "_expected", "_matches", "most_records")

    def __init__(
        self, matches: Callable[[bytes], bool], operations: int = 1, by_value: ValueVerdicts | None = None
    ) -> None:
        self._matches = matches
        self._by_value = by_value
        self._expected = _CHUNK_RECORDS
        self.most_records = max(1, _MOST_OPERATIONS // max(1, operations))

    def wanted(
        self, segment: memoryview, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], limit: int
    ) -> list[int]:
        """The numbers of the first `limit` wanted ones of the records at `positions` of `segment`, in order.

        A record in which no properties can be found is wanted: whoever reads it finds the damage.
        """
        numbers: list[int] = []
        first, count = 0, self._expected
        while first < len(positions):
            part, part_sizes = positions[first : first + count], sizes[first : first + count]
            for number, is_usual in self._chosen(segment, *_bounds(segment, part, part_sizes)):
                if is_usual or self(segment[part[number] : part[number] + part_sizes[number]]):
                    numbers.append(first + number)
                    if len(numbers) == limit:
                        self._expect(numbers[-1])
                        return numbers
            first += count
            count = _CHUNK_RECORDS
        self._expect(len(positions))
        return numbers

    def _expect(self, count: int) -> None:
        """Look at so many and some more at once next time: most of what arrays cost is one for all of them."""
        if self._by_value is not None:
            self._expected = min(max(_CHUNK_RECORDS, count + count // 8), _MOST_CHUNK_RECORDS)

    def _chosen(self, segment: memoryview, starts: Integers, ends: Integers) -> Iterator[tuple[int, bool]]:
        """Those with wanted properties, True, and those whose properties have no known place (start 0), False."""
        numbers: Iterable[int] = range(starts.size)
        is_wanted: Sequence[bool] = ()
        if self._by_value is not None:
            verdicts, is_known = self._verdicts(self._by_value, segment, starts, ends)
            if is_known.all():
                yield from zip(np.flatnonzero(verdicts).tolist(), repeat(True))
                return
            numbers, is_wanted = np.flatnonzero(verdicts | ~is_known).tolist(), verdicts.tolist()
        matches, begins, stops = self._matches, starts.tolist(), ends.tolist()
        for number in numbers:
            start = begins[number]
            if (is_wanted and is_wanted[number]) or not start or matches(bytes(segment[start : stops[number]])):
                yield number, start > 0

    def _verdicts(
        self, by_value: ValueVerdicts, segment: memoryview, starts: Integers, ends: Integers
    ) -> tuple[Flags, Flags]:
        """For each record whether it is wanted, and whether that is known: else it must be asked alone."""
        keys = by_value.scan.keys(segment, starts, ends)
        if not starts.all():
            keys[starts == 0] = ALONE
        verdicts, is_known = by_value.verdicts.of(keys)
        if not is_known.all():
            unknown = np.flatnonzero(~is_known)
            new, firsts = np.unique(keys[unknown], return_index=True)
            of_new = np.array(
                [self._matches(bytes(segment[starts[one] : ends[one]])) for one in unknown[firsts].tolist()], np.bool_
            )
            by_value.verdicts.learn(new, of_new)
            verdicts[unknown] = of_new[np.searchsorted(new, keys[unknown])]
        return verdicts, keys != ALONE

    def __call__(self, record: memoryview) -> bool:
        """Whether a whole record is wanted.

        One in which no properties can be found is: whoever reads it finds the damage.
        """
        properties = properties_of(record)
        return properties is None or self._matches(properties)


def _bounds(
    segment: memoryview, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> tuple[Integers, Integers]:
    """Where the properties of usual records begin and end in `segment`; 0 where a look at the record itself is needed.

    Usual is a record of the first version with two IPv4 hosts, whose lengths are within its size.
    """
    last = len(segment) - 2
    octets = np.frombuffer(segment, np.uint8)
    places: npt.NDArray[np.void] = np.ndarray(
        (len(segment) - _HEAD.itemsize + 1,), f"V{_HEAD.itemsize}", segment, 0, (1,)
    )
    heads = places[np.minimum(positions, places.size - 1)].view(_HEAD)
    body_bytes = heads["body_bytes"].astype(np.int64)
    usual = (heads["magic"] == MAGIC_V1) & (heads["sys_flag"] & _HOSTS_V6 == 0) & (body_bytes >= 0)
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
