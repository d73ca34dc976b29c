"""Slices of the log: a read returns a record only from the place that the queue names."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.config.store_config import StoreConfig
from store.disk.disk import RealDisk
from store.log.commit_log import CommitLog

SEGMENT_BYTES = 4096
RECORD_BYTES = 128


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    """Three segments and a half, each byte telling its record."""
    log = CommitLog(StoreConfig(store_path_root_dir=tmp_path, mapped_file_size_commit_log=SEGMENT_BYTES), RealDisk())
    for start in range(0, SEGMENT_BYTES * 7 // 2, RECORD_BYTES):
        log.write([(start, bytes([start // RECORD_BYTES]) * RECORD_BYTES)], start + RECORD_BYTES)
    yield log
    log.close()


def slices_of(log: CommitLog, records: list[int]) -> list[bytes] | None:
    slices = log.slices_of([record * RECORD_BYTES for record in records], [RECORD_BYTES] * len(records))
    return None if slices is None else [bytes(piece) for piece in slices]


def test_what_was_written_is_there_across_segments(log: CommitLog) -> None:
    for record in range(112):
        piece = log.slice_at(record * RECORD_BYTES, RECORD_BYTES)
        assert piece is not None
        assert bytes(piece) == bytes([record]) * RECORD_BYTES


@pytest.mark.parametrize("turn_to", [0, 40, 111])
@pytest.mark.parametrize(
    "runs",
    [
        [[0]],
        [[1, 2, 3]],
        [[1], [3], [5, 6], [9]],
        [[31], [32]],
        [[30, 31], [32, 33]],
        [[2], [33, 34], [63], [64], [110, 111]],
    ],
    ids=str,
)
def test_neighbours_within_a_segment_are_joined(log: CommitLog, turn_to: int, runs: list[list[int]]) -> None:
    log.slice_at(turn_to * RECORD_BYTES, 1)
    assert slices_of(log, [record for run in runs for record in run]) == [
        b"".join(bytes([record]) * RECORD_BYTES for record in run) for run in runs
    ]


def test_a_queue_that_lies_gets_nothing_but_whole_records(log: CommitLog) -> None:
    log.slice_at(0, 1)
    assert slices_of(log, [1, 112]) is None  # after the log
    assert log.slices_of([0, 256], [-5, 128]) is None
    assert log.slices_of([0, 256], [128, -5]) is None
    assert log.slices_of([0, 4000], [128, 128]) is None  # across a segment's end
    assert log.slices_of([4000, 4200], [128, 128]) is None
    # Out of order is found all the same.
    assert slices_of(log, [5, 3, 7]) == [bytes([record]) * RECORD_BYTES for record in (5, 3, 7)]


def test_the_log_goes_on_where_it_was_cut(log: CommitLog) -> None:
    for record in (40, 3):
        log.cut(record * RECORD_BYTES)
        assert log.slice_at(record * RECORD_BYTES, 1) is None
        for start in range(record * RECORD_BYTES, SEGMENT_BYTES * 3, RECORD_BYTES):
            log.write([(start, b"n" * RECORD_BYTES)], start + RECORD_BYTES)
        assert slices_of(log, [record - 1, record + 1, 95]) == [
            bytes([record - 1]) * RECORD_BYTES,
            b"n" * RECORD_BYTES,
            b"n" * RECORD_BYTES,
        ]
