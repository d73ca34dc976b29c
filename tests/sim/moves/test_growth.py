"""A topic that grows keeps every message and the order of keys, whatever is stopped; and the simulation sees faults."""

import pytest

from broker.topic import moved_queues
from sprocket.client.admin.topic_growth import TopicGrowth
from tests.sim.moves.growth import GrowthRun
from tests.tiers import seeds


@pytest.mark.parametrize("seed", seeds(40, quick=10))
def test_growth_keeps_every_message_and_the_order_of_keys(seed: int) -> None:
    run = GrowthRun(seed).play()
    assert run.problems == [], run.report()
    assert run.answers["refused"] and run.faults["broker"]


@pytest.mark.parametrize("step", ["_until_read", "_pause"])
def test_a_growth_that_does_not_wait_is_found(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    async def skip(*_: object) -> None: ...

    monkeypatch.setattr(GrowthRun if step == "_pause" else TopicGrowth, step, skip)
    assert any(GrowthRun(seed).play().problems for seed in range(20))


def test_messages_that_waited_in_a_queue_of_the_old_number_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_queues, "has_grown", lambda *_: False)
    assert any(GrowthRun(seed).play().problems for seed in range(20))


def test_topics_grow_in_the_simulation() -> None:
    assert sum(GrowthRun(seed).play().answers["grown"] for seed in range(4)) >= 4
