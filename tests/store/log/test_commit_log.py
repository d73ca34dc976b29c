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


def record_in(log: CommitLog, record: int) -> bytes | None:
    piece = log.slice_at(record * RECORD_BYTES, RECORD_BYTES)
    return None if piece is None else bytes(piece)


def test_what_was_written_is_there_across_segments(log: CommitLog) -> None:
    for record in (*range(112), 5, 3, 7):
        assert record_in(log, record) == bytes([record]) * RECORD_BYTES


@pytest.mark.parametrize("turn_to", [0, 4000])
@pytest.mark.parametrize(("offset", "size_bytes"), [(112 * RECORD_BYTES, 128), (0, -5), (0, 0), (4000, 128), (-1, 128)])
def test_a_queue_that_lies_gets_nothing(log: CommitLog, turn_to: int, offset: int, size_bytes: int) -> None:
    log.slice_at(turn_to, 1)
    assert log.slice_at(offset, size_bytes) is None


def test_the_log_goes_on_where_it_was_cut(log: CommitLog) -> None:
    for record in (40, 3):
        log.cut(record * RECORD_BYTES)
        assert log.slice_at(record * RECORD_BYTES, 1) is None
        for start in range(record * RECORD_BYTES, SEGMENT_BYTES * 3, RECORD_BYTES):
            log.write([(start, b"n" * RECORD_BYTES)], start + RECORD_BYTES)
        assert record_in(log, record - 1) == bytes([record - 1]) * RECORD_BYTES
        assert record_in(log, record + 1) == record_in(log, 95) == b"n" * RECORD_BYTES
