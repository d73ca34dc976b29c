"""Seeds of replication.  A failure prints the seed and the command that repeats it."""

import logging
from collections.abc import Iterator

import pytest

from tests.sim.replicate.run import SHAPES, play


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_message_is_in_each_cluster_once_and_in_order(shape: str) -> None:
    outcomes = [play(seed, shape) for seed in (5, 6, 7, 8, 113)]
    for outcome in outcomes:
        assert not outcome.problems, outcome.report()
    assert sum(outcome.faults.get("twin", 0) for outcome in outcomes)
    assert sum(outcome.faults.get("answer lost", 0) for outcome in outcomes)
    assert shape == "lossy" or sum(outcome.moves for outcome in outcomes) > 100
