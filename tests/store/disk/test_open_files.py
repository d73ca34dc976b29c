"""A bounded number of open files, whatever the number of queues; nothing unsynced is closed."""

import random
import threading
from pathlib import Path

import pytest

import store.queue.consume_queue_table as table_module
from sprocket.common.errors import DiskFailed
from store.disk.open_files import PooledDisk, PooledFile, descriptor_budget
from tests.store.insides import queues_of
from tests.store.recovery.test_damage import contents
from tests.store.rig import FaultyDisk, Stores, message

SIZE = 4096


def files(disk: PooledDisk, folder: Path, count: int) -> list[PooledFile]:
    return [disk.create(folder / str(number), SIZE, preallocate=False) for number in range(count)]


def test_the_budget_is_a_quarter_of_the_processs_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, budget in ((4096, 1024), (20_000, 5_000), (100, 64), (-1, 65_536)):
        monkeypatch.setattr("resource.getrlimit", lambda which, limit=limit: (limit, limit))
        assert descriptor_budget() == budget


def test_many_files_are_read_and_written_through_few_descriptors(tmp_path: Path) -> None:
    disk = PooledDisk(FaultyDisk(), 64)
    made = files(disk, tmp_path, 500)
    rng, expected = random.Random(1), [bytearray(SIZE) for _ in made]
    for _ in range(5_000):
        number, at = rng.randrange(len(made)), rng.randrange(SIZE - 8)
        if rng.random() < 0.5:
            content = rng.randbytes(8)
            made[number].write(at, content)
            expected[number][at : at + 8] = content
        else:
            view = made[number].view if rng.random() < 0.5 else None
            found = made[number].read(at, 8) if view is None else bytes(view[at : at + 8])
            assert found == expected[number][at : at + 8]
        assert disk.descriptors <= 64
    for file, content in zip(made, expected, strict=True):
        file.sync()
        file.close()
        assert file.path.read_bytes() == content
    assert disk.descriptors == 0


def test_only_synced_files_are_closed_for_others(tmp_path: Path) -> None:
    real = FaultyDisk()
    disk = PooledDisk(real, 64)
    made = files(disk, tmp_path, 300)
    closed = {file.path for file in made if file.take() is None}
    assert closed
    assert closed <= set(real.syncs)


def test_files_that_are_read_again_and_again_stay_open(tmp_path: Path) -> None:
    disk = PooledDisk(FaultyDisk(), 64)
    made = files(disk, tmp_path, 300)
    for file in made:
        file.sync()
    hot = made[0]
    opened, kept = hot.view, 0
    for file in made * 3:
        file.read(0, 8)
        kept += hot.take() is not None
        assert len(hot.view) == len(opened)
    assert kept > 850


def test_pressure_is_reported_once_a_quarter_is_unsynced(tmp_path: Path) -> None:
    disk = PooledDisk(FaultyDisk(), 64)
    calls = []
    disk.on_pressure.append(lambda: calls.append(disk.is_under_pressure))
    made = files(disk, tmp_path, 18)
    assert calls == [True]
    for file in made:
        file.sync()
    assert not disk.is_under_pressure


def test_a_file_that_goes_while_it_is_synced_is_closed_after_the_sync(tmp_path: Path) -> None:
    real = FaultyDisk()
    disk = PooledDisk(real, 64)
    (file,) = files(disk, tmp_path, 1)
    in_sync, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def hold(path: Path) -> None:
        in_sync.set()
        assert go_on.wait(30)

    def sync() -> None:
        try:
            file.sync()
        except BaseException as error:
            errors.append(error)

    real.before_sync = hold
    thread = threading.Thread(target=sync)
    thread.start()
    assert in_sync.wait(30)
    file.close()
    assert disk.descriptors == 1
    go_on.set()
    thread.join()
    assert not errors
    assert disk.descriptors == 0


def test_a_write_during_a_sync_is_not_taken_for_synced(tmp_path: Path) -> None:
    real = FaultyDisk()
    disk = PooledDisk(real, 64)
    (file,) = files(disk, tmp_path, 1)

    def sync_meanwhile(path: Path) -> bool:
        # The flush thread, while the system call of the write has the interpreter's lock released.
        real.write_fault = None
        file.sync()
        return False

    real.write_fault = sync_meanwhile
    file.write(0, b"unsynced")
    synced = len(real.syncs)
    files(disk, tmp_path / "others", 100)
    assert file.take() is not None or file.path in real.syncs[synced:]
    file.sync()
    assert file.path in real.syncs[synced:]


def test_a_failed_sync_is_final_for_every_caller(tmp_path: Path) -> None:
    real = FaultyDisk()
    disk = PooledDisk(real, 64)
    real.sync_fails = True
    with pytest.raises(DiskFailed):
        # Here it is the one who needs room for a file.
        files(disk, tmp_path, 100)
    real.sync_fails = False
    made = len(real.syncs)
    (file,) = files(disk, tmp_path / "other", 1)
    file.write(0, b"x")
    with pytest.raises(DiskFailed):
        file.sync()
    with pytest.raises(DiskFailed):
        disk.sync_many([file])
    assert len(real.syncs) == made
    # Reads go on.
    assert file.read(0, 1) == b"x"


def test_a_store_with_more_queues_than_descriptors(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "descriptor_budget", lambda: 64)
    store = stores.open()
    for turn in range(3):
        store.append([message(f"T{k // 8}", k % 8, b"%d %d" % (turn, k)) for k in range(200)])
    held = contents(store)
    assert len(held) == 200
    for crash in (False, True):
        store = stores.reopen(store, crash=crash)
        assert queues_of(store).files.descriptors <= 64
        assert contents(store) == held
    assert store.recovery is not None
    assert not store.recovery.rebuilt
