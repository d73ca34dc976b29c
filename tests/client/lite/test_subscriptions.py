"""What brokers are told of the set of lite topics, without brokers."""

import pytest

from sprocket import BrokerRefused, ClientError
from sprocket.client.errors import ConnectFailed
from sprocket.client.lite.subscriptions import SYNC_S, LiteSubscriptions
from sprocket.client.pop.pop_requests import Target
from sprocket.remoting.bodies.lite import LiteSubscriptionDTO, OffsetOption, OffsetOptionType
from tests.clock import ManualClock

A, B = Target("T", "a"), Target("T", "b")


class Places:
    """Two brokers that note what they are told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.told: list[tuple[str, str, tuple[str, ...]]] = []
        self.changes: list[LiteSubscriptionDTO] = []
        self.ways: dict[Target, object] = {A: object(), B: object()}
        self.failing: dict[Target, ClientError] = {}
        self.lite = LiteSubscriptions("g", "T", lambda: "me", self.send, self.ways.get, self.all, self.clock)

    async def all(self) -> list[Target]:
        return [A, B]

    async def send(self, place: Target, change: LiteSubscriptionDTO) -> None:
        if place in self.failing:
            raise self.failing[place]
        self.told.append((place.broker_name, change.action, tuple(change.lite_topic_set or ())))
        self.changes.append(change)

    def heard(self) -> list[tuple[str, str, tuple[str, ...]]]:
        told, self.told = self.told, []
        return told


async def test_a_change_goes_to_every_place_and_is_not_repeated() -> None:
    places = Places()
    for place in (A, B):
        await places.lite.sync(place)
    assert places.heard() == [("a", "COMPLETE_ADD", ()), ("b", "COMPLETE_ADD", ())]
    option = OffsetOption(OffsetOptionType.OFFSET, 7)
    await places.lite.add(["x", "y", "x"], option)
    assert sorted(places.heard()) == [("a", "PARTIAL_ADD", ("x", "y")), ("b", "PARTIAL_ADD", ("x", "y"))]
    assert places.changes[-1].offset_option == option
    await places.lite.remove(["y", "unknown"])
    assert sorted(places.heard()) == [("a", "PARTIAL_REMOVE", ("y",)), ("b", "PARTIAL_REMOVE", ("y",))]
    for place in (A, B):
        await places.lite.sync(place)
    assert places.heard() == [] and places.lite.names == ("x",)
    versions = [change.version for change in places.changes]
    assert versions == sorted(versions)


async def test_the_whole_set_is_told_again_after_a_reconnection_or_a_long_time() -> None:
    places = Places()
    await places.lite.add(["x"], None)
    await places.lite.sync(A)
    places.heard()
    places.ways[A] = object()
    await places.lite.sync(A)
    assert places.heard() == [("a", "COMPLETE_ADD", ("x",))]
    places.clock.advance(SYNC_S + 1)
    await places.lite.sync(A)
    await places.lite.sync(A)
    assert places.heard() == [("a", "COMPLETE_ADD", ("x",))]
    places.lite.forget(A)
    await places.lite.sync(A)
    assert places.heard() == [("a", "COMPLETE_ADD", ("x",))]


async def test_a_place_that_could_not_be_reached_learns_the_set_later() -> None:
    places = Places()
    for place in (A, B):
        await places.lite.sync(place)
    places.failing[B] = ConnectFailed("b is away")
    places.heard()
    await places.lite.add(["x"], None)
    assert places.heard() == [("a", "PARTIAL_ADD", ("x",))]
    del places.failing[B]
    for place in (A, B):
        await places.lite.sync(place)
    assert places.heard() == [("b", "COMPLETE_ADD", ("x",))]


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_failed_addition_leaves_the_set_as_it_was(is_refused: bool) -> None:
    places = Places()
    await places.lite.add(["kept"], None)
    error: ClientError = BrokerRefused(2018, "too many", "b") if is_refused else ConnectFailed("away")
    places.failing = {B: error} if is_refused else {A: error, B: error}
    with pytest.raises(type(error)):
        await places.lite.add(["kept", "new"], None)
    assert places.lite.names == ("kept",)
    places.failing = {}
    places.heard()
    await places.lite.sync(A)  # it may have taken the new one
    assert places.heard() == [("a", "COMPLETE_ADD", ("kept",))]


async def test_a_lost_lite_topic_is_not_told_again_and_leaving_is_told_to_those_who_know() -> None:
    places = Places()
    await places.lite.sync(A)
    await places.lite.add(["x", "y"], None)
    assert places.lite.lost("x") and not places.lite.lost("x")
    places.heard()
    await places.lite.sync(A)
    assert places.heard() == [("a", "COMPLETE_ADD", ("y",))]
    await places.lite.leave()
    assert places.heard() == [("a", "COMPLETE_REMOVE", ())]
