"""Seeds of simulated controllers.  A failure prints the seed, the end of its trace, and the command that repeats it.

Many more: `python -m tests.sim.controllers.soak`.
"""

import gc
import logging
from collections.abc import Iterator

import pytest

from tests.sim.controllers.run import play
from tests.tiers import seeds

SEEDS = 100
_AT_ONCE = 10


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No collection in the middle of a run, and none of its many log lines."""
    gc.disable()
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    gc.enable()
    gc.collect()


@pytest.mark.parametrize("tenth", seeds(SEEDS // _AT_ONCE))
def test_what_brokers_are_told_is_linearizable(tenth: int) -> None:
    calls = 0
    for seed in range(tenth * _AT_ONCE, (tenth + 1) * _AT_ONCE):
        outcome = play(seed)
        assert not outcome.problems, outcome.report()
        calls += outcome.calls
    # A single seed may cut most of its brokers off for most of the run.
    assert calls > 100 * _AT_ONCE


@pytest.mark.parametrize("seed", [number * 97 for number in seeds(3)])
def test_a_seed_gives_one_trace(seed: int) -> None:
    assert play(seed).trace == play(seed).trace
