"""Seeds of lite topics over failover.  A failure prints the seed and the command that repeats it."""

import gc
import logging
from collections.abc import Iterator

import pytest

from tests.sim.lite.run import play_lite


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No collection in the middle of a run, and none of its many log lines."""
    gc.disable()
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    gc.enable()
    gc.collect()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 2, 3, 5))])
def test_groups_get_all_messages_of_lite_topics_in_order_over_failovers(seed: int) -> None:
    outcome = play_lite(seed)
    assert not outcome.problems, outcome.report()
    assert outcome.acked
    assert outcome.faults["kill of the master"] == 1
