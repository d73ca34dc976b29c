"""Shapes of the tails of records: a tail that is known says what there is to know of all tails like it.

The tail of a record is what follows its body: topic, length of the properties, properties, seal.  The first tail of a
length is parsed, and has a range for each of its octets: names have one octet, values any.  One subtraction and one
comparison of arrays check all tails of that length.
"""

import re
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from store.alike.columns import Octets
from store.alike.octet_ranges import DIGITS, PRINTABLE, OctetRanges
from store.alike.record_columns import LENGTH_BYTES
from store.record.checksum import SEAL_BYTES, SEAL_NAME, sealed_crc

TAGS: Final = b"TAGS"
_PROPERTY: Final = re.compile(rb"([^\0-\x02#]+)\x01([^\0-\x02]+)\x02")
# First and last octet of a value other than a tag, and of anything.
_ANY: Final = (0x03, 0xFF)
_ALL: Final = (0x00, 0xFF)
_MAX_KNOWN: Final = 256


class TailShape:
    """Tails of one length that differ from a known one only in values.

    `gaps` are where the values are in a tail, by name, and `properties` are all of them without the seal.
    """

    __slots__ = ("_ranges", "gaps", "properties")

    def __init__(self, tail: bytes, properties: slice, gaps: dict[bytes, slice]) -> None:
        self.properties, self.gaps = properties, gaps
        self._ranges = OctetRanges(tail)
        for name, gap in gaps.items():
            self._ranges.vary(gap, PRINTABLE if name == TAGS else _ANY)
        self._ranges.vary(slice(properties.stop + len(SEAL_NAME), len(tail) - 1), DIGITS)

    def has(self, tails: Octets) -> bool:
        """Return whether all of `tails`, one a row, have this shape."""
        return self._ranges.hold(tails)


class AnyTopicShape(TailShape):
    """Tails with topics of one length; `topic` is where the name is."""

    __slots__ = ("topic",)

    def __init__(self, tail: bytes, properties: slice, gaps: dict[bytes, slice]) -> None:
        super().__init__(tail, properties, gaps)
        self.topic = slice(1, properties.start - LENGTH_BYTES)
        self._ranges.vary(self.topic, _ALL)

    @classmethod
    def of(cls, tail: bytes, begin: bytes) -> "AnyTopicShape | None":
        """Return the shape of a tail, which is not empty; None if it is not of a sealed record, or is unusual."""
        parts = tail_parts(tail, tail[: 1 + tail[0]])
        return None if parts is None else cls(tail, *parts)


def tail_parts(tail: bytes, topic_field: bytes) -> tuple[slice, dict[bytes, slice]] | None:
    """Return where in a tail its properties are, and the value of each by name.

    None if it is not the tail of a sealed record of the topic, or if a property has no name or value or occurs twice.
    """
    begin, end = len(topic_field) + LENGTH_BYTES, len(tail) - SEAL_BYTES
    if end < begin or not tail.startswith(topic_field) or sealed_crc(tail[end:]) < 0:
        return None
    if int.from_bytes(tail[begin - LENGTH_BYTES : begin], "big") != len(tail) - begin:
        return None
    found = list(_PROPERTY.finditer(tail, begin, end))
    if sum(len(one[0]) for one in found) != end - begin:
        return None
    gaps = {one[1]: slice(*one.span(2)) for one in found}
    return None if len(gaps) != len(found) else (slice(begin, end), gaps)


Shape = TypeVar("Shape", bound=TailShape)


class KnownShapes(Generic[Shape]):
    """Shapes of the last tails, by length and by what they begin with.

    `shape_of` returns the shape of a tail that begins so; None if it is unusual.
    """

    def __init__(self, shape_of: Callable[[bytes, bytes], Shape | None]) -> None:
        self._shape_of = shape_of
        self._known: dict[tuple[bytes, int], Shape] = {}

    def find(self, tails: Octets, begin: bytes) -> Shape | None:
        """Return the shape of all of `tails`, one a row; None if they have not one shape, or are unusual."""
        key = begin, tails.shape[1]
        shape = self._known.get(key)
        if shape is None or not shape.has(tails):
            shape = self._shape_of(tails[0].tobytes(), begin)
            if shape is None or not shape.has(tails):
                return None
            if len(self._known) == _MAX_KNOWN:
                self._known.clear()
            self._known[key] = shape
        return shape
