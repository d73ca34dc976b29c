"""Stored records of one topic as columns, if they are alike: all that can be known of one of them holds for all.

The tail of a record is what follows its body: topic, length of the properties, properties, seal.  The first tail of a
length is parsed, and has a range for each of its octets: names and values that decide where the message goes have one
octet, other values any.  One subtraction and one comparison of arrays check all tails of that length.  Bodies may have
any length and content.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import MAGIC_V1
from store.alike.columns import Longs, Octets, rows_of
from store.alike.record_columns import LENGTH_BYTES
from store.layout import RECORD_IPV4_DTYPE
from store.record.checksum import SEAL_BYTES, SEAL_NAME, sealed_crc
from store.record.record import FIXED_IPV4_BYTES, topic_name

# With fewer records, or fewer with tails of one length, arrays take longer than records one at a time.
MIN_ALIKE: Final = 16
_PROPERTY: Final = re.compile(rb"([^\0-\x02#]+)\x01([^\0-\x02]+)\x02")
# Properties that say where a message goes: all records of a shape have the same.
_DECIDING: Final = frozenset({b"REAL_TOPIC", b"PGROUP"})
_MAX_DIGITS: Final = {b"REAL_QID": 9, b"TIMER_OUT_MS": 18}
_TAGS: Final = names.TAGS.encode()
# A message with one of these is rolled or recalled, was checked, is immune to checks, or was delivered before.
_SAYS_MORE: Final = frozenset(
    name.encode()
    for name in (
        names.TIMER_ENQUEUE_MS, names.TIMER_DEQUEUE_MS, names.TIMER_ROLL_TIMES, names.TIMER_DEL_UNIQKEY,
        names.CHECK_IMMUNITY_TIME_IN_SECONDS, names.TRANSACTION_CHECK_TIMES, names.TRANSACTION_PREPARED_QUEUE_OFFSET,
    )
)  # fmt: skip
_INNER: Final = b"INNER_"
# First and last octet of a number, of a tag, and of any other value.
_DIGITS: Final = (ord("0"), ord("9"))
_ASCII: Final = (0x20, 0x7E)
_ANY: Final = (0x03, 0xFF)

_MAX_KNOWN: Final = 256


class TailShape:
    """Tails of one length that differ from a known one only in values that decide nothing but themselves.

    `gaps` are where the values are in a tail, by name, and `properties` are all of them without the seal.
    """

    __slots__ = ("_low", "_span", "gaps", "group", "properties", "real_topic")

    def __init__(self, tail: bytes, properties: slice, gaps: dict[bytes, slice], real_topic: str) -> None:
        self.properties, self.gaps, self.real_topic = properties, gaps, real_topic
        # PGROUP; None without one.
        self.group = tail[gaps[b"PGROUP"]] if b"PGROUP" in gaps else None
        # Lowest octet at each position, and how much higher it may be.
        self._low = np.frombuffer(tail, np.uint8).copy()
        self._span = np.zeros(len(tail), np.uint8)
        for name, gap in gaps.items():
            if name not in _DECIDING:
                self._vary(gap, _DIGITS if name in _MAX_DIGITS else _ASCII if name == _TAGS else _ANY)
                if name in _MAX_DIGITS and gap.stop - gap.start > 1:
                    # A number does not begin with 0.
                    self._low[gap.start] += 1
                    self._span[gap.start] -= 1
        self._vary(slice(properties.stop + len(SEAL_NAME), len(tail) - 1), _DIGITS)

    def _vary(self, gap: slice, octets: tuple[int, int]) -> None:
        low, high = octets
        self._low[gap], self._span[gap] = low, high - low

    @classmethod
    def of(cls, tail: bytes, topic_field: bytes) -> "TailShape | None":
        """Return the shape of a tail; None if it is not that of a sealed record of the topic, or is unusual."""
        begin, end = len(topic_field) + LENGTH_BYTES, len(tail) - SEAL_BYTES
        if end < begin or not tail.startswith(topic_field) or sealed_crc(tail[end:]) < 0:
            return None
        if int.from_bytes(tail[begin - LENGTH_BYTES : begin], "big") != len(tail) - begin:
            return None
        found = list(_PROPERTY.finditer(tail, begin, end))
        if sum(len(one[0]) for one in found) != end - begin:
            return None
        gaps = {one[1]: slice(*one.span(2)) for one in found}
        if len(gaps) != len(found) or _SAYS_MORE & gaps.keys() or any(name.startswith(_INNER) for name in gaps):
            return None
        for name, max_digits in _MAX_DIGITS.items():
            if name in gaps and gaps[name].stop - gaps[name].start > max_digits:
                return None
        if b"REAL_TOPIC" not in gaps or b"REAL_QID" not in gaps:
            return None
        real_topic = topic_name(tail[gaps[b"REAL_TOPIC"]])
        return None if real_topic is None else cls(tail, slice(begin, end), gaps, real_topic)

    def has(self, tails: Octets) -> bool:
        """Return whether all of `tails`, one a row, have this shape."""
        return not (tails - self._low > self._span).any()


# Shapes of the last tails, by topic and length: a shape says all that there is to know of a tail.
_known: Final[dict[tuple[bytes, int], TailShape]] = {}


class StoredRecords(NamedTuple):
    """Records with tails of one shape, in order; `rows` are their indexes among those that were read with them."""

    shape: TailShape
    rows: Longs
    heads: npt.NDArray[Any]  # of `RECORD_IPV4_DTYPE`
    bodies: list[memoryview]
    tails: Octets

    @property
    def sys_flag(self) -> int:
        """Flags that all records have."""
        return int(self.heads["sys_flag"][0])

    def values(self, name: bytes) -> Octets:
        """Return the values of a property that all records have."""
        return self.tails[:, self.shape.gaps[name]]

    def chosen(self, which: npt.NDArray[np.bool_]) -> "StoredRecords | None":
        """Return those of the records that `which` chooses; None if it chooses none."""
        if which.all():
            return self
        if not which.any():
            return None
        picked = which.nonzero()[0]
        bodies = [self.bodies[row] for row in picked.tolist()]
        return self._replace(rows=self.rows[picked], heads=self.heads[picked], bodies=bodies, tails=self.tails[picked])


def read_alike(
    segment: memoryview, begins: Longs, sizes: Longs, topic_field: bytes, usual_flags: int
) -> list[StoredRecords] | None:
    """Return the records at `begins` in a segment of the log, by shape; None if they are few, or not alike.

    They have no flags but `usual_flags`.  `topic_field` is the topic as in a record.  Any numbers may be passed.
    """
    tail_min_bytes = len(topic_field) + LENGTH_BYTES
    least = FIXED_IPV4_BYTES + tail_min_bytes
    # Neither sum nor difference overflows: sizes are compared first.
    if len(begins) < MIN_ALIKE or int(sizes.min()) < least or int(sizes.max()) > len(segment):
        return None
    if int(begins.min()) < 0 or (begins > len(segment) - sizes).any():
        return None
    firsts = begins.tolist()
    heads = np.frombuffer(b"".join([segment[at : at + FIXED_IPV4_BYTES] for at in firsts]), RECORD_IPV4_DTYPE)
    body_bytes = heads["body_length"].astype(np.int64)
    tail_bytes = sizes - body_bytes - FIXED_IPV4_BYTES
    flags = heads["sys_flag"]
    if (heads["total_size"] != sizes).any() or (flags != flags[0]).any() or int(flags[0]) & ~usual_flags:
        return None
    if int(body_bytes.min()) < 0 or int(tail_bytes.min()) < tail_min_bytes or (heads["magic"] != MAGIC_V1).any():
        return None
    ends = (begins + FIXED_IPV4_BYTES + body_bytes).tolist()
    bodies = [segment[at + FIXED_IPV4_BYTES : end] for at, end in zip(firsts, ends, strict=True)]
    groups = _by_value(tail_bytes)
    if len(groups) * MIN_ALIKE > len(begins):
        return None
    found = []
    for size, rows in groups:
        part = _part(segment, ends, bodies, heads, size, rows, topic_field)
        if part is None:
            return None
        found.append(part)
    return found


def _part(
    segment: memoryview,
    ends: list[int],
    bodies: list[memoryview],
    heads: npt.NDArray[Any],
    size: int,
    rows: Longs,
    topic_field: bytes,
) -> StoredRecords | None:
    """Return the records of `rows`, whose tails have `size` bytes and begin at `ends`; None if they are not alike."""
    if len(rows) < len(ends):
        picked = rows.tolist()
        ends, bodies, heads = [ends[row] for row in picked], [bodies[row] for row in picked], heads[rows]
    tails = rows_of([segment[end : end + size] for end in ends])
    shape = _known.get((topic_field, size))
    if shape is None or not shape.has(tails):
        shape = TailShape.of(tails[0].tobytes(), topic_field)
        if shape is None or not shape.has(tails):
            return None
        if len(_known) == _MAX_KNOWN:
            _known.clear()
        _known[topic_field, size] = shape
    return StoredRecords(shape, rows, heads, bodies, tails)


def _by_value(values: Longs) -> Sequence[tuple[int, Longs]]:
    """Return each value with its indexes, ascending."""
    if (values == values[0]).all():
        return [(int(values[0]), np.arange(len(values)))]
    return [(value, (values == value).nonzero()[0]) for value in np.unique(values).tolist()]
