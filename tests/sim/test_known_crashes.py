"""Crashes that were found by the sweep, each on its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sprocket.common.clock import ManualClock
from store.layout import file_name
from tests.sim.sim_disk import Operation, SimDisk
from tests.sim.sim_image import Subset, Survivors
from tests.sim.sim_store import ALLOCATE, LOG_ROOT, SEGMENT_BYTES, SimStore, small_config
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


def lose_power_after(disk: SimDisk, kind: str, holds: Callable[[Path], bool] = lambda path: True) -> None:
    def after(operation: Operation) -> None:
        if operation.kind == kind and holds(operation.path):
            raise PowerLost

    disk.after = after


def test_the_first_message_of_a_new_directory_survives() -> None:
    sim = opened(SimDisk())
    append(sim, b"first")
    sim.flush()
    assert bodies(opened(sim.disk.crash(NOTHING)).store) == [b"first"]


@pytest.mark.xfail(
    strict=True, reason="a store with two half-created segments is refused: the first is not the last file"
)
def test_segments_that_were_never_synced_are_empty_files() -> None:
    sim = opened(SimDisk())
    append(sim, b"first")
    sim.flush()
    append(sim, b"x" * 20_000)
    # Two more segments, neither of them synced; their names arrive, their lengths do not.
    sim.step(ALLOCATE)
    append(sim, b"y" * 20_000)
    append(sim, b"z" * 20_000)
    disk = sim.disk
    for number in (1, 2):
        path = LOG_ROOT / file_name(number * SEGMENT_BYTES)
        assert disk.size(path) == SEGMENT_BYTES
    left = disk.crash(Subset(Survivors.OLDEST))
    for number in (1, 2):
        left.damage(LOG_ROOT / file_name(number * SEGMENT_BYTES), lambda content: b"")
    assert bodies(opened(left).store)[0] == b"first"


@pytest.mark.xfail(strict=True, reason="recovery syncs the segments that a killed broker made, and not their names")
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


@pytest.mark.xfail(strict=True, reason="a segment that a crash in the middle of a cut left short is refused")
def test_a_crash_in_the_middle_of_the_cut_of_a_recovery() -> None:
    disk = SimDisk()
    sim = opened(disk)
    append(sim, b"first")
    disk.kill()
    lose_power_after(disk, "resize", lambda path: path.parent == LOG_ROOT)
    with pytest.raises(PowerLost):
        opened(disk)
    assert bodies(opened(disk.crash(EVERYTHING)).store) == [b"first"]


@pytest.mark.xfail(strict=True, reason="a walk that begins before a deletion brings the topic back")
def test_a_deleted_topic_stays_deleted() -> None:
    disk = SimDisk()
    sim = opened(disk)
    append(sim, b"1")
    append(sim, b"2", topic="Gone")
    sim.store.delete_topic("Gone")
    left = opened(disk.crash(NOTHING)).store
    assert (bodies(left), bodies(left, "Gone")) == ([b"1"], [])
