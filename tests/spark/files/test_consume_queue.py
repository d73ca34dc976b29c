"""A search in a ConsumeQueue finds what a look at every entry finds, whatever became of its files."""

import os
import random
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from spark.files.consume_queue import ConsumeQueue
from store.layout import CONSUME_QUEUE_DTYPE
from tests.tiers import seeds

FILE_ENTRIES = 3000
FIRST = 2 * FILE_ENTRIES


def write(directory: Path, entries: npt.NDArray[np.void]) -> list[Path]:
    """`entries` as files of one size, the last one filled up with zeros, numbered from `FIRST` on."""
    directory.mkdir()
    paths = []
    for at in range(0, entries.size, FILE_ENTRIES):
        content = entries[at : at + FILE_ENTRIES].tobytes()
        paths.append(directory / f"{(FIRST + at) * CONSUME_QUEUE_DTYPE.itemsize:020d}")
        paths[-1].write_bytes(content.ljust(FILE_ENTRIES * CONSUME_QUEUE_DTYPE.itemsize, b"\0"))
    return paths


def entries_of(count: int, seed: int) -> npt.NDArray[np.void]:
    found = np.zeros(count, CONSUME_QUEUE_DTYPE)
    found["size"] = np.random.default_rng(seed).integers(91, 5000, count)
    found["physical_offset"] = 10**12 + np.cumsum(found["size"].astype(np.int64) * 3)
    return found


@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, FILE_ENTRIES, FILE_ENTRIES + 1, 8000])
def test_the_end_and_every_range(tmp_path: Path, count: int) -> None:
    written = entries_of(count, count)
    write(tmp_path / "0", written)
    queue = ConsumeQueue("T", 0, tmp_path / "0")
    assert (queue.begin, queue.end) == (FIRST, FIRST + count)
    offsets = written["physical_offset"].astype(np.int64)
    rnd = random.Random(count)
    for _ in range(20):
        begin, end = sorted(rnd.choice(offsets.tolist()) + rnd.randint(-2, 2) for _ in range(2))
        expected = FIRST + np.searchsorted(offsets, [begin, end])
        assert queue.range_of(begin, end) == tuple(expected)
        at = FIRST + int(np.searchsorted(offsets, begin))
        assert queue.record_at_or_after(begin) == (int(offsets[at - FIRST]) if at < queue.end else None)


@pytest.mark.parametrize("seed", seeds(20))
def test_a_search_among_damaged_entries_ends_next_to_one_or_is_right(tmp_path: Path, seed: int) -> None:
    """Which is what makes the damage seen: the entries around the place are looked at."""
    rnd = random.Random(seed)
    written = entries_of(8000, seed)
    damaged = written.copy()
    for at in rnd.sample(range(1, 7999), 40):
        damaged["physical_offset"][at] = rnd.choice([0, 1 << 60])
    write(tmp_path / "0", damaged)
    queue = ConsumeQueue("T", 0, tmp_path / "0")
    for place in written["physical_offset"][:: 8000 // 50].tolist():
        found = queue.range_of(place, place)[0]
        is_right = found == FIRST + np.searchsorted(written["physical_offset"].astype(np.int64), place)
        assert is_right or not queue.is_sound_at(found)


def test_files_that_are_cut_end_in_nothing(tmp_path: Path) -> None:
    paths = write(tmp_path / "0", entries_of(8000, 1))
    queue = ConsumeQueue("T", 0, tmp_path / "0")
    os.truncate(paths[-1], 100 * CONSUME_QUEUE_DTYPE.itemsize)
    assert queue.range_of(0, 1 << 62) == (FIRST, queue.end)
    assert ConsumeQueue("T", 0, tmp_path / "0").end == FIRST + 2 * FILE_ENTRIES + 100


def test_a_search_leaves_no_file_open(tmp_path: Path) -> None:
    write(tmp_path / "0", entries_of(8000, 1))
    before = open_files()
    queue = ConsumeQueue("T", 0, tmp_path / "0")
    queue.range_of(10**12, 10**12 + 5_000_000)
    assert open_files() <= before


def open_files() -> int:
    """Descriptors of this process, where the system lists them."""
    listed = Path("/proc/self/fd")
    return len(list(listed.iterdir())) if listed.is_dir() else 0
