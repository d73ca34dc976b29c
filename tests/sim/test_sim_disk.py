"""The simulated disk grants what `store.disk.disk.Disk` promises, and loses the rest."""

from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed, DiskFull, StoreError
from store.disk.disk import Disk, RealDisk
from tests.sim.sim_disk import ROOT, Fault, SimDisk
from tests.sim.sim_image import Subset, Survivors

PATH = ROOT / "a" / "b" / "file"
PAGE = 4096


def left(disk: SimDisk, survivors: Survivors = Survivors.NONE) -> SimDisk:
    return disk.crash(Subset(survivors, 7))


def test_a_write_is_seen_at_once_and_survives_with_a_sync() -> None:
    disk = SimDisk()
    file = disk.create(PATH, 2 * PAGE, preallocate=True)
    view = file.view
    file.write(PAGE - 2, b"abcd")
    assert bytes(view[PAGE - 2 : PAGE + 2]) == b"abcd"
    assert left(disk).size(PATH) is None
    file.sync()
    file.write(0, b"later")
    assert left(disk).files() == {PATH: bytes(PAGE - 2) + b"abcd" + bytes(PAGE - 2)}
    assert left(disk, Survivors.ALL).files() == {PATH: b"later" + bytes(PAGE - 7) + b"abcd" + bytes(PAGE - 2)}
    # What crashed has a life of its own.
    copy = left(disk)
    copy.open(PATH, preallocate=True).write(0, b"copy")
    assert disk.read(PATH) != copy.read(PATH)


def test_pages_survive_one_by_one_and_the_same_subset_gives_the_same() -> None:
    disk = SimDisk()
    file = disk.create(PATH, 8 * PAGE, preallocate=True)
    file.sync()
    for page in range(8):
        file.write(page * PAGE, b"%d" % page)

    def pages(survivors: Survivors, seed: int = 0) -> str:
        content = disk.crash(Subset(survivors, seed)).files()[PATH]
        return bytes(content[::PAGE]).replace(b"\0", b"-").decode()

    assert pages(Survivors.ALL) == "01234567"
    assert pages(Survivors.NONE) == "--------"
    assert pages(Survivors.OLDEST) == "0123----"
    assert pages(Survivors.NEWEST) == "----4567"
    assert pages(Survivors.ALTERNATING) == "0-2-4-6-"
    assert pages(Survivors.RANDOM, 1) == pages(Survivors.RANDOM, 1)
    assert len({pages(Survivors.RANDOM, seed) for seed in range(20)}) > 10


@pytest.mark.parametrize("simulated", [False, True])
def test_both_disks_answer_alike(simulated: bool, tmp_path: Path) -> None:
    disk: Disk = SimDisk() if simulated else RealDisk()
    root = ROOT / "store" if simulated else tmp_path / "store"
    lock = disk.lock(root / "lock")
    with pytest.raises(StoreError, match="in use"):
        disk.lock(root / "lock")
    lock.release()
    disk.lock(root / "lock").release()
    file = disk.create(root / "d" / "1", 100, preallocate=False)
    file.write(10, b"ten")
    assert (file.content_end(0), file.content_end(50), file.read(9, 5)) == (13, 50, b"\0ten\0")
    file.sync()
    file.close()
    disk.write_small(root / "small", b"one")
    disk.write_small(root / "small", b"2")
    disk.rename(root / "small", root / "big")
    assert (disk.read(root / "small"), disk.read(root / "big"), disk.size(root / "d" / "1")) == (None, b"2", 100)
    assert disk.entries(root) == [("big", 1), ("d", None), ("lock", 0)]
    assert (disk.names(root / "d"), disk.names(root / "none"), disk.entries(root / "none")) == (["1"], [], [])
    with pytest.raises(DiskFailed):
        disk.open(root / "none", preallocate=False)
    disk.remove(root / "none")
    disk.remove_files(root / "d", ["1", "none"])
    assert disk.names(root) == ["big", "lock"]
    disk.remove_tree(root)
    assert disk.names(root) == []


def test_faults_come_as_the_store_knows_them() -> None:
    disk = SimDisk()
    file = disk.create(PATH, PAGE, preallocate=True)
    file.sync()
    disk.fault = lambda kind, path: Fault(DiskFull, 0.5)
    with pytest.raises(DiskFull, match="No space"):
        file.write(0, b"abcd")
    with pytest.raises(DiskFull):
        disk.create(ROOT / "other", PAGE, preallocate=True)
    with pytest.raises(DiskFailed):
        file.sync()
    disk.fault = None
    assert disk.size(ROOT / "other") is None
    assert bytes(file.view[:4]) == b"ab\0\0"
    # A sync that failed is forgotten: the next one covers nothing of what was written before.
    outcomes = set()
    for seed in range(10):
        again = SimDisk(seed)
        file = again.create(PATH, PAGE, preallocate=True)
        file.sync()
        file.write(0, b"abcd")
        again.fault = lambda kind, path: Fault()
        with pytest.raises(DiskFailed):
            file.sync()
        again.fault = None
        file.sync()
        outcomes.add(left(again).files()[PATH][:4])
    assert outcomes == {b"abcd", bytes(4)}
