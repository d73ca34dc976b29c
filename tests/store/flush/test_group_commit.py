"""SYNC_FLUSH and ASYNC_FLUSH: what is confirmed when, one sync for many, and a failed sync that stays failed."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed, StoreError
from store.config.store_config import FlushDiskType
from store.flush.group_commit import FlushSchedule
from store.message_store import GetStatus, MessageStore
from tests.store.reading import bodies
from tests.store.rig import FaultyDisk, Stores, message, noting

Answers = list[tuple[str, StoreError | None]]


@pytest.fixture
def disk(stores: Stores) -> FaultyDisk:
    stores.fields["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
    faulty = FaultyDisk()
    stores.disk = faulty
    return faulty


def until(stores: Stores, holds: Callable[[], bool]) -> None:
    """Run what the flush thread hands to the owner until `holds`."""
    for _ in range(2000):
        stores.run_notified()
        if holds():
            return
        time.sleep(0.005)
    raise AssertionError("the flush thread did not report")


def send(store: MessageStore, name: str, answers: Answers) -> None:
    _, physical_offset, size = store.append([message(body=name.encode())])[0]
    store.when_confirmed(physical_offset + size, lambda error: answers.append((name, error)))


def test_nothing_is_seen_or_answered_before_the_sync(stores: Stores, disk: FaultyDisk) -> None:
    gate = threading.Event()
    disk.before_sync = lambda path: gate.wait() and None
    store = stores.open()
    arrivals: list[tuple[str, int, int, int]] = []
    store.on_arrival.append(noting(arrivals))
    answers: Answers = []
    send(store, "a", answers)
    stores.run_notified()
    assert (answers, arrivals) == ([], [])
    assert store.get("Orders", 0, 0, 32, 1 << 20).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert (store.max_offset("Orders", 0), store.record_at(0), store.confirm_offset) == (0, None, 0)
    gate.set()
    until(stores, lambda: bool(answers))
    assert answers == [("a", None)]
    assert arrivals == [("Orders", 0, 1, 0)]
    assert bodies(store) == [b"a"]
    assert store.confirm_offset == store.flushed_offset == store.wrote_offset


def test_all_who_wait_share_one_sync(stores: Stores, disk: FaultyDisk) -> None:
    gate = threading.Event()
    disk.before_sync = lambda path: gate.wait() and None
    store = stores.open()
    answers: Answers = []
    send(store, "first", answers)
    while not disk.syncs:
        time.sleep(0.001)
    for k in range(50):
        send(store, str(k), answers)
    gate.set()
    until(stores, lambda: len(answers) == 51)
    assert [name for name, _ in answers] == ["first"] + [str(k) for k in range(50)]
    log_syncs = [path for path in disk.syncs if path.parent.name == "commitlog"]
    # One for the first, one for the fifty; a third if the thread looked again before the answers were run.
    assert 2 <= len(log_syncs) <= 3


def test_a_wait_for_what_is_flushed_is_answered_at_once(stores: Stores, disk: FaultyDisk) -> None:
    store = stores.open()
    answers: Answers = []
    send(store, "a", answers)
    until(stores, lambda: bool(answers))
    store.when_confirmed(store.wrote_offset, lambda error: answers.append(("again", error)))
    assert answers == [("a", None), ("again", None)]


def test_a_failed_sync_fails_all_who_wait_and_every_append_after_it(stores: Stores, disk: FaultyDisk) -> None:
    store = stores.open()
    answers: Answers = []
    send(store, "good", answers)
    until(stores, lambda: len(answers) == 1)
    failures: list[DiskFailed] = []
    store.on_failure.append(failures.append)
    disk.sync_fails = True
    send(store, "b", answers)
    send(store, "c", answers)
    until(stores, lambda: len(answers) == 3)
    assert [type(error) for _, error in answers[1:]] == [DiskFailed, DiskFailed]
    assert len(failures) == 1
    syncs = len(disk.syncs)
    # It stays so, even though the next sync would succeed.
    disk.sync_fails = False
    with pytest.raises(DiskFailed):
        store.append([message()])
    store.when_confirmed(store.wrote_offset, lambda error: answers.append(("late", error)))
    assert isinstance(answers[-1][1], DiskFailed)
    stores.run_notified()
    assert len(disk.syncs) == syncs
    # What was confirmed is still read; what was not never is.
    assert bodies(store) == [b"good"]
    # A stop claims nothing: the next start recovers.
    stores.close(store)
    assert len(disk.syncs) == syncs
    assert (stores.root / "abort").exists()


def test_a_batch_over_two_segments_syncs_both(stores: Stores, disk: FaultyDisk) -> None:
    store = stores.open()
    appended = store.append([message(body=b"x" * 1000) for _ in range(20)])
    answers: list[StoreError | None] = []
    store.when_confirmed(appended[-1][1] + appended[-1][2], answers.append)
    until(stores, lambda: bool(answers))
    assert {path.name for path in disk.syncs} >= {path.name for path in stores.segments()[:2]}
    assert store.max_offset("Orders", 0) == 20


def test_async_flush_confirms_at_once_and_flushes_by_itself(stores: Stores) -> None:
    disk = FaultyDisk()
    stores.disk = disk
    stores.fields |= {"flush_interval_commit_log": 1, "flush_commit_log_least_pages": 0}
    store = stores.open()
    answers: Answers = []
    send(store, "a", answers)
    assert answers == [("a", None)]
    assert bodies(store) == [b"a"]
    until(stores, lambda: store.flushed_offset == store.wrote_offset)
    assert any(path.parent.name == "commitlog" for path in disk.syncs)


def test_a_failed_sync_of_async_flush_is_latched_too(stores: Stores) -> None:
    disk = FaultyDisk()
    stores.disk = disk
    stores.fields |= {"flush_interval_commit_log": 1, "flush_commit_log_least_pages": 0}
    store = stores.open()
    disk.sync_fails = True
    store.append([message(body=b"a")])
    until(stores, lambda: store.failure is not None)
    with pytest.raises(DiskFailed):
        store.append([message()])
    assert store.flushed_offset == 0
    assert bodies(store) == [b"a"]


def test_a_failed_sync_of_a_consume_queue_is_latched(stores: Stores) -> None:
    disk = FaultyDisk()
    stores.disk = disk
    stores.fields |= {"flush_interval_consume_queue": 1, "flush_consume_queue_least_pages": 0}

    def fail_queues(path: Path) -> None:
        if "consumequeue" in path.parts:
            raise DiskFailed(f"sync {path}")

    disk.before_sync = fail_queues
    store = stores.open()
    store.append([message(body=b"a")])
    until(stores, lambda: store.failure is not None)
    assert "consumequeue" in str(store.failure)


def test_the_checkpoint_follows_the_queues_to_the_disk(stores: Stores) -> None:
    disk = FaultyDisk()
    stores.disk = disk
    store = stores.open()
    store.append([message("A"), message("B", 3)])
    stores.close(store)
    assert {path.parent.parent.name for path in disk.syncs if "consumequeue" in path.parts} == {"A", "B"}
    content = (stores.root / "checkpoint").read_bytes()
    fields = [int.from_bytes(content[at : at + 8], "big") for at in range(0, 40, 8)]
    now = stores.clock.wall_ms()
    assert (len(content), fields) == (4096, [now, now, 0, 0, store.wrote_offset])


def test_flush_schedule() -> None:
    schedule = FlushSchedule(min_pages=4, thorough_interval_ms=10_000, now=100.0)
    assert not schedule.is_due(101, 0)
    assert not schedule.is_due(102, 4 * 4096 - 1)
    assert schedule.is_due(103, 4 * 4096)
    assert schedule.is_due(110, 1)
    assert not schedule.is_due(111, 1)
    assert not schedule.is_due(120, 0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_that_nobody_foresaw_is_latched(stores: Stores, disk: FaultyDisk) -> None:
    """A thread that ended without a word would leave all who wait without an answer."""

    def broken(path: Path) -> None:
        raise ValueError("a bug")

    disk.before_sync = broken
    store = stores.open()
    answers: Answers = []
    send(store, "a", answers)
    until(stores, lambda: bool(answers))
    assert "a bug" in str(store.failure)
    assert isinstance(answers[0][1], DiskFailed)


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_a_send_that_waits_for_the_disk_gets_a_flush_at_once(
    stores: Stores, disk: FaultyDisk, flush: FlushDiskType
) -> None:
    stores.fields |= {
        "flush_disk_type": flush,
        "flush_interval_commit_log": 60_000,
        "flush_commit_log_thorough_interval": 600_000,
    }
    store = stores.open()
    answers: list[StoreError | None] = []
    for _ in range(3):
        store.append([message()])
        store.when_flushed(store.wrote_offset, answers.append)
    until(stores, lambda: len(answers) == 3)
    assert answers == [None] * 3
    assert store.flushed_offset == store.wrote_offset
    store.when_flushed(store.wrote_offset, answers.append)
    assert len(answers) == 4, "it is there already"
    disk.sync_fails = True
    store.append([message()])
    store.when_flushed(store.wrote_offset, answers.append)
    until(stores, lambda: len(answers) == 5)
    store.when_flushed(store.wrote_offset, answers.append)
    assert [type(error) for error in answers[4:]] == [DiskFailed, DiskFailed]
