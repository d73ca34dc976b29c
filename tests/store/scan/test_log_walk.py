"""The walk of a stretch of the log finds the chain of its records, and nothing that is not in the chain."""

import random
import struct
from collections.abc import Sequence

import pytest

from sprocket.remoting.message.record import HEAD, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from store.scan import log_walk
from store.scan.log_walk import walk
from tests.tiers import seeds

BASE = 3 << 30
MAGICS = (MAGIC_V1, MAGIC_V2)
PLENTY = 3000


def head(size: int, offset: int, magic: int = MAGIC_V1) -> bytes:
    return HEAD.pack(size, magic, 0, 0, 0, 0, offset, 0, 0)


def log_of(bodies: Sequence[bytes], magics: Sequence[int] = (MAGIC_V1,)) -> bytes:
    """Records with these bodies after their heads, of the smallest size at least."""
    content = bytearray()
    for number, body in enumerate(bodies):
        filled = body.ljust(log_walk.MIN_RECORD_BYTES - HEAD.size, b"\0")
        content += head(HEAD.size + len(filled), BASE + len(content), magics[number % len(magics)]) + filled
    return bytes(content)


def chain(content: bytes, end: int) -> list[int]:
    """One by one, to the first that is none of a record, which counts."""
    positions, at = [], 0
    while at < min(end, len(content) - 7):
        positions.append(at)
        size, magic = struct.unpack_from(">Ii", content, at)
        if magic not in MAGICS or size < log_walk.MIN_RECORD_BYTES:
            break
        at += size
    return positions


def records_of(content: bytes, found: Sequence[int]) -> list[int]:
    """Of a walk's positions those that are records, to the first that is none: callers check them."""
    records = []
    for at in found:
        size, magic = struct.unpack_from(">Ii", content, at)
        if magic not in MAGICS or size < log_walk.MIN_RECORD_BYTES:
            break
        records.append(at)
    return records


def assert_walked(content: bytes, end: int | None = None) -> None:
    end = len(content) if end is None else end
    found = walk(memoryview(content), BASE, end).tolist()
    assert records_of(content, found) == records_of(content, chain(content, end))
    sizes = [struct.unpack_from(">I", content, at)[0] for at in found]
    assert all(at + size == following for at, size, following in zip(found, sizes, found[1:], strict=False))
    assert all(0 <= at < end for at in found)


@pytest.mark.parametrize("magics", [(MAGIC_V1,), (MAGIC_V2,), MAGICS])
@pytest.mark.parametrize("shape", ["tiny", "like JSON", "of two sizes", "growing", "large", "large ones first"])
def test_records_of_every_size(shape: str, magics: tuple[int, ...]) -> None:
    rng = random.Random(shape)
    sizes = {
        "tiny": [0] * PLENTY,
        "like JSON": [rng.randrange(150, 700) for _ in range(PLENTY)],
        "of two sizes": [(0, 5_000)[rng.random() < 0.1] for _ in range(PLENTY)],
        "growing": list(range(PLENTY)),
        "large": [rng.randrange(60_000, 70_000) for _ in range(64)],
        "large ones first": [20_000] * 40 + [10] * PLENTY,
    }[shape]
    content = log_of([rng.randbytes(size) for size in sizes], magics)
    for end in (len(content), len(content) // 2, 1, 0):
        assert_walked(content, end)


def test_every_end_near_the_last_records() -> None:
    content = log_of([bytes(400)] * PLENTY)
    for cut in range(1, 1000, 37):
        assert_walked(content[:-cut])
        assert_walked(content, len(content) - cut)


@pytest.mark.parametrize("behind", ["blank", "zeros", "noise", "ones", "small sizes"])
def test_what_is_behind_the_last_record(behind: str) -> None:
    room = 1 << 20
    filling = {
        "blank": struct.pack(">ii", room, MAGIC_BLANK).ljust(room, b"\0"),
        "zeros": bytes(room),
        "noise": random.Random(1).randbytes(room),
        "ones": b"\0\0\0\1" * (room // 4),
        "small sizes": b"\0\0\0\x5b" * (room // 4),
    }[behind]
    assert_walked(log_of([bytes(300)] * PLENTY) + filling)


@pytest.mark.parametrize("seed", seeds(12))
def test_damage_anywhere(seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(log_of([rng.randbytes(rng.randrange(600)) for _ in range(PLENTY)]))
    for _ in range(rng.choice((1, 3, 50))):
        at = rng.randrange(len(content) - 4)
        kind = rng.randrange(4)
        if kind == 0:
            content[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            content[at : at + 4] = struct.pack(">I", rng.choice((0, 1, 91, 2**31, 2**32 - 1)))
        else:
            record = rng.choice(chain(bytes(content), len(content)))
            content[record : record + 4] = struct.pack(">I", rng.choice((0, 1, 91, 200, 5_000, 2**32 - 1)))
    assert_walked(bytes(content))


def parts_of(content: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...]:
    """Where the walk looks for start points."""
    seen = []
    search = log_walk._start_points

    def spy(segment: memoryview, base: int, begin: int, end: int, record_bytes: int) -> log_walk.Positions:
        count = min((end - begin) // (record_bytes * log_walk._RECORDS_A_CURSOR), log_walk._MAX_CURSORS)
        seen.extend(range(begin, end, (end - begin) // count))
        return search(segment, base, begin, end, record_bytes)

    with monkeypatch.context() as patch:
        patch.setattr(log_walk, "_start_points", spy)
        walk(memoryview(content), BASE, len(content))
    assert len(seen) > 20
    return tuple(seen)


@pytest.mark.parametrize("shift", [-1, 0, 1, 300])
@pytest.mark.parametrize("is_dense", [False, True])
def test_a_body_that_imitates_a_record_at_the_border_of_a_part(
    shift: int, is_dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytearray(log_of([bytes(1000)] * PLENTY))
    true = chain(bytes(content), len(content))
    record_bytes = true[1]
    borders = parts_of(bytes(content), monkeypatch)[1:]
    for border in borders if is_dense else borders[::7]:
        at = border + shift
        inside = at % record_bytes
        if HEAD.size <= inside <= record_bytes - HEAD.size and at < true[-1]:  # within a body
            # Its chain leads to the imitation after it, not into the true one.
            content[at : at + HEAD.size] = head(450, BASE + at)
    assert bytes(content).count(struct.pack(">i", MAGIC_V1)) > len(true)
    assert walk(memoryview(bytes(content)), BASE, len(content)).tolist() == true


def test_bodies_full_of_imitations() -> None:
    bodies = []
    at = 0
    for _ in range(PLENTY):
        body = b"".join(head(120, BASE + at + HEAD.size + k * 120).ljust(120, b"x") for k in range(4))
        bodies.append(body)
        at += HEAD.size + len(body)
    content = log_of(bodies)
    assert walk(memoryview(content), BASE, len(content)).tolist() == chain(content, len(content))


def test_bodies_full_of_the_first_byte_of_a_magic() -> None:
    content = log_of([struct.pack(">i", MAGIC_V1) * 100, b"\xda" * 500] * (PLENTY // 2))
    assert_walked(content)


@pytest.mark.parametrize("size", range(0, 200, 9))
def test_less_than_a_record(size: int) -> None:
    content = log_of([bytes(100)] * 2)[:size]
    assert_walked(content)


def test_nothing_behind_the_stretch_is_read() -> None:
    """A record that begins before `end` is found though the stretch ends within it."""
    content = log_of([bytes(300)] * PLENTY)
    true = chain(content, len(content))
    for last in (0, 1, 40, 1000, PLENTY - 1):
        for held in (8, 9, 48, 100):
            part = content[: true[last] + held]
            assert walk(memoryview(part), BASE, len(part)).tolist() == true[: last + 1]
