"""An append that fails anywhere, with any exception, leaves no trace: in log and queues, or after a restart."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed, StoreBusy
from sprocket.common.failpoints import declared
from store.disk.disk import Content
from store.message_store import MessageStore
from store.queue.logic_queue import QueueType
from store.record.record import PendingMessage
from tests.store.reading import bodies, stored
from tests.store.rig import FaultyDisk, FaultyFile, Stores, message

POINTS = (
    "appender.before_log_write",
    "commit_log.between_chunks",
    "appender.after_log_write",
    "appender.between_queues",
    "appender.after_queues",
)
ERRORS = (MemoryError, KeyboardInterrupt, asyncio.CancelledError, ZeroDivisionError, OSError, StoreBusy)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    for point in declared().values():
        point.arm(None)


def failing(error: type[BaseException], at: int) -> Callable[[], None]:
    """Raises `error` when it is called for the `at`th time."""
    calls: list[None] = []

    def fail() -> None:
        calls.append(None)
        if len(calls) == at:
            raise error("failpoint")

    return fail


def batch(body: bytes) -> Sequence[PendingMessage]:
    """Messages for queues of every kind, and for two segments of the log."""
    properties = b"INNER_MULTI_DISPATCH\x01%LMQ%one,%LMQ%two\x02"
    return [
        message(queue_id=0, body=body),
        message(queue_id=1, body=body + bytes(5000), properties=properties),
        message("Batches", body=body),
        message("SCHEDULE_TOPIC_XXXX", 2, body=body, properties=b"DELAY\x013\x02"),
        message(queue_id=0, body=body + bytes(9000)),
    ]


QUEUES = (("Orders", 0), ("Orders", 1), ("Batches", 0), ("SCHEDULE_TOPIC_XXXX", 2), ("%LMQ%one", 0), ("%LMQ%two", 0))


def held(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """How the messages of a queue begin, entry by entry."""
    return [
        bytes(stored(store, topic, queue_id, offset).body[:3])
        for offset in range(store.max_offset(topic, queue_id) + 3)
        if store.entry(topic, queue_id, offset) is not None
    ]


def shown(store: MessageStore) -> tuple[int, list[list[bytes]], list[int]]:
    """The end of the log, what the queues hold, and their next offsets."""
    return (
        store.wrote_offset,
        [held(store, topic, queue_id) for topic, queue_id in QUEUES],
        [store.max_offset(topic, queue_id) for topic, queue_id in QUEUES],
    )


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    stores.fields |= {"enable_lmq": True, "enable_multi_dispatch": True}
    stores.queue_types["Batches"] = QueueType.BATCH
    return stores.open()


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("point", "at"), [(name, at) for name in POINTS for at in (1, 2, 4)])
@pytest.mark.parametrize("crash", [False, True])
def test_any_exception_at_any_step_leaves_no_trace(
    stores: Stores, store: MessageStore, error: type[BaseException], point: str, at: int, crash: bool
) -> None:
    store.append(batch(b"old"))
    before = shown(store)
    declared()[point].arm(failing(error, at))
    try:
        store.append(batch(b"bad"))
    except error:
        assert store.failure is None
        assert shown(store) == before
    else:
        assert (point, at) not in [(name, 1) for name in POINTS], "the point was not reached"
        return
    declared()[point].arm(None)
    # Smaller than the refused one: had that left records, they would follow this one after a restart.
    assert store.append([message(queue_id=1, body=b"new")])[0][:2] == (before[2][1], before[0])
    store = stores.reopen(store, crash=crash)
    found = shown(store)
    before[1][QUEUES.index(("Orders", 1))].append(b"new")
    assert found[1] == before[1]
    assert not any(b"bad" in items for items in found[1])


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_rollback_that_fails_is_latched(stores: Stores, store: MessageStore, error: type[BaseException]) -> None:
    store.append(batch(b"old"))
    before = shown(store)
    declared()["appender.between_queues"].arm(failing(MemoryError, 1))
    declared()["commit_log.before_erase"].arm(failing(error, 1))
    with pytest.raises(DiskFailed, match="cannot roll back"):
        store.append(batch(b"bad"))
    assert shown(store) == before
    with pytest.raises(DiskFailed):
        store.append(batch(b"new"))


class _Unwilling(FaultyFile):
    """Writes half, and then has no memory left."""

    def write(self, position: int, content: Content) -> None:
        disk = self._disk
        if disk.write_fault is not None and disk.write_fault(self.path):
            self._file.write(position, memoryview(content)[: len(content) // 2])
            raise MemoryError
        self._file.write(position, content)


def test_a_write_that_fails_halfway_is_erased(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultyFile, "write", _Unwilling.write)
    disk = stores.disk = FaultyDisk()
    store = stores.open()
    store.append([message(body=b"old")])
    end = store.wrote_offset
    calls: list[Path] = []

    def once(path: Path) -> bool:
        calls.append(path)
        return path.parent.name == "commitlog" and len(calls) == 1

    disk.write_fault = once
    with pytest.raises(MemoryError):
        store.append([message(body=b"bad") for _ in range(6)])
    disk.write_fault = None
    assert store.wrote_offset == end
    store.append([message(body=b"bad")])
    assert bodies(stores.reopen(store, crash=True)) == [b"old", b"bad"]
