"""A replica's log is cut where its master's goes on differently, and power fails at any moment of that.

What is left is the log as it was, or its beginning: never a record from behind the cut, not even when others are
appended that end where it stood.
"""

import pytest

from tests.sim.crash_sweep import CrashSweep
from tests.sim.script import ScriptRun
from tests.sim.sim_store import small_config
from tests.tiers import seeds

STEPS = 60


def crash_while_cut(seed: int, steps: int, every: int, subsets: int) -> CrashSweep:
    run = ScriptRun(seed, small_config(sync_flush=bool(seed % 2)))
    run.play(steps)
    sweep = CrashSweep(run, subsets=subsets, every=every)
    run.disk.after = sweep.crash_after
    run.step("cut")
    run.disk.after = None
    assert sweep.problems + run.problems == []
    return sweep


@pytest.mark.parametrize("seed", [1, 2])
def test_power_fails_while_the_log_is_cut(seed: int) -> None:
    assert crash_while_cut(seed, steps=25, every=9, subsets=3).points > 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4))
def test_power_fails_anywhere_while_the_log_is_cut(seed: int) -> None:
    assert crash_while_cut(seed, steps=STEPS, every=1, subsets=5).points > 20


@pytest.mark.parametrize("seed", [4 + number for number in seeds(4)])
def test_a_cut_log_is_its_beginning_and_goes_on(seed: int) -> None:
    run = ScriptRun(seed, small_config(sync_flush=bool(seed % 2)))
    for _ in range(3):
        run.play(STEPS // 2)
        if len(run.model.records) > 2:
            run.step("cut")
    run.play(STEPS // 2)
    assert run.problems == []
