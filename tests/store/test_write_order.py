"""What must be on the disk before what: the orders on which every promise of the store rests."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed, StoreError
from store.config.store_config import FlushDiskType
from store.flush.checkpoint import load_checkpoint
from store.message_store import MessageStore
from tests.store.insides import flush_queues
from tests.store.rig import FaultyDisk, Stores, message


class TracedDisk(FaultyDisk):
    """Notes what is done to which file or directory, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, str]] = []
        self.write_fault = self._writes
        self.before_sync = self._syncs

    def _writes(self, path: Path) -> bool:
        self.events.append(("write", path.parts[-2] if "commitlog" in path.parts else path.parts[-4]))
        return False

    def _syncs(self, path: Path) -> None:
        self.events.append(("sync", path.parts[-2] if "commitlog" in path.parts else path.parts[-4]))

    def remove(self, path: Path) -> None:
        self.events.append(("remove", path.name))
        super().remove(path)

    def sync_entries(self, directory: Path) -> None:
        self.events.append(("sync names", directory.name))
        super().sync_entries(directory)


@pytest.fixture
def traced(stores: Stores) -> TracedDisk:
    stores.fields["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
    disk = stores.disk = TracedDisk()
    return disk


def until(stores: Stores, holds: Callable[[], bool]) -> None:
    for _ in range(4000):
        stores.run_notified()
        if holds():
            return
        time.sleep(0.005)
    raise AssertionError("the flush thread did not report")


def send(stores: Stores, store: MessageStore, body: bytes = b"body") -> StoreError | None:
    """Append and wait for the answer."""
    answers: list[StoreError | None] = []
    _, physical_offset, size = store.append([message(body=body)])[0]
    store.when_confirmed(physical_offset + size, answers.append)
    until(stores, lambda: bool(answers))
    return answers[0]


def test_the_log_is_written_before_its_queues(stores: Stores, traced: TracedDisk) -> None:
    store = stores.open()
    traced.events.clear()
    store.append([message("A"), message("B")])
    writes = [where for what, where in traced.events if what == "write"]
    assert writes == ["commitlog", "consumequeue", "consumequeue"]


def test_an_answer_follows_a_real_sync_of_the_log(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    stores.fields["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
    store = stores.open()
    synced: list[Path] = []
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    assert send(stores, store) is None
    assert stores.segments()[0] in synced


def test_the_name_of_a_new_segment_is_synced_with_its_content(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    stores.fields["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
    store = stores.open()
    synced: list[Path] = []
    monkeypatch.setattr("store.disk.real_file.sync_directory", synced.append)
    assert send(stores, store) is None
    assert stores.root / "commitlog" in synced
    assert stores.root in synced, "the directory of the segments is new as well"
    synced.clear()
    while len(stores.segments()) < 3:
        assert send(stores, store, b"b" * 3000) is None
    assert stores.root / "commitlog" in synced


def test_a_failed_sync_is_not_tried_again(stores: Stores, traced: TracedDisk) -> None:
    store = stores.open()
    tries: list[Path] = []

    def fail_once(path: Path) -> None:
        if "commitlog" in path.parts:
            tries.append(path)
            if len(tries) == 1:
                raise DiskFailed(f"sync {path}")

    traced.before_sync = fail_once
    assert isinstance(send(stores, store), DiskFailed)
    with pytest.raises(DiskFailed):
        store.append([message()])
    stores.close(store)
    assert len(tries) == 1


def test_nothing_can_be_seen_before_it_is_confirmed(stores: Stores, traced: TracedDisk) -> None:
    store = stores.open()
    go_on = threading.Event()

    def wait(path: Path) -> None:
        assert go_on.wait(30)

    traced.before_sync = wait
    _, physical_offset, size = store.append([message()])[0]
    shown = store.max_offset("Orders", 0), store.record_at(physical_offset, size), store.record_at(physical_offset)
    go_on.set()
    assert shown == (0, None, None)
    until(stores, lambda: store.confirm_offset >= physical_offset + size)
    assert store.record_at(physical_offset, size) is not None


def test_names_that_a_killed_process_left_are_synced_at_the_start(stores: Stores, traced: TracedDisk) -> None:
    store = stores.open()
    send(stores, store)
    stores.crash(store)
    traced.events.clear()
    stores.open()
    named = {where for what, where in traced.events if what == "sync names"}
    assert {"commitlog", stores.root.name} <= named


def test_a_cut_is_synced_before_its_intent_is_removed(stores: Stores, traced: TracedDisk) -> None:
    store = stores.open()
    send(stores, store)
    end = store.wrote_offset
    stores.crash(store)
    with stores.segments()[0].open("r+b") as file:
        file.seek(end)
        file.write(b"torn" * 40)
    traced.events.clear()
    stores.open()
    zeroed = traced.events.index(("write", "commitlog"))
    synced = traced.events.index(("sync", "commitlog"), zeroed)
    assert synced < traced.events.index(("remove", "truncate"))


def test_a_deleted_topic_stays_deleted_after_a_crash(stores: Stores) -> None:
    store = stores.open()
    store.append([message("Gone"), message("Kept")])
    store.delete_topic("Gone")
    store = stores.reopen(store, crash=True)
    assert store.max_offset("Gone", 0) == 0
    assert store.max_offset("Kept", 0) == 1


def test_a_stop_that_cannot_flush_is_no_clean_one(stores: Stores, traced: TracedDisk) -> None:
    stores.fields["flush_disk_type"] = FlushDiskType.ASYNC_FLUSH
    store = stores.open()
    store.append([message()])
    traced.sync_fails = True
    stores.close(store)
    assert (stores.root / "abort").exists()


def test_the_checkpoint_promises_no_more_than_is_flushed(stores: Stores) -> None:
    store = stores.open()  # ASYNC_FLUSH: written is not flushed
    store.append([message()])
    assert store.flushed_offset == 0
    flush_queues(store)
    checkpoint = load_checkpoint(store.disk, stores.root / "checkpoint", stores.clock.wall_ms())
    assert checkpoint.confirm_phy_offset == 0
