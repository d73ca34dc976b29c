"""What memory does not hold, and read-ahead of the CommitLog."""

from pathlib import Path

import numpy as np
import pytest

from store.config.store_config import StoreConfig
from store.disk.disk import RealDisk, RealFile
from store.disk.page_cache import PAGE_BYTES, cached_pages
from store.layout import CONSUME_QUEUE_DTYPE
from store.log.cold_area import ColdArea
from store.log.commit_log import CommitLog
from tests.store.rig import Stores, message

SEGMENT_BYTES = 64 * 1024


def entries(*places: tuple[int, int]) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    return np.array([(offset, size, 0) for offset, size in places], CONSUME_QUEUE_DTYPE)


def open_log(root: Path, **fields: object) -> tuple[StoreConfig, CommitLog]:
    config = StoreConfig(store_path_root_dir=root, mapped_file_size_commit_log=SEGMENT_BYTES, **fields)  # type: ignore[arg-type]
    return config, CommitLog(config, RealDisk())


def fill(log: CommitLog, segments: int) -> None:
    for start in range(0, SEGMENT_BYTES * segments, 4096):
        log.write([(start, bytes([1]) * 4096)], start + 4096)


def test_what_is_far_behind_the_end_is_cold(tmp_path: Path) -> None:
    config, log = open_log(tmp_path, access_message_in_memory_hot_ratio=50)
    fill(log, 2)
    area = ColdArea(config, log, memory_bytes=SEGMENT_BYTES)
    edge = log.wrote_offset - SEGMENT_BYTES // 2
    assert area.is_cold(edge - 1)
    assert not area.is_cold(edge)
    assert area.cold_bytes(entries((0, 100), (edge - 1, 10), (edge, 1))) == 110
    assert area.cold_bytes(entries((edge, 1))) == area.cold_bytes(entries()) == 0
    log.close()


def test_a_page_that_is_cached_is_not_cold_once_it_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"cold_data_flow_control_enable": True, "cold_data_scan_enable": True, "sample_steps": 2}
    config, log = open_log(tmp_path, access_message_in_memory_hot_ratio=0, **fields)
    fill(log, 2)
    area = ColdArea(config, log, memory_bytes=1 << 30)
    assert area.cold_bytes(entries((0, 100))) == 0, "nothing is known of it yet"
    pages = SEGMENT_BYTES // PAGE_BYTES
    # Of the first segment the system has dropped the first half.
    cached = {0: b"\0" * (pages // 2) + b"\1" * (pages // 2), SEGMENT_BYTES: b"\1" * pages}
    monkeypatch.setattr(RealFile, "cached_pages", lambda file: cached[int(file.path.name)])
    area.scan()
    half = SEGMENT_BYTES // 2
    assert area.cold_bytes(entries((0, 100), (half - 1, 10), (half, 1), (SEGMENT_BYTES, 1))) == 110
    area.configure(StoreConfig(cold_data_flow_control_enable=True, access_message_in_memory_hot_ratio=0))
    assert area.cold_bytes(entries((half, 1))) == 1, "without the scan the place decides"
    log.close()


def test_mincore_says_which_pages_are_cached(tmp_path: Path) -> None:
    file = RealDisk().create(tmp_path / "f", 8 * PAGE_BYTES, preallocate=True)
    file.write(3 * PAGE_BYTES, b"x" * PAGE_BYTES)
    found = file.cached_pages()
    assert len(found) == 8
    assert found[3] & 1
    assert cached_pages(file.view) == file.cached_pages()
    file.close()


def is_read_at_random(path: Path) -> bool:
    """Whether this process has the file mapped with MADV_RANDOM."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return " rr" in next(line for line in lines if line.startswith("VmFlags:"))
    raise AssertionError(f"{path} is not mapped")


def test_read_ahead_is_turned_off_and_on_for_all_segments(tmp_path: Path) -> None:
    config, log = open_log(tmp_path, data_read_ahead_enable=False)
    fill(log, 2)
    paths = [log.path_of(0), log.path_of(SEGMENT_BYTES)]
    for start in (0, SEGMENT_BYTES):
        assert log.slice_at(start, 10) is not None
    assert all(map(is_read_at_random, paths))
    ahead = StoreConfig(store_path_root_dir=tmp_path, mapped_file_size_commit_log=SEGMENT_BYTES)
    log.configure(ahead)
    assert not any(map(is_read_at_random, paths))
    log.configure(config)
    assert all(map(is_read_at_random, paths))
    log.close()
    # What is there at the start, too.
    again = CommitLog(config, RealDisk())
    again.load()
    assert again.slice_at(0, 10) is not None
    assert is_read_at_random(paths[0])
    again.close()


def test_limits_of_a_read_change_while_the_store_runs(stores: Stores) -> None:
    store = stores.open()
    store.append([message("Orders", 0) for _ in range(40)])
    assert store.get("Orders", 0, 0, 100, 1 << 20).message_count == 32
    stores.fields |= {"max_transfer_count_on_message_in_memory": 5}
    store.configure(stores.config)
    assert store.get("Orders", 0, 0, 100, 1 << 20).message_count == 5
    stores.fields |= {"access_message_in_memory_max_ratio": 0, "max_transfer_count_on_message_in_disk": 3}
    store.configure(stores.config)
    assert store.get("Orders", 0, 0, 100, 1 << 20).message_count == 3
