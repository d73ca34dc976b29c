"""The compiled scanner and the plain one give the same records, ends, chains, CRCs and tags for any bytes."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.twins import scan_targets
from tests.fuzz.twins.scan_targets import compare_parts, compare_scans, compiled, log_of, scan_twins
from tests.tiers import examples, seeds

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")

LENGTHS = (0, 1, 90, 91, 200, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1)


def damaged(chance: random.Random, log: bytes) -> bytes:
    """The log with flips, wrong lengths, zeros, a cut, or another part of itself."""
    content = bytearray(log)
    for _ in range(chance.choice((0, 1, 1, 3, 30))):
        at = chance.randrange(max(len(content) - 4, 1))
        kind = chance.randrange(5)
        if kind == 0:
            content[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            content[at : at + 4] = struct.pack(">I", chance.choice(LENGTHS))
        elif kind == 2:
            content[at : at + 2] = struct.pack(">H", chance.choice(LENGTHS[:7]))
        elif kind == 3:
            content[at : at + 300] = bytes(min(300, len(content) - at))
        else:
            content[at:at] = log[: chance.randrange(400)]
    return bytes(content[: chance.randrange(len(content) + 1)] if chance.random() < 0.3 else content)


@pytest.mark.parametrize("seed", seeds(60, quick=4))
def test_logs_of_every_shape(seed: int) -> None:
    chance = random.Random(seed)
    scan_twins(damaged(chance, log_of(chance, chance.choice((1, 5, 60)))))


@pytest.mark.parametrize("batch_records", [1, 7, None])
def test_many_records(batch_records: int | None) -> None:
    log = log_of(random.Random(3), 1200)
    compare_scans(log, check_crc=True, batch_records=batch_records)
    compare_parts(log)


def test_every_truncation_of_a_log() -> None:
    log = log_of(random.Random(4), 3)
    for size in range(len(log)):
        compare_scans(log[:size], check_crc=True)


def test_every_flipped_byte_of_a_log() -> None:
    log = log_of(random.Random(5), 3)
    for at in range(len(log)):
        changed = bytearray(log)
        changed[at] ^= 0x41
        compare_scans(bytes(changed), check_crc=True)
        compare_parts(bytes(changed))


def test_more_topics_than_one_batch_holds() -> None:
    chance = random.Random(6)

    names = tuple(f"Topic{number:05d}" for number in range(6000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_targets, "TOPICS", names)
        log = log_of(chance, 9000)
    compare_scans(log, check_crc=False, batch_records=1 << 20)


@settings(max_examples=examples(300))
@given(st.binary(max_size=700))
def test_any_bytes(data: bytes) -> None:
    scan_twins(data)


def test_columns_without_room_are_refused() -> None:
    import numpy as np

    from store.scan import scan_native as scan

    columns = tuple(np.empty(3, np.int64) for _ in range(7))
    for room in (4, -1, 1 << 62):
        with pytest.raises(ValueError, match="no room"):
            scan.read_batch(b"", 0, 0, 0, columns, room, check_crc=True, require_seal=False)
    with pytest.raises(BufferError):
        scan.read_batch(b"", 0, 0, 0, (b"constant", *columns[1:]), 1, check_crc=True, require_seal=False)


def test_positions_outside_of_the_data_are_refused() -> None:
    import numpy as np

    from store.scan import scan_native as scan

    def number(value: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return np.array([value], np.int64)

    for start, begin, size in ((0, -1, 5), (0, 0, 11), (0, 0, -1), (0, 2**63 - 1, 1), (0, 5, 2**63 - 1), (3, 4, 2)):
        with pytest.raises(ValueError, match="record 0"):
            scan.tags_codes(b"0123456789", number(start), number(begin), number(size), number(0), 1)
    for end in (19, 31, -1, 2**63 - 1):
        with pytest.raises(IndexError, match="record 0"):
            scan.claimed_crcs(bytes(30), number(20), number(end), number(0), 1)
    with pytest.raises(ValueError, match="cannot begin"):
        scan.chain(bytes(100), -1, 100, number(0), 1)
