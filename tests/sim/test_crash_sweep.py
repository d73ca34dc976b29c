"""A script of 200 operations, crashed after operations on the disk in five ways each: what is left opens and agrees.

The suite crashes after some of them; `python -m tests.sim.soak` after all, for as many seeds as it is told.
"""

import pytest

from tests.sim.crash_sweep import CrashSweep
from tests.sim.script import ScriptRun
from tests.sim.sim_store import small_config

STEPS = 200
SUBSETS = 5
# Every so many operations of a script's two thousand; the offset differs by seed, so the four do not meet.
EVERY = 13


@pytest.mark.parametrize("sync_flush", [False, True])
def test_the_same_seed_gives_the_same_run(sync_flush: bool) -> None:
    first, second, other = (ScriptRun(seed, small_config(sync_flush=sync_flush)) for seed in (1, 1, 2))
    for run in (first, second, other):
        run.play(80)
    assert first.trace == second.trace != other.trace
    assert first.disk.files() == second.disk.files()


@pytest.mark.xfail(
    strict=True, reason="recovery is not total: half-created segments, lost names, queues behind the log"
)
@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_crash_leaves_a_prefix_and_queues_that_agree(seed: int, sync_flush: bool) -> None:
    sweep = CrashSweep(ScriptRun(seed, small_config(sync_flush=sync_flush)), subsets=SUBSETS, every=EVERY + seed)
    sweep.play(STEPS)
    assert sweep.problems == []
    assert sweep.run.steps == STEPS
    assert sweep.states >= 500
