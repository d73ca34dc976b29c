"""Seeds of simulated failover.  A failure prints the seed, the end of its trace, and the command that repeats it."""

import gc
import logging
from collections.abc import Iterator

import pytest

from tests.sim.failover.run import MODES, play
from tests.tiers import seeds

SEEDS = 12
_AT_ONCE = 4
# Seeds that found a lease without end, and a sync-state set that was shrunk without a majority: see `tests.mutants`.
_FOUND_BUGS = ((0, "one"), (12, "all"))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No collection in the middle of a run, and none of its many log lines."""
    gc.disable()
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    gc.enable()
    gc.collect()


@pytest.mark.parametrize("part", seeds(SEEDS // _AT_ONCE))
def test_nothing_acknowledged_is_lost_and_one_master_acknowledges(part: int) -> None:
    acked = 0
    for seed in range(part * _AT_ONCE, (part + 1) * _AT_ONCE):
        outcome = play(seed)
        assert not outcome.problems, outcome.report()
        # Faults may leave a single seed few messages; a seed with none would check nothing.
        assert outcome.acked
        acked += outcome.acked
    assert acked > 20 * _AT_ONCE


@pytest.mark.parametrize(("seed", "mode"), _FOUND_BUGS)
def test_seeds_that_found_planted_bugs(seed: int, mode: str) -> None:
    outcome = play(seed, next(one for one in MODES if one.name == mode))
    assert not outcome.problems, outcome.report()


@pytest.mark.parametrize("seed", [number * 5 for number in seeds(2)])
def test_a_seed_gives_one_trace(seed: int) -> None:
    assert play(seed).trace == play(seed).trace
