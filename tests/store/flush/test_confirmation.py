"""What a sync counts for when the batch that is being written meanwhile fails, or goes on."""

from pathlib import Path

import pytest

from sprocket.common.errors import DiskFull, StoreError
from store.flush.confirmation import NO_LIMIT, Arrival
from tests.clock import ManualClock
from tests.sim.sim_disk import Fault, SimDisk
from tests.sim.sim_image import Subset, Survivors
from tests.sim.sim_store import FLUSH, FLUSH_QUEUES, INDEX, SimStore, small_config
from tests.store.reading import bodies
from tests.store.rig import message


def opened(*, sync_flush: bool) -> SimStore:
    sim = SimStore(SimDisk(), small_config(sync_flush=sync_flush), ManualClock())
    sim.open()
    return sim


def is_second_queue(path: Path) -> bool:
    return path.parent.name == "1"


class AtWrite:
    """At the first write to the second queue: lets threads take turns, then fails the write if told to."""

    def __init__(self, sim: SimStore, *names: str, fault: Fault | None) -> None:
        self._sim = sim
        self._names = names
        self._fault = fault
        sim.disk.fault = self

    def __call__(self, kind: str, path: Path) -> Fault | None:
        if kind != "write" or not is_second_queue(path):
            return None
        self._sim.disk.fault = None
        for name in self._names:
            # Without the owner's turn: it is here, in the write.
            self._sim.workers[name].step()
        return self._fault


@pytest.mark.parametrize("sync_flush", [False, True])
def test_a_sync_during_a_batch_that_is_undone_does_not_cover_the_next(sync_flush: bool) -> None:
    sim = opened(sync_flush=sync_flush)
    store = sim.store
    store.append([message(queue_id=k, body=b"kept") for k in (0, 1)])
    sim.flush()
    sim.clock.advance(store.config.flush_commit_log_thorough_interval / 1000)
    store.append([message(body=b"kept")])
    AtWrite(sim, FLUSH, fault=Fault(DiskFull))
    with pytest.raises(DiskFull):
        store.append([message(queue_id=k, body=b"x" * 500) for k in (0, 1)])
    sim.run_notified()
    assert store.flushed_offset <= store.wrote_offset
    answers: list[StoreError | None] = []
    _, offset, size = store.append([message(body=b"next")])[0]
    assert store.flushed_offset < offset + size
    store.when_confirmed(offset + size, answers.append)
    assert answers == ([] if sync_flush else [None])
    sim.flush()
    assert answers == [None]
    assert store.flushed_offset == store.wrote_offset


def test_the_index_does_not_read_a_batch_that_is_being_written() -> None:
    sim = opened(sync_flush=False)
    store = sim.store
    keyed = b"KEYS\x01lost\x02"
    AtWrite(sim, INDEX, fault=Fault(DiskFull))
    with pytest.raises(DiskFull):
        store.append([message(queue_id=k, properties=keyed) for k in (0, 1)])
    sim.run_notified()
    assert store.index.reached_offset <= store.wrote_offset
    assert store.index.search("Orders", "lost", 32, 0, 1 << 62).offsets == []


@pytest.mark.parametrize("fault", [None, Fault(DiskFull)])
def test_a_list_of_queues_written_during_a_batch_holds_after_a_loss_of_power(fault: Fault | None) -> None:
    sim = opened(sync_flush=False)
    store = sim.store
    store.append([message(queue_id=k, body=b"kept") for k in (0, 1)])
    sim.flush()
    sim.clock.advance(store.config.flush_consume_queue_thorough_interval / 1000)
    AtWrite(sim, FLUSH_QUEUES, fault=fault)
    if fault is None:
        store.append([message(queue_id=k, body=b"more") for k in (0, 1)])
    else:
        with pytest.raises(DiskFull):
            store.append([message(queue_id=k, body=b"more") for k in (0, 1)])
    sim.run_notified()
    # What comes at the place of the batch is flushed as well, and not taken for it.
    store.append([message(body=b"other")])
    expected = bodies(store)
    sim.flush()
    sim.flush_queues()
    left = SimStore(sim.disk.crash(Subset(Survivors.NONE)), store.config, ManualClock())
    found = left.open()
    assert found.recovery is not None
    assert not found.recovery.rebuilt
    assert bodies(found) == expected == ([b"kept", b"more", b"other"] if fault is None else [b"kept", b"other"])


def test_the_checkpoints_time_is_of_a_record_that_is_flushed() -> None:
    sim = opened(sync_flush=True)
    store = sim.store
    store.append([message(body=b"first")])
    first_ms = sim.clock.wall_ms()
    sim.workers[FLUSH].step()
    # The sync is over, its owner has not heard of it; the thread looks again.
    sim.clock.advance(5.0)
    store.append([message(body=b"second")])
    reported, sim._notified[:] = sim._notified[:], []
    sim.workers[FLUSH].step()
    for report in reported:
        report()
    checkpoint = store.confirmation.snapshot()
    assert checkpoint.physic_msg_timestamp <= first_ms
    sim.run_notified()
    assert store.confirmation.snapshot().physic_msg_timestamp == sim.clock.wall_ms()


def test_senders_are_answered_once_their_messages_are_visible_and_before_listeners_work() -> None:
    sim = opened(sync_flush=True)
    store = sim.store
    events: list[tuple[str, int]] = []
    store.on_arrival.append(lambda arrivals: events.extend(("told", end) for _, _, end in arrivals))
    for _ in range(2):
        _, offset, size = store.append([message()])[0]
        store.confirmation.when_stored(
            offset + size, lambda error, is_replicated: events.append(("answered", store.max_offset("Orders", 0)))
        )
    assert events == []
    sim.flush()
    assert events == [("answered", 2), ("answered", 2), ("told", 1), ("told", 2)]


def test_what_a_listener_appends_is_told_after_all_before_it() -> None:
    store = opened(sync_flush=False).store
    told: tuple[list[int], list[int]] = [], []

    def append_once(arrivals: list[Arrival]) -> None:
        if not told[0]:
            told[0].append(arrivals[0][2])
            store.append([message()])
        else:
            told[0].append(arrivals[0][2])

    store.on_arrival.append(append_once)
    store.confirmation.replicated(0, 0, is_enough=True)
    store.append([message()])
    store.append([message()])
    store.on_arrival.append(lambda arrivals: told[1].append(arrivals[0][2]))
    assert told == ([], [])
    store.confirmation.replicated(NO_LIMIT, NO_LIMIT, is_enough=False)
    assert told == ([1, 2, 3], [1, 2, 3])
