"""A broker dies once at every failpoint that is declared, and nothing that it acknowledged is lost.

All deaths befall one store, so each also finds what the ones before it left.
"""

import random
from collections.abc import Iterator

import pytest

from tests.chaos.kills.failpoint_rounds import WAYS, FailpointRounds, Scene, points, way_to
from tests.chaos.load import CLEANING, PROPERTIES, Load
from tests.chaos.nursery import ChaosBroker, Nursery

POINTS = points()


@pytest.fixture(scope="module")
def broker(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosBroker]:
    with ChaosBroker(nursery, tmp_path_factory.mktemp("failpoints"), PROPERTIES) as broker:
        yield broker


@pytest.fixture(scope="module")
def load() -> Load:
    return Load()


@pytest.fixture(scope="module")
def rounds(broker: ChaosBroker, load: Load) -> FailpointRounds:
    return FailpointRounds(broker, load, random.Random(7))


@pytest.fixture(scope="module")
def cleaned_rounds(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailpointRounds]:
    with ChaosBroker(nursery, tmp_path_factory.mktemp("cleaned"), CLEANING) as broker:
        yield FailpointRounds(broker, Load(is_cleaned=True), random.Random(7))


def test_there_are_enough_and_all_ways_lead_to_some() -> None:
    assert len(POINTS) >= 30
    assert [prefix for prefix in WAYS if not any(point.startswith(prefix) for point in POINTS)] == []


@pytest.mark.parametrize("point", [point for point in POINTS if way_to(point).scene is not Scene.FOLLOWING])
async def test_kill_at(point: str, rounds: FailpointRounds, cleaned_rounds: FailpointRounds) -> None:
    """Also says that the point is reached: NotReached fails the test."""
    chosen = cleaned_rounds if way_to(point).scene is Scene.CLEANING else rounds
    try:
        assert await chosen.die_at(point) == []
    finally:
        chosen.end()


async def test_nothing_is_missing_after_all_of_them(broker: ChaosBroker, load: Load) -> None:
    broker.start()
    assert await load.problems(broker.address, whole=True) == []
    assert await load.await_delayed(broker.address) == []
    # Popped messages are redelivered until they are acknowledged, so every message is at last.
    assert await load.pops.undone(broker.address, 60.0) == set()
    assert broker.stop() == 0
