"""Errors of the disk at every call of a start: a refusal by name, or a store that runs; the next start has all."""

import pytest

from sprocket.common.errors import DiskFull, StoreError
from tests.clock import ManualClock
from tests.sim.crash_sweep import CrashedState
from tests.sim.script import ScriptRun
from tests.sim.sim_disk import Fault, SimDisk
from tests.sim.sim_image import Subset, Survivors
from tests.sim.sim_store import STORE_ROOT, SimStore, small_config
from tests.sim.test_sync_faults import OneFault

KINDS = {"write", "create", "write_small", "rename", "remove", "sync", "sync_directory"}
STEPS = ("append", "append", "flush", "append", "delete_topic", "append", "flush_queues", "append", "append")


def crashed(seed: int) -> ScriptRun:
    run = ScriptRun(seed, small_config(sync_flush=False))
    for kind in STEPS:
        run.step(kind)
    return run


def start(run: ScriptRun, disk: SimDisk) -> StoreError | None:
    sim = SimStore(disk, run.config, ManualClock(run.clock.wall_ms() + 1000))
    try:
        sim.open()
    except StoreError as error:
        return error
    return None


@pytest.mark.parametrize("fault", [Fault(DiskFull, 0.5), Fault()], ids=["full", "error"])
def test_a_start_that_meets_an_error_says_where_and_the_next_one_has_all(fault: Fault) -> None:
    run = crashed(7)
    refused = number = 0
    while True:
        number += 1
        survivors = (Survivors.ALL, Survivors.RANDOM)[number % 2]
        disk = run.disk.crash(Subset(survivors, 3))
        one = OneFault(disk, KINDS, number, fault)
        error = start(run, disk)
        if one.at is None:
            break
        if error is not None:
            refused += 1
            assert str(STORE_ROOT) in str(error), (number, one.at)
        disk.fault = None
        left = disk.crash(Subset(survivors, number))
        _, problems = CrashedState(run.config, run.clock.wall_ms() + 2000, run.model).check(left)
        assert problems == [], (number, one.at)
    assert number > 10
    assert refused > 5
