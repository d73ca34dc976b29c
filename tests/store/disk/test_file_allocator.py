"""The thread that makes the next segment: warming it, and what may go wrong then.  The rest is in test_disk.py."""

import threading
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed
from store.disk.file_allocator import FileAllocator
from tests.store.reading import bodies
from tests.store.retention.cleaning import HandWorker
from tests.store.rig import FaultyDisk, Stores, message

MIB = 1 << 20


class Hand:
    """The allocator's worker, turned by the test."""

    def __call__(self, name: str, turn: object, interval_s: float | None = None) -> HandWorker:
        self.worker = HandWorker(turn)  # type: ignore[arg-type]  # a callable, as the protocol says
        return self.worker


def test_a_warmed_segment_is_written_and_synced_before_it_is_needed(tmp_path: Path) -> None:
    disk, hand = FaultyDisk(), Hand()
    allocator = FileAllocator(disk, hand, warm_bytes=2 * MIB)
    size = 5 * MIB + 4096
    allocator.prepare(tmp_path / "1", size)
    hand.worker.take_turn()
    assert len(disk.syncs) == 3
    file = allocator.take(tmp_path / "1", size)
    assert (file.size_bytes, bytes(file.view[:10]), file.view[-1]) == (size, bytes(10), 0)
    allocator.close()


def test_a_segment_that_is_not_warmed_costs_no_write(tmp_path: Path) -> None:
    disk, hand = FaultyDisk(), Hand()
    disk.write_fault = lambda path: True
    allocator = FileAllocator(disk, hand)
    allocator.prepare(tmp_path / "1", 4096)
    hand.worker.take_turn()
    assert allocator.take(tmp_path / "1", 4096).path.name == "1"
    assert disk.syncs == []
    allocator.close()


def test_nobody_waits_until_a_segment_is_warm(tmp_path: Path) -> None:
    writing, taking = threading.Event(), threading.Event()
    steps = []

    class Slow(FaultyDisk):
        def __init__(self) -> None:
            super().__init__()
            self.write_fault = self.step

        def step(self, path: Path) -> bool:
            steps.append(path)
            writing.set()
            assert taking.wait(60)
            return False

    disk = Slow()
    allocator = FileAllocator(disk, warm_bytes=64 * MIB)
    allocator.prepare(tmp_path / "1", 64 * MIB)
    assert writing.wait(60)
    threading.Timer(0.05, taking.set).start()
    file = allocator.take(tmp_path / "1", 64 * MIB)
    assert file.path.name == "1"
    assert len(steps) < 64
    allocator.close()


@pytest.mark.parametrize("fault", ["write", "sync"])
def test_a_segment_that_cannot_be_warmed_is_created_again_when_it_is_needed(tmp_path: Path, fault: str) -> None:
    disk, hand = FaultyDisk(), Hand()
    if fault == "write":
        disk.write_fault = lambda path: True
    else:
        disk.sync_fails = True
    allocator = FileAllocator(disk, hand, warm_bytes=MIB)
    allocator.prepare(tmp_path / "1", MIB)
    hand.worker.take_turn()
    assert list(tmp_path.iterdir()) == []
    assert allocator.take(tmp_path / "1", MIB).path.name == "1"
    allocator.close()


def test_a_failed_creation_is_raised_when_the_segment_is_needed(tmp_path: Path) -> None:
    class Full(FaultyDisk):
        def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> object:  # type: ignore[override]
            raise DiskFailed(f"create {path}")

    hand = Hand()
    allocator = FileAllocator(Full(), hand, warm_bytes=MIB)
    allocator.prepare(tmp_path / "1", MIB)
    hand.worker.take_turn()
    with pytest.raises(DiskFailed):
        allocator.take(tmp_path / "1", MIB)
    allocator.close()


def test_a_store_with_warmed_segments_keeps_everything(stores: Stores) -> None:
    stores.fields["warm_mapped_file_enable"] = True
    store = stores.open()
    wanted = [b"%d" % number * 40 for number in range(300)]
    for body in wanted:
        store.append([message(body=body)])
    assert bodies(store) == wanted
    assert bodies(stores.reopen(store, crash=True)) == wanted
