"""Nothing is lost or overtaken while queues move, whatever is stopped; and the simulation sees what would be."""

import pytest

from sprocket.client.admin import static_topics
from tests.sim.moves.run import Run
from tests.tiers import seeds


@pytest.mark.parametrize("seed", seeds(40, quick=10))
def test_moves_keep_every_message_and_the_order_of_keys(seed: int) -> None:
    run = Run(seed).play()
    assert run.problems == [], run.report()
    assert run.answers["moved"] and run.faults["broker"]


def test_a_new_leader_that_begins_below_the_end_of_the_old_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_topics, "_follow", lambda offset: offset - 2)
    assert any(Run(seed).play().problems for seed in range(0, 10, 2))
