"""The flush of the ConsumeQueues beside what the owner thread does to them."""

import threading
from pathlib import Path

import pytest

from sprocket.common import failpoints
from sprocket.common.errors import DiskFailed, DiskFull
from store.disk.disk import RealDisk
from store.disk.mapped_file_queue import MappedFileQueue
from tests.store.insides import flush_queues, queue_flush_turn
from tests.store.rig import FaultyDisk, Stores, message


def test_a_topic_goes_while_its_queues_are_flushed(stores: Stores) -> None:
    """A flush that met a file which is gone would latch a failed disk, and the broker would end."""
    disk = stores.disk = FaultyDisk()
    store = stores.open()
    store.append([message("Gone"), message("Kept")])
    queue_file = stores.queue_files("Gone")[0]
    in_flush, go_on = threading.Event(), threading.Event()

    def hold(path: Path) -> None:
        if path == queue_file:
            in_flush.set()
            assert go_on.wait(30)

    disk.before_sync = hold
    flush = threading.Thread(target=flush_queues, args=(store,))
    flush.start()
    assert in_flush.wait(30)
    # No caller waits for the flush.
    assert store.delete_topic("Gone") == 1
    assert not queue_file.exists()
    go_on.set()
    flush.join()
    stores.run_notified()
    assert store.failure is None
    store.append([message("Kept")])


def test_a_full_disk_postpones_the_checkpoint_and_ends_nothing(stores: Stores) -> None:
    store = stores.open()
    store.append([message()])
    failpoints.arm("disk.write_small=error:ENOSPC;atomic_file.before_sync=error:ENOSPC")
    try:
        with pytest.raises(DiskFull):
            flush_queues(store)
        assert queue_flush_turn(store), "the thread would end"
    finally:
        failpoints.arm(None)
    stores.run_notified()
    assert store.failure is None
    store = stores.reopen(store)
    assert store.max_offset("Orders", 0) == 1


def test_a_stop_without_room_for_the_checkpoint_is_one_after_which_the_log_is_walked(stores: Stores) -> None:
    disk = stores.disk = FaultyDisk()
    store = stores.open()
    store.append([message(body=b"%d" % k) for k in range(5)])
    disk.small_write_fails = True
    stores.close(store)
    assert (stores.root / "abort").exists()
    disk.small_write_fails = False
    store = stores.open()
    assert store.recovery is not None
    assert (store.recovery.records, store.max_offset("Orders", 0)) == (5, 5)


def test_a_stop_does_not_sync_again_what_failed_before_the_owner_heard_of_it(stores: Stores) -> None:
    disk = stores.disk = FaultyDisk()
    store = stores.open()
    store.append([message()])
    disk.sync_fails = True
    assert not queue_flush_turn(store)
    # The report is on its way; the next sync would succeed.
    disk.sync_fails = False
    stores.close(store)
    assert isinstance(store.failure, DiskFailed)
    assert (stores.root / "abort").exists()
    assert not (stores.root / "checkpoint").exists()


def test_an_error_that_nobody_foresaw_is_latched(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.open()
    store.append([message()])

    def broken(*arguments: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(MappedFileQueue, "between", broken)
    assert not queue_flush_turn(store)
    stores.run_notified()
    assert "a bug" in str(store.failure)


def test_many_queues_are_synced_though_the_first_ones_topic_is_gone(tmp_path: Path) -> None:
    disk = RealDisk()
    files = [disk.create(tmp_path / f"T{k}" / "0" / "file", 64, preallocate=False) for k in range(100)]
    for file in files:
        file.write(0, b"x")
    for topic in tmp_path.iterdir():
        disk.remove_tree(topic)
    disk.sync_many(files)
    for file in files:
        file.close()
