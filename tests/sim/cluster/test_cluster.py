"""Seeds of the simulated cluster.  A failure prints the seed, the end of its trace, and the command that repeats it."""

import gc
from collections.abc import Iterator

import pytest

from tests.sim.cluster.cluster import play

SEEDS = 500
_AT_ONCE = 10


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """No collection in the middle of a run: it would look at everything that a run holds, hundreds of times."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.parametrize("first", range(0, SEEDS, _AT_ONCE))
def test_nothing_promised_is_lost_and_all_catches_up(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        outcome = play(seed)
        assert not outcome.problems, outcome.report()


@pytest.mark.parametrize("seed", range(0, SEEDS, 71))
def test_a_seed_gives_one_trace(seed: int) -> None:
    assert play(seed).trace == play(seed).trace
