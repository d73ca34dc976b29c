"""Seeds of the simulated cluster.  A failure prints the seed, the end of its trace, and the command that repeats it.

Many more: `python -m tests.sim.cluster.soak`.
"""

import gc
from collections.abc import Iterator

import pytest

from tests.sim.cluster.cluster import play
from tests.tiers import seeds

SEEDS = 160
_AT_ONCE = 10


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """No collection in the middle of a run: it would look at everything that a run holds, hundreds of times."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.parametrize("tenth", seeds(SEEDS // _AT_ONCE))
def test_nothing_promised_is_lost_and_all_catches_up(tenth: int) -> None:
    for seed in range(tenth * _AT_ONCE, (tenth + 1) * _AT_ONCE):
        outcome = play(seed)
        assert not outcome.problems, outcome.report()


@pytest.mark.parametrize("seed", [number * 71 for number in seeds(3)])
def test_a_seed_gives_one_trace(seed: int) -> None:
    assert play(seed).trace == play(seed).trace
