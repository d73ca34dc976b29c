"""The records of neighbouring entries: both engines give the same bytes, and refuse the same entries."""

import random
import struct

import pytest

from sprocket.engine.choice import native
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from store.queue.gathered import gathered_in_python
from tests.tiers import seeds

_ENTRY = struct.Struct(">qiq")
_BASE = 1 << 40
_SEGMENT = memoryview(random.Random(1).randbytes(4096))
_reads = native("store.queue.gathered_native")
# Numbers that a damaged entry may hold.
_HOSTILE = (0, -1, 1, _BASE - 1, _BASE, _BASE + 4096, _BASE + 4097, (1 << 63) - 1, -(1 << 63))
_HOSTILE_SIZES = (0, -1, 1, 4096, 4097, 0x7FFFFFFF, -(1 << 31))

engines = pytest.mark.parametrize(
    "gathered",
    [
        gathered_in_python,
        pytest.param(
            None if _reads is None else _reads.gathered,
            marks=pytest.mark.skipif(_reads is None, reason="the compiled engine is not in use"),
        ),
    ],
    ids=["python", "native"],
)


def packed(entries: list[tuple[int, int]]) -> memoryview:
    tags = (-1, 0, (1 << 63) - 1, -(1 << 63), 7)
    return memoryview(b"".join(_ENTRY.pack(*entry, tags[number % 5]) for number, entry in enumerate(entries)))


def of(gathered, entries, *, end=_BASE + 4096, max_bytes=10_000, join_bytes=0):  # type: ignore[no-untyped-def]
    return gathered(packed(entries), 0, len(entries), _SEGMENT, _BASE, end, max_bytes, join_bytes)


@engines
def test_neighbours_are_one_part_of_the_segment(gathered) -> None:  # type: ignore[no-untyped-def]
    size, last, (part,) = of(gathered, [(_BASE + 10, 5), (_BASE + 15, 7)], join_bytes=100)
    assert (size, last, part) == (12, _BASE + 15, _SEGMENT[10:22])
    assert part.obj is _SEGMENT.obj


@engines
def test_scattered_records_are_parts_or_one_copy(gathered) -> None:  # type: ignore[no-untyped-def]
    entries = [(_BASE, 5), (_BASE + 5, 1), (_BASE + 100, 7), (_BASE + 4000, 96)]
    size, last, parts = of(gathered, entries)
    assert (size, last) == (109, _BASE + 4000)
    assert parts == [_SEGMENT[:6], _SEGMENT[100:107], _SEGMENT[4000:]]
    _, _, (copy,) = of(gathered, entries, join_bytes=109)
    assert copy == b"".join(parts)


def spaced(count: int, size: int, step: int) -> list[tuple[int, int]]:
    """Entries of records of one size that begin at equal distances."""
    return [(_BASE + 3 + step * number, size) for number in range(count)]


@engines
@pytest.mark.parametrize(("count", "size", "step"), [(2, 5, 6), (32, 100, 127), (10, 1, 400)])
def test_equal_records_at_equal_distances_are_one_copy(gathered, count: int, size: int, step: int) -> None:  # type: ignore[no-untyped-def]
    entries = spaced(count, size, step)
    records = [_SEGMENT[3 + step * number :][:size] for number in range(count)]
    end = entries[-1][0] + size
    joined_bytes = count * size
    assert of(gathered, entries, end=end, join_bytes=joined_bytes) == (
        joined_bytes, entries[-1][0], [b"".join(records)],
    )  # fmt: skip
    assert of(gathered, entries, end=end, join_bytes=joined_bytes - 1)[2] == records
    assert of(gathered, entries, end=end - 1, join_bytes=joined_bytes) is None
    assert of(gathered, entries, end=end, join_bytes=joined_bytes, max_bytes=joined_bytes - 1) is None


@engines
def test_one_equal_record_at_another_distance(gathered) -> None:  # type: ignore[no-untyped-def]
    entries = spaced(5, 10, 50)
    for which, moved in ((1, 60), (2, -7), (3, 40)):
        changed = [(offset + moved * (number == which), size) for number, (offset, size) in enumerate(entries)]
        records = [_SEGMENT[offset - _BASE :][:10] for offset, _ in changed]
        found = of(gathered, changed, join_bytes=100)
        assert found == (None if moved == 60 else (50, changed[-1][0], [b"".join(records)]))


@engines
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
def test_records_outside_the_segment_or_out_of_order_are_left(gathered, entries) -> None:  # type: ignore[no-untyped-def]
    assert of(gathered, entries, join_bytes=1000) is None


@engines
def test_limits(gathered) -> None:  # type: ignore[no-untyped-def]
    assert of(gathered, [(_BASE, 50)], max_bytes=50) is not None
    assert of(gathered, [(_BASE, 50)], max_bytes=49) is None
    assert of(gathered, [(_BASE, 50)], end=_BASE + 50) is not None
    assert of(gathered, [(_BASE, 50)], end=_BASE + 49) is None


@pytest.mark.skipif(_reads is None, reason="the compiled engine is not in use")
def test_entries_outside_their_file_are_not_read() -> None:
    assert _reads is not None and _reads.UNIT_BYTES == CONSUME_QUEUE_UNIT_BYTES
    for position, count in ((0, 3), (21, 2), (-20, 1), (41, 0), (0, 0), (0, -1), (20, 1 << 62), (1 << 62, 1)):
        entries = packed([(_BASE, 5), (_BASE + 5, 5)])
        assert _reads.gathered(entries, position, count, _SEGMENT, _BASE, _BASE + 4096, 100, 100) is None
    # An end after the mapped bytes, or before the segment.
    for base, end in ((_BASE, _BASE + 4097), (_BASE, _BASE - 1), (-1, 10), (0, (1 << 63) - 1)):
        assert _reads.gathered(packed([(_BASE, 5)]), 0, 1, _SEGMENT, base, end, 100, 100) is None


@pytest.mark.skipif(_reads is None, reason="the compiled engine is not in use")
@pytest.mark.parametrize("seed", seeds(100, quick=5))
def test_both_engines_give_the_same(seed: int) -> None:
    assert _reads is not None
    chance = random.Random(seed)
    at, entries = _BASE + chance.randrange(50), []
    sizes, gaps = chance.choice(((range(1, 120), (0, 0, 1, 30)), ((40,), (50,)), ((40,), (30, 30, 30, 31))))
    for _ in range(chance.randrange(1, 40)):
        size = chance.choice(sizes)
        entries.append((at, size))
        at += size + chance.choice(gaps)
    if chance.random() < 0.5:
        which = chance.randrange(len(entries))
        offset, size = entries[which]
        entries[which] = chance.choice(
            ((chance.choice(_HOSTILE), size), (offset, chance.choice(_HOSTILE_SIZES)), (offset - 3, size))
        )
    end = _BASE + chance.choice((4096, 4000, 1000))
    limits = chance.choice((10_000, 900)), chance.choice((0, 500, 10_000))
    python, compiled = (
        of(gathered, entries, end=end, max_bytes=limits[0], join_bytes=limits[1])
        for gathered in (gathered_in_python, _reads.gathered)
    )
    assert python == compiled
