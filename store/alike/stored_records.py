"""Stored records of one topic as columns, if they are alike: all that can be known of one of them holds for all.

Tails of one length have one shape (`store.alike.tail_shape`).  Topic and values that decide where the message goes are
fixed in it, other values may vary.  Bodies may have any length and content.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import MAGIC_V1
from store.alike.columns import Longs, Octets, by_value, rows_of
from store.alike.record_columns import LENGTH_BYTES
from store.alike.tail_shape import KnownShapes, TailShape, tail_parts
from store.layout import RECORD_IPV4_DTYPE
from store.record.record import FIXED_IPV4_BYTES, topic_name

# With fewer records, or fewer with tails of one length, arrays take longer than records one at a time.
MIN_ALIKE: Final = 16
# Properties that say where a message goes: all records of a shape have the same.
_DECIDING: Final = frozenset({b"REAL_TOPIC", b"PGROUP"})
_MAX_DIGITS: Final = {b"REAL_QID": 9, b"TIMER_OUT_MS": 18}
# A message with one of these is rolled or recalled, was checked, is immune to checks, or was delivered before.
_SAYS_MORE: Final = frozenset(
    name.encode()
    for name in (
        names.TIMER_ENQUEUE_MS, names.TIMER_DEQUEUE_MS, names.TIMER_ROLL_TIMES, names.TIMER_DEL_UNIQKEY,
        names.CHECK_IMMUNITY_TIME_IN_SECONDS, names.TRANSACTION_CHECK_TIMES, names.TRANSACTION_PREPARED_QUEUE_OFFSET,
    )
)  # fmt: skip
_INNER: Final = b"INNER_"


class MovedShape(TailShape):
    """Tails of messages that have one real topic and one producer group."""

    __slots__ = ("group", "real_topic")

    def __init__(self, tail: bytes, properties: slice, gaps: dict[bytes, slice], real_topic: str) -> None:
        super().__init__(tail, properties, {name: gap for name, gap in gaps.items() if name not in _DECIDING})
        self.gaps, self.real_topic = gaps, real_topic
        # PGROUP; None without one.
        self.group = tail[gaps[b"PGROUP"]] if b"PGROUP" in gaps else None
        for name in _MAX_DIGITS.keys() & gaps.keys():
            self._ranges.vary_number(gaps[name])

    @classmethod
    def of(cls, tail: bytes, topic_field: bytes) -> "MovedShape | None":
        """Return the shape of a tail; None if it is not that of a sealed record of the topic, or is unusual."""
        parts = tail_parts(tail, topic_field)
        if parts is None:
            return None
        gaps = parts[1]
        if _SAYS_MORE & gaps.keys() or any(name.startswith(_INNER) for name in gaps):
            return None
        for name, max_digits in _MAX_DIGITS.items():
            if name in gaps and gaps[name].stop - gaps[name].start > max_digits:
                return None
        if b"REAL_TOPIC" not in gaps or b"REAL_QID" not in gaps:
            return None
        real_topic = topic_name(tail[gaps[b"REAL_TOPIC"]])
        return None if real_topic is None else cls(tail, *parts, real_topic)


_known: Final = KnownShapes(MovedShape.of)


class StoredRecords(NamedTuple):
    """Records with tails of one shape, in order; `rows` are their indexes among those that were read with them."""

    shape: MovedShape
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
    groups = by_value(tail_bytes, MIN_ALIKE)
    if not groups:
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
    shape = _known.find(tails, topic_field)
    return None if shape is None else StoredRecords(shape, rows, heads, bodies, tails)
