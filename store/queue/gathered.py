"""Records of neighbouring entries of a ConsumeQueue, as one pull sends them."""

import struct
from functools import cache
from itertools import accumulate
from typing import TypeAlias

# Size of all records, physical offset of the last one, and their bytes in order.
Gathered: TypeAlias = tuple[int, int, list[memoryview]]


@cache
def _places_of(count: int) -> struct.Struct:
    """Return the struct of physical offset and size of `count` entries."""
    return struct.Struct(">" + "qi8x" * count)


def gathered(
    entries: memoryview,
    position: int,
    count: int,
    segment: memoryview,
    base: int,
    end: int,
    max_bytes: int,
    join_bytes: int,
) -> Gathered | None:
    """Return the records of `count` entries, which begin at the byte `position` of `entries`.

    `segment` begins at the physical offset `base`; bytes from `end` on are not read.  Scattered records of up to
    `join_bytes` together are a copy; all others are parts of `segment`.  Return None unless all records lie in the
    segment in ascending order, with at most `max_bytes` in total: `QueueReader` then reads entry by entry.
    """
    fields = _places_of(count).unpack_from(entries, position)
    offsets, sizes = fields[::2], fields[1::2]
    size_bytes, start, last = sum(sizes), offsets[0], offsets[-1]
    if size_bytes > max_bytes or start < base or last + sizes[-1] > end or min(sizes) <= 0:
        return None
    if last + sizes[-1] - start == size_bytes and offsets == tuple(accumulate(sizes[:-1], initial=start)):
        return size_bytes, last, [segment[start - base : start - base + size_bytes]]
    slices: list[memoryview] = []
    stop = start
    for offset, size in zip(offsets, sizes, strict=True):
        if offset != stop:
            if offset < stop:
                return None
            slices.append(segment[start - base : stop - base])
            start = offset
        stop = offset + size
    slices.append(segment[start - base : stop - base])
    return size_bytes, last, [memoryview(b"".join(slices))] if size_bytes <= join_bytes else slices
