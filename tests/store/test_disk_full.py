"""A full disk: nothing of the batch is visible, reads go on, and writes succeed again when space returns."""

from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed, DiskFull
from sprocket.common.figures import values
from store.message_store import GetStatus
from tests.store.reading import bodies
from tests.store.rig import FaultyDisk, Stores, message


@pytest.fixture
def disk(stores: Stores) -> FaultyDisk:
    faulty = FaultyDisk()
    stores.disk = faulty
    return faulty


def is_log(path: Path) -> bool:
    return path.parent.name == "commitlog"


def is_second_queue(path: Path) -> bool:
    return path.parent.name == "1"


@pytest.mark.parametrize("fault", [is_log, is_second_queue])
@pytest.mark.parametrize("crash", [False, True])
def test_a_refused_batch_leaves_no_trace(stores: Stores, disk: FaultyDisk, fault: object, crash: bool) -> None:
    store = stores.open()
    store.append([message(queue_id=k % 2, body=b"old") for k in range(4)])
    end = store.wrote_offset
    batch = [message(queue_id=k % 2, body=b"refused") for k in range(6)]
    disk.write_fault = fault  # type: ignore[assignment]
    # The fault hits the way back too only where the log itself fails; there it must be latched.
    if fault is is_log:
        calls = []

        def once(path: Path) -> bool:
            calls.append(path)
            return is_log(path) and len(calls) == 1

        disk.write_fault = once
    with pytest.raises(DiskFull):
        store.append(batch)
    assert store.wrote_offset == end
    assert store.failure is None
    assert bodies(store, "Orders", 0) == bodies(store, "Orders", 1) == [b"old"] * 2
    assert store.get("Orders", 0, 2, 32, 1 << 20).status is GetStatus.OFFSET_OVERFLOW_ONE

    disk.write_fault = None
    # A smaller batch now: had the refused one left records, they would follow it after a restart.
    assert store.append([message(queue_id=1, body=b"refused")])[0][:2] == (2, end)
    store = stores.reopen(store, crash=crash)
    assert bodies(store, "Orders", 0) == [b"old"] * 2
    assert bodies(store, "Orders", 1) == [b"old", b"old", b"refused"]
    assert store.append([message(body=b"new")])[0][0] == 2


def test_no_room_for_the_next_segment(stores: Stores, disk: FaultyDisk) -> None:
    store = stores.open()
    disk.create_fails = True
    big = message(body=b"x" * 3000)
    with pytest.raises(DiskFull):
        store.append([message(body=b"first")])
    disk.create_fails = False
    store.append([message(body=b"first")])
    disk.create_fails = True
    kept = [b"first"]
    with pytest.raises(DiskFull):
        for _ in range(10):
            store.append([big])
            kept.append(bytes(big.body))
    assert 3 <= len(kept) <= 6
    # A batch that would begin in this segment and end in the next is refused as a whole.
    with pytest.raises(DiskFull):
        store.append([message(body=b"small"), big, big])
    assert bodies(store) == kept
    # What fits still goes in.
    store.append([message(body=b"small")])
    disk.create_fails = False
    store.append([big])
    store = stores.reopen(store, crash=True)
    assert bodies(store) == [*kept, b"small", bytes(big.body)]


def test_a_write_that_cannot_be_undone_is_latched(stores: Stores, disk: FaultyDisk) -> None:
    store = stores.open()
    store.append([message(body=b"old")])
    disk.write_fault = is_log
    with pytest.raises(DiskFailed, match="roll back"):
        store.append([message(body=b"lost")])
    disk.write_fault = None
    with pytest.raises(DiskFailed):
        store.append([message()])
    assert bodies(store) == [b"old"]


def test_an_input_output_error_of_a_write_is_latched(stores: Stores, disk: FaultyDisk) -> None:
    store = stores.open()
    failures: list[DiskFailed] = []
    store.on_failure.append(failures.append)
    store.append([message(body=b"old")])
    disk.write_fault, disk.write_error = is_log, DiskFailed
    with pytest.raises(DiskFailed):
        store.append([message(body=b"lost")])
    assert len(failures) == 1
    assert bodies(store) == [b"old"]


def test_refused_appends_are_counted(stores: Stores, disk: FaultyDisk) -> None:
    store = stores.open()
    disk.create_fails = True
    with pytest.raises(DiskFull):
        store.append([message(), message()])
    assert values(store.figures())["putMessageFailedTimes"] == "2"
