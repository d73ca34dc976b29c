"""Records of neighbouring entries of a ConsumeQueue, as one pull sends them.

`gathered` is the compiled function if the engine has it.  `tests/store/queue/test_gathered.py` compares both.
"""

import struct
from functools import cache, lru_cache
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np

from sprocket.engine.choice import native
from store.layout import CONSUME_QUEUE_UNIT_BYTES

# Size of all records, physical offset of the last one, and their bytes in order.
Gathered: TypeAlias = tuple[int, int, list[memoryview]]

_FIRST_TWO: Final = struct.Struct(">qi8xqi").unpack_from
_PLACE: Final = struct.Struct(">qi").unpack_from


@lru_cache(maxsize=64)
def _place_sums(count: int) -> tuple[int, int, int, int]:
    """Return `count` entries as one number, four times; their other fields are 0.

    First all bits of offset and size are 1, then the offsets are 1, then they are 0, 1, 2 and so on; last the sizes
    are 1.
    """
    kinds = ([(2**64 - 1, 2**32 - 1)] * count, [(1, 0)] * count, [(n, 0) for n in range(count)], [(0, 1)] * count)
    mask, ones, numbers, sizes = (
        int.from_bytes(b"".join(struct.pack(">QI8x", *place) for place in places), "big") for places in kinds
    )
    return mask, ones, numbers, sizes


@lru_cache(maxsize=128)
def _even_sums(count: int, gap: int, size: int) -> tuple[int, int, int]:
    """Return the first two numbers of `_place_sums`, and that of the even entries whose first offset is 0."""
    mask, ones, numbers, sizes = _place_sums(count)
    return mask, ones, gap * numbers + size * sizes


@cache
def _places_of(count: int) -> struct.Struct:
    """Return the struct of physical offset and size of `count` entries."""
    return struct.Struct(">" + "qi8x" * count)


def _are_even(entries: memoryview, position: int, count: int, start: int, gap: int, size: int) -> bool:
    """Return whether `count` records of `size` bytes begin at `start` and from there at every `gap` bytes.

    `size` is positive, `gap` not negative, and no record ends after the largest offset.
    """
    stop = position + count * CONSUME_QUEUE_UNIT_BYTES
    if _PLACE(entries, stop - CONSUME_QUEUE_UNIT_BYTES) != (start + gap * (count - 1), size):
        return False  # most other entries end here
    # All entries are one number: no field of the sum is too large for its place.
    mask, offset_ones, others = _even_sums(count, gap, size)
    return int.from_bytes(entries[position:stop], "big") & mask == start * offset_ones + others


def gathered_in_python(
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
    if count > 1:
        start, size, second, second_size = _FIRST_TWO(entries, position)
        gap, size_bytes = second - start, size * count
        last = start + gap * (count - 1)
        is_in_bounds = start >= base and last + size <= end and size_bytes <= max_bytes
        may_be_even = size == second_size and 0 < size <= gap and (gap == size or size_bytes <= join_bytes)
        if is_in_bounds and may_be_even and _are_even(entries, position, count, start, gap, size):
            if gap == size:
                return size_bytes, last, [segment[start - base : start - base + size_bytes]]
            # Messages of one size, sent to the queues in turn: numpy copies them faster than slices are made.
            records = np.ndarray(count, f"V{size}", segment, start - base, (gap,))
            return size_bytes, last, [memoryview(records.tobytes())]
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


_native: Final = native("store.reads")
gathered: Final = gathered_in_python if _native is None else _native.gathered
