"""The flush of the ConsumeQueues beside what the owner thread does to them."""

import threading
from pathlib import Path

import pytest

from sprocket.common import failpoints
from sprocket.common.errors import DiskFull
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
    flush = threading.Thread(target=store._queue_flush.flush_all)
    flush.start()
    assert in_flush.wait(30)
    # Nobody waits for the flush.
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
            store._queue_flush.flush_all()
        store._queue_flush._last_thorough = -1e9
        assert store._queue_flush._turn(), "the thread would end"
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
