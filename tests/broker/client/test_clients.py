from typing import Any

import pytest

from broker.client.clients import ConsumerRegistry, Member, ProducerRegistry
from broker.client.rebalance_notices import RebalanceNotices
from broker.plan.version import PlanVersion
from sprocket.common import limits
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.client import ConsumerData, SubscriptionData
from tests.clock import ManualClock


class FakeChannel:
    """Remembers what it was told."""

    def __init__(self, channel_id: int) -> None:
        self.id = channel_id
        self.peer = ("10.0.0.1", 1000 + channel_id)
        self.is_closed = False
        self.notices: list[Any] = []

    def notify(self, code: int, header: Any = None, body: bytes = b"") -> None:
        self.notices.append((int(code), header.consumer_group))

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def member(channel: FakeChannel, clock: ManualClock, client_id: str = "") -> Member:
    return Member(channel, client_id or f"c{channel.id}", "JAVA", 479, clock.monotonic())  # type: ignore[arg-type]


def data(*topics: str, model: str = "CLUSTERING", version: int = 1) -> ConsumerData:
    return ConsumerData(
        "CG",
        message_model=model,
        subscription_data_set=[SubscriptionData(topic, sub_version=version) for topic in topics],
    )


def registry(clock: ManualClock, *, notifies: bool = True) -> ConsumerRegistry:
    """Return a registry whose members are told of each change at once."""
    consumers = ConsumerRegistry(clock, PlanVersion())
    notices = RebalanceNotices(lambda: notifies, lambda seconds, callback: callback())
    consumers.on_changed.append(notices.changed)
    return consumers


def test_a_join_notifies_all_members_and_a_repeated_heartbeat_nobody(clock: ManualClock) -> None:
    consumers = registry(clock)
    one, two = FakeChannel(1), FakeChannel(2)
    assert consumers.register(member(one, clock), data("T"))
    assert consumers.register(member(two, clock), data("T"))
    assert (one.notices, two.notices) == ([(40, "CG")] * 2, [(40, "CG")])
    assert not consumers.register(member(one, clock), data("T"))
    assert len(one.notices) == 2
    group = consumers.group("CG")
    assert group is not None
    assert group.client_ids() == ["c1", "c2"]


def test_a_connection_is_in_a_limited_number_of_groups(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTION_GROUPS", 1)
    consumers, producers, one, two = (
        ConsumerRegistry(clock, PlanVersion()),
        ProducerRegistry(clock),
        *map(FakeChannel, (1, 2)),
    )
    for channel in (one, two, one):
        consumers.register(member(channel, clock), data("T"))
        producers.register("PG", member(channel, clock))
    other = ConsumerData("Other")
    with pytest.raises(RequestError, match="may be in no more"):
        consumers.register(member(one, clock), other)
    with pytest.raises(RequestError, match="may be in no more"):
        producers.register("Other", member(one, clock))
    assert [group.name for group in consumers.groups] == ["CG"] and list(producers.groups) == ["PG"]
    consumers.unregister("CG", one)  # type: ignore[arg-type]
    producers.unregister("PG", one)  # type: ignore[arg-type]
    consumers.register(member(one, clock), other)
    producers.register("Other", member(one, clock))


def test_all_members_hear_when_the_topics_change(clock: ManualClock) -> None:
    consumers = registry(clock)
    one, two = FakeChannel(1), FakeChannel(2)
    for channel in (one, two):
        consumers.register(member(channel, clock), data("T"))
    assert consumers.register(member(one, clock), data("T", "U"))
    assert len(two.notices) == 2
    assert consumers.groups_subscribed_to("U") == {"CG"}
    consumers.register(member(one, clock), data("U"))
    assert consumers.find_subscription("CG", "T") is None


def test_newest_version_of_a_subscription_wins(clock: ManualClock) -> None:
    consumers = registry(clock)
    channel = FakeChannel(1)
    for version in (5, 9, 7):
        consumers.register(member(channel, clock), data("T", version=version))
    found = consumers.find_subscription("CG", "T")
    assert found is not None
    assert found.sub_version == 9


def test_heartbeat_without_subscriptions_keeps_those_known(clock: ManualClock) -> None:
    consumers = registry(clock)
    channel = FakeChannel(1)
    consumers.register(member(channel, clock), data("T"))
    consumers.register(member(channel, clock), data(), with_subscriptions=False)
    assert consumers.find_subscription("CG", "T") is not None


@pytest.mark.parametrize("how", ["unregister", "close", "expire"])
def test_a_leave_notifies_the_other_members(clock: ManualClock, how: str) -> None:
    consumers = registry(clock)
    one, two = FakeChannel(1), FakeChannel(2)
    consumers.register(member(two, clock), data("T"))
    clock.advance(100)
    consumers.register(member(one, clock), data("T"))
    heard = len(one.notices)
    if how == "unregister":
        consumers.unregister("CG", two)  # type: ignore[arg-type]
    elif how == "close":
        list(consumers.channel_closed(two))  # type: ignore[arg-type]
    else:
        clock.advance(21)
        consumers.expire(120.0)
        assert two.is_closed
    assert len(one.notices) == heard + 1
    assert not one.is_closed
    group = consumers.group("CG")
    assert group is not None
    assert group.client_ids() == ["c1"]


def test_group_goes_with_its_last_member(clock: ManualClock) -> None:
    consumers = registry(clock)
    channel = FakeChannel(1)
    consumers.register(member(channel, clock), data("T"))
    list(consumers.channel_closed(channel))  # type: ignore[arg-type]
    list(consumers.channel_closed(channel))  # type: ignore[arg-type]
    assert consumers.group("CG") is None
    assert consumers.groups_subscribed_to("T") == set()


def test_nobody_is_told_where_that_is_turned_off(clock: ManualClock) -> None:
    silent = registry(clock, notifies=False)
    channel = FakeChannel(1)
    silent.register(member(channel, clock), data("T"))
    loud = registry(clock)
    loud.register(member(channel, clock), data("T"), notify=False)
    loud.register(member(FakeChannel(2), clock), data("T", model="BROADCASTING"))
    assert channel.notices == []


def test_client_that_reconnects_counts_once(clock: ManualClock) -> None:
    consumers = registry(clock)
    old, new = FakeChannel(1), FakeChannel(2)
    consumers.register(member(old, clock, "me"), data("T"))
    clock.advance(1)
    consumers.register(member(new, clock, "me"), data("T"))
    group = consumers.group("CG")
    assert group is not None
    assert group.client_ids() == ["me"]
    found = group.find_member("me")
    assert found is not None
    assert found.channel.id == 2


def test_producers_come_and_go(clock: ManualClock) -> None:
    producers = ProducerRegistry(clock)
    one, two, three = FakeChannel(1), FakeChannel(2), FakeChannel(3)
    for channel in (one, two, three):
        producers.register("PG", member(channel, clock))
    producers.unregister("PG", one)  # type: ignore[arg-type]
    list(producers.channel_closed(two))  # type: ignore[arg-type]
    assert [found.client_id for found in producers.members("PG")] == ["c3"]
    clock.advance(121)
    producers.expire(120.0)
    assert three.is_closed
    assert producers.groups == {}


class Unscanned(dict[str, Any]):
    """A table that may be asked for a name, and not be looked through."""

    def __iter__(self) -> Any:
        raise AssertionError("looked through")

    values = items = keys = __iter__


def test_the_end_of_a_connection_looks_at_its_own_groups_alone(clock: ManualClock) -> None:
    consumers, producers = registry(clock), ProducerRegistry(clock)
    mine, other = FakeChannel(1), FakeChannel(2)
    for number in range(3):
        theirs = data("T")
        theirs.group_name = f"CG{number}"
        for channel in (mine, other) if number else (other,):
            consumers.register(member(channel, clock), theirs)
            producers.register(f"PG{number}", member(channel, clock))
    consumers._groups, producers._groups = Unscanned(consumers._groups), Unscanned(producers._groups)
    for _ in range(2):
        list(consumers.channel_closed(mine))  # type: ignore[arg-type]
        list(producers.channel_closed(mine))  # type: ignore[arg-type]
    for number in range(3):
        group = consumers.group(f"CG{number}")
        assert group is not None and group.client_ids() == ["c2"]
        assert [one.client_id for one in producers.members(f"PG{number}")] == ["c2"]
    for one in (consumers, producers):
        list(one.channel_closed(other))  # type: ignore[arg-type]
        assert len(one._groups) == len(one._names) == 0


def test_a_connection_that_left_a_group_before_it_ends(clock: ManualClock) -> None:
    consumers, producers = registry(clock), ProducerRegistry(clock)
    channel = FakeChannel(1)
    consumers.register(member(channel, clock), data("T"))
    producers.register("PG", member(channel, clock))
    consumers.unregister("CG", channel)  # type: ignore[arg-type]
    producers.unregister("PG", channel)  # type: ignore[arg-type]
    list(consumers.channel_closed(channel))  # type: ignore[arg-type]
    list(producers.channel_closed(channel))  # type: ignore[arg-type]
    assert not consumers._names and not producers._names


def test_a_connection_leaves_its_groups_in_steps_also_those_that_expire_meanwhile(clock: ManualClock) -> None:
    consumers, channel, other = registry(clock), FakeChannel(1), FakeChannel(2)
    for number in range(3):
        theirs = data("T")
        theirs.group_name = f"CG{number}"
        consumers.register(member(channel, clock), theirs)
    steps = consumers.channel_closed(channel)  # type: ignore[arg-type]
    next(steps)
    assert [group.name for group in consumers.groups] == ["CG1", "CG2"]
    clock.advance(121)
    theirs.group_name = "CG2"
    consumers.register(member(other, clock), theirs)
    consumers.expire(120.0)
    assert len(list(steps)) == 2
    assert [(group.name, group.client_ids()) for group in consumers.groups] == [("CG2", ["c2"])]
    assert consumers._names == {2: {"CG2"}}
