"""Crashes that were found by the sweep, each on its own."""

import contextlib

import pytest

from store.layout import file_name
from tests.clock import ManualClock
from tests.sim.sim_disk import Operation, SimDisk
from tests.sim.sim_image import Subset, Survivors
from tests.sim.sim_store import LOG_ROOT, SEGMENT_BYTES, SimStore, small_config
from tests.store.reading import bodies
from tests.store.rig import message

NOTHING = Subset(Survivors.NONE)
EVERYTHING = Subset(Survivors.ALL)


class PowerLost(BaseException):
    pass


def opened(disk: SimDisk) -> SimStore:
    sim = SimStore(disk, small_config(sync_flush=True), ManualClock())
    sim.open()
    return sim


def append(sim: SimStore, *contents: bytes, topic: str = "Orders") -> None:
    sim.store.append([message(topic, body=content) for content in contents])


def lose_power_at(disk: SimDisk, number: int) -> None:
    """Raise `PowerLost` after the operation of this number."""

    def after(operation: Operation) -> None:
        if operation.number == number:
            raise PowerLost

    disk.after = after


def test_the_first_message_of_a_new_directory_survives() -> None:
    sim = opened(SimDisk())
    append(sim, b"first")
    sim.flush()
    assert bodies(opened(sim.disk.crash(NOTHING)).store) == [b"first"]


def test_segments_that_were_never_synced_may_be_empty_files() -> None:
    sim = opened(SimDisk())
    append(sim, b"first")
    sim.flush()
    for content in (b"x", b"y", b"z"):
        append(sim, content * 20_000)
    # Two more segments, neither of them synced: their names arrived, their lengths did not.
    left = sim.disk.crash(EVERYTHING)
    for number in (1, 2):
        left.damage(LOG_ROOT / file_name(number * SEGMENT_BYTES), lambda content: b"")
    assert bodies(opened(left).store)[0] == b"first"


def test_segments_of_a_killed_broker_survive_when_the_next_one_says_flushed() -> None:
    disk = SimDisk(syncs_names=False)
    sim = opened(disk)
    append(sim, b"first")
    disk.kill()
    sim = opened(disk)
    assert sim.store.flushed_offset == sim.store.wrote_offset > 0
    assert bodies(opened(disk.crash(NOTHING)).store) == [b"first"]


def test_queue_entries_of_a_killed_broker_survive_the_next_checkpoint() -> None:
    disk = SimDisk()
    sim = opened(disk)
    append(sim, b"1", b"2", b"3")
    append(sim, b"1", topic="Pays")
    sim.flush()
    sim.flush_queues()
    append(sim, b"4")
    append(sim, b"2", topic="Pays")
    disk.kill()
    sim = opened(disk)
    append(sim, b"3", topic="Pays")
    sim.flush()
    sim.flush_queues()
    left = opened(disk.crash(NOTHING)).store
    assert (bodies(left), bodies(left, "Pays")) == ([b"1", b"2", b"3", b"4"], [b"1", b"2", b"3"])


@pytest.mark.parametrize("survivors", list(Survivors))
def test_power_lost_again_at_any_point_of_a_recovery_that_cuts(survivors: Survivors) -> None:
    disk = SimDisk()
    sim = opened(disk)
    append(sim, b"first")
    sim.flush()
    end = sim.store.wrote_offset
    append(sim, b"second", b"third")
    disk = disk.crash(EVERYTHING)
    disk.damage(LOG_ROOT / file_name(0), lambda content: content[: end + 50] + b"?" + content[end + 51 :])
    first, point = disk.operations, 0
    while True:
        point += 1
        trial = disk.crash(EVERYTHING)
        lose_power_at(trial, first + point)
        with contextlib.suppress(PowerLost):
            opened(trial)
            break
        sim = opened(trial.crash(Subset(survivors, point)))
        assert bodies(sim.store) == [b"first"]
        # The bytes after the cut do not follow a record that ends where they began.
        append(sim, b"second")
        sim.disk.kill()
        assert bodies(opened(sim.disk).store) == [b"first", b"second"]
    assert point > 10


@pytest.mark.parametrize("again", [False, True])
def test_a_deleted_topic_stays_deleted(again: bool) -> None:
    disk = SimDisk()
    sim = opened(disk)
    append(sim, b"1")
    append(sim, b"2", b"3", topic="Gone")
    sim.flush()
    sim.store.delete_topic("Gone")
    left = [b"4"] if again else []
    if again:
        append(sim, b"4", topic="Gone")
        sim.flush()
    store = opened(disk.crash(NOTHING)).store
    assert (bodies(store), bodies(store, "Gone")) == ([b"1"], left)
