"""The records of neighbouring entries."""

import random
import struct
from typing import Any

import pytest

from store.queue.gathered import gathered

_ENTRY = struct.Struct(">qiq")
_BASE = 1 << 40
_SEGMENT = memoryview(random.Random(1).randbytes(4096))


def packed(entries: list[tuple[int, int]]) -> memoryview:
    tags = (-1, 0, (1 << 63) - 1, -(1 << 63), 7)
    return memoryview(b"".join(_ENTRY.pack(*entry, tags[number % 5]) for number, entry in enumerate(entries)))


def of(entries: list[tuple[int, int]], *, end: int = _BASE + 4096, max_bytes: int = 10_000, join_bytes: int = 0) -> Any:
    return gathered(packed(entries), 0, len(entries), _SEGMENT, _BASE, end, max_bytes, join_bytes)


def test_neighbours_are_one_part_of_the_segment() -> None:
    size, last, (part,) = of([(_BASE + 10, 5), (_BASE + 15, 7)], join_bytes=100)
    assert (size, last, part) == (12, _BASE + 15, _SEGMENT[10:22])
    assert part.obj is _SEGMENT.obj


def test_scattered_records_are_parts_or_one_copy() -> None:
    entries = [(_BASE, 5), (_BASE + 5, 1), (_BASE + 100, 7), (_BASE + 4000, 96)]
    size, last, parts = of(entries)
    assert (size, last) == (109, _BASE + 4000)
    assert parts == [_SEGMENT[:6], _SEGMENT[100:107], _SEGMENT[4000:]]
    _, _, (copy,) = of(entries, join_bytes=109)
    assert copy == b"".join(parts)


def spaced(count: int, size: int, step: int) -> list[tuple[int, int]]:
    """Entries of records of one size that begin at equal distances."""
    return [(_BASE + 3 + step * number, size) for number in range(count)]


@pytest.mark.parametrize(("count", "size", "step"), [(2, 5, 6), (32, 100, 127), (10, 1, 400)])
def test_equal_records_at_equal_distances_are_one_copy(count: int, size: int, step: int) -> None:
    entries = spaced(count, size, step)
    records = [_SEGMENT[3 + step * number :][:size] for number in range(count)]
    end = entries[-1][0] + size
    joined_bytes = count * size
    assert of(entries, end=end, join_bytes=joined_bytes) == (
        joined_bytes, entries[-1][0], [b"".join(records)],
    )  # fmt: skip
    assert of(entries, end=end, join_bytes=joined_bytes - 1)[2] == records
    assert of(entries, end=end - 1, join_bytes=joined_bytes) is None
    assert of(entries, end=end, join_bytes=joined_bytes, max_bytes=joined_bytes - 1) is None


def test_one_equal_record_at_another_distance() -> None:
    entries = spaced(5, 10, 50)
    for which, moved in ((1, 60), (2, -7), (3, 40)):
        changed = [(offset + moved * (number == which), size) for number, (offset, size) in enumerate(entries)]
        records = [_SEGMENT[offset - _BASE :][:10] for offset, _ in changed]
        found = of(changed, join_bytes=100)
        assert found == (None if moved == 60 else (50, changed[-1][0], [b"".join(records)]))


@pytest.mark.parametrize(
    "entries",
    [
        spaced(4, 10, 9),
        spaced(4, 10, 0),
        spaced(4, 10, -1),
        spaced(4, 0, 10),
        spaced(4, -1, 10),
        spaced(4, 0x7FFFFFFF, 1),
        spaced(5, 2000, 1000),
        [(_BASE - 1, 5)],
        [(_BASE, 4097)],
        [(_BASE + 10, 0)],
        [(_BASE + 10, -1)],
        [(_BASE + 10, 0x7FFFFFFF)],
        [(_BASE + 10, 5), (_BASE + 9, 5)],
        [(_BASE + 10, 5), (_BASE + 14, 5)],
        [(_BASE + 10, 5), (_BASE + 20, -3)],
        [((1 << 63) - 1, 0x7FFFFFFF)],
        [(-(1 << 63), 5), (_BASE, 5)],
    ],
)
def test_records_outside_the_segment_or_out_of_order_are_left(entries: list[tuple[int, int]]) -> None:
    assert of(entries, join_bytes=1000) is None


def test_limits() -> None:
    assert of([(_BASE, 50)], max_bytes=50) is not None
    assert of([(_BASE, 50)], max_bytes=49) is None
    assert of([(_BASE, 50)], end=_BASE + 50) is not None
    assert of([(_BASE, 50)], end=_BASE + 49) is None
