"""A script of 200 operations, crashed after operations on the disk in five ways each: what is left opens and agrees.

The suite crashes after some of them; `python -m tests.sim.soak` after all, for as many seeds as it is told.
"""

import pytest

from tests.sim.crash_sweep import CrashSweep
from tests.sim.script import ScriptRun
from tests.sim.sim_store import small_config
from tests.tiers import sample

STEPS = 200
SUBSETS = 5
# Interval, in operations, of the crashes within the steps; there are about two thousand operations.
EVERY = 97
# A sweep is divided among tests, so that none takes long; the suite leaves out three of the eight.
PARTS = 4


@pytest.mark.parametrize("sync_flush", [False, True])
def test_the_same_seed_gives_the_same_run(sync_flush: bool) -> None:
    first, second, other = (ScriptRun(seed, small_config(sync_flush=sync_flush)) for seed in (1, 1, 2))
    for run in (first, second, other):
        run.play(80)
    assert first.trace == second.trace != other.trace
    assert first.disk.files() == second.disk.files()


@pytest.mark.parametrize(
    ("seed", "sync_flush", "part"),
    sample([(0, False, 0), (0, False, 2), (1, True, 1), (1, True, 2), (1, True, 3)]),
)
def test_every_crash_leaves_a_prefix_and_queues_that_agree(seed: int, sync_flush: bool, part: int) -> None:
    run = ScriptRun(seed, small_config(sync_flush=sync_flush))
    sweep = CrashSweep(run, subsets=SUBSETS, every=EVERY, part=part, parts=PARTS)
    sweep.play(STEPS)
    assert sweep.problems == []
    assert run.steps == STEPS
    assert sweep.points >= STEPS // PARTS - 10
    assert sweep.states == sweep.points * SUBSETS
