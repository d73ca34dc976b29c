"""The flush of the ConsumeQueues beside what the owner thread does to them."""

import threading
from pathlib import Path

from tests.store.rig import FaultyDisk, Stores, message


def test_a_topic_is_not_removed_under_a_flush_of_its_queues(stores: Stores) -> None:
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
    deletion = threading.Thread(target=store.delete_topic, args=("Gone",))
    deletion.start()
    deletion.join(0.1)
    was_there = queue_file.exists()
    go_on.set()
    deletion.join()
    flush.join()
    stores.run_notified()
    assert was_there
    assert not queue_file.exists()
    assert store.failure is None
    store.append([message("Kept")])
