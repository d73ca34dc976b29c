"""Which client subscribes which lite topics, with quotas and the exclusive model."""

from collections.abc import Collection

import pytest

from broker.lite.subscriptions import ClientKey, LiteClient, LiteSubscriptions
from broker.subscription.group_attributes import LiteGroup, lite_group
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.lite import OffsetOption, OffsetOptionType
from sprocket.remoting.codes import ResponseCode
from tests.broker.lite.fake_channel import FakeChannel
from tests.clock import ManualClock


def group(**attributes: str) -> LiteGroup:
    found = lite_group({"lite.bind.topic": "P"} | {f"lite.{key.replace('_', '.')}": v for key, v in attributes.items()})
    assert found is not None
    return found


SHARED = group()
EXCLUSIVE = group(sub_model="Exclusive")


class Heard:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.resets: list[tuple[str, str, int]] = []
        self.told: list[tuple[str, str]] = []
        self.gone: list[str] = []

    def reset(self, group: str, queue: str, option: OffsetOption) -> None:
        self.resets.append((group, queue, option.value))

    def subscribed(self, client: LiteClient, queues: Collection[str]) -> None: ...

    def unsubscribed(self, client: LiteClient, queues: Collection[str]) -> None: ...

    def left(self, client: LiteClient) -> None:
        self.gone.append(client.key.client_id)

    def evicted(self, client: LiteClient, queue: str) -> None:
        self.told.append((client.key.client_id, queue))


class Rig:
    def __init__(self, most: int = 1000) -> None:
        self.clock = ManualClock()
        self.heard = Heard()
        self.subscriptions = LiteSubscriptions(lambda: most, self.clock, self.heard)
        self.channels = {number: FakeChannel(number) for number in range(4)}

    def add(self, client: str, *queues: str, how: LiteGroup = SHARED, channel: int = 0) -> None:
        self.subscriptions.add(ClientKey("G", client), how, self.channels[channel], queues, None)

    def replace(self, client: str, *queues: str, how: LiteGroup = SHARED, channel: int = 0) -> None:
        self.subscriptions.replace(ClientKey("G", client), how, self.channels[channel], queues)

    def holders(self, queue: str) -> list[str]:
        return sorted(client.key.client_id for client in self.subscriptions.members(queue, "G"))

    def run_off(self, timeout_s: float) -> None:
        list(self.subscriptions.expire(timeout_s))


def test_partial_changes_add_and_remove_and_a_complete_one_sets_all() -> None:
    rig = Rig()
    rig.add("a", "q1", "q2")
    rig.add("b", "q2")
    assert (rig.holders("q1"), rig.holders("q2"), rig.subscriptions.count) == (["a"], ["a", "b"], 3)
    rig.replace("a", "q2", "q3")
    assert (rig.holders("q1"), rig.holders("q2"), rig.holders("q3")) == ([], ["a", "b"], ["a"])
    rig.subscriptions.remove(ClientKey("G", "a"), SHARED, ["q2", "unknown"])
    assert (rig.holders("q2"), rig.subscriptions.count) == (["b"], 2)
    rig.subscriptions.leave(ClientKey("G", "a"))
    assert (rig.holders("q3"), rig.subscriptions.count, rig.heard.gone) == ([], 1, ["a"])
    rig.subscriptions.leave(ClientKey("Other", "b"))  # another group's client of the same id
    assert rig.holders("q2") == ["b"]


def test_the_same_client_id_in_two_groups_is_two_clients() -> None:
    rig = Rig()
    rig.add("a", "q1")
    rig.subscriptions.add(ClientKey("H", "a"), SHARED, rig.channels[1], ["q1"], None)
    assert [name for name, _ in rig.subscriptions.subscribers("q1")] == ["G", "H"]
    assert rig.subscriptions.count == 2


def test_the_total_is_limited_and_a_refused_change_changes_nothing() -> None:
    rig = Rig(most=3)
    rig.add("a", "q1", "q2", "q3")
    rig.add("a", "q1", "q2", "q3")
    for change in (rig.add, rig.replace):
        with pytest.raises(RequestError) as refused:
            change("b", "q1")
        assert refused.value.code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert (rig.holders("q1"), rig.subscriptions.count) == (["a"], 3)
    assert rig.subscriptions.find("G", "b") is None
    rig.replace("a", "q1", "q4", "q5")
    assert rig.subscriptions.count == 3


def test_a_group_limits_each_client_and_leaves_it_300_more() -> None:
    rig, small = Rig(), group(sub_client_quota="10")
    rig.add("a", *(f"q{number}" for number in range(310)), how=small)
    with pytest.raises(RequestError, match="quota exceeded: 10"):
        rig.add("a", "one more", how=small)
    rig.add("b", *(f"q{number}" for number in range(310)), how=small)
    assert rig.subscriptions.count == 620
    assert group(sub_client_quota="-1").client_quota is None


def test_an_exclusive_lite_topic_moves_and_a_stale_set_does_not_take_it_back() -> None:
    rig = Rig()
    rig.add("a", "q1", "q2", how=EXCLUSIVE)
    rig.add("b", "q1", how=EXCLUSIVE)
    assert (rig.holders("q1"), rig.heard.told) == (["b"], [("a", "q1")])
    rig.replace("a", "q1", "q2", how=EXCLUSIVE)  # it has not heard yet
    assert (rig.holders("q1"), rig.holders("q2"), rig.heard.told) == (["b"], ["a"], [("a", "q1")] * 2)
    rig.subscriptions.leave(ClientKey("G", "b"))
    rig.replace("a", "q1", "q2", how=EXCLUSIVE)  # not without a new subscription
    assert rig.holders("q1") == []
    rig.replace("a", "q2", how=EXCLUSIVE)
    rig.replace("a", "q1", "q2", how=EXCLUSIVE)
    assert rig.holders("q1") == ["a"]


def test_an_evicted_client_takes_a_lite_topic_back_by_subscribing_it_again() -> None:
    rig = Rig()
    rig.add("a", "q1", how=EXCLUSIVE)
    rig.add("b", "q1", how=EXCLUSIVE)
    rig.add("a", "q1", how=EXCLUSIVE)
    rig.replace("a", "q1", how=EXCLUSIVE)
    assert (rig.holders("q1"), rig.heard.told) == (["a"], [("a", "q1"), ("b", "q1")])


def test_eviction_and_unsubscription_reset_the_group_where_the_group_says_so() -> None:
    rig = Rig()
    how = group(sub_model="Exclusive", sub_reset_offset_exclusive="true", sub_reset_offset_unsubscribe="true")
    rig.add("a", "q1", how=how)
    assert rig.heard.resets == []
    rig.add("b", "q1", how=how)
    assert rig.heard.resets == [("G", "q1", 1)]
    rig.subscriptions.remove(ClientKey("G", "b"), how, ["q1"])
    assert rig.heard.resets == [("G", "q1", 1)] * 2
    option = OffsetOption(OffsetOptionType.OFFSET, 7)
    rig.subscriptions.add(ClientKey("G", "b"), SHARED, rig.channels[0], ["q1"], option)
    assert rig.heard.resets[-1] == ("G", "q1", 7)


def test_clients_leave_with_their_connection_unless_they_have_another_one_by_then() -> None:
    rig = Rig()
    for number in range(100):
        rig.add(f"c{number}", "q1", channel=1)
    steps = rig.subscriptions.channel_closed(1)
    next(steps)  # a connection may have many clients: not all at once
    assert 0 < len(rig.subscriptions) < 100
    rig.add("c99", "q1", channel=2)
    list(steps)
    assert rig.holders("q1") == ["c99"]
    list(rig.subscriptions.channel_closed(2))
    assert (len(rig.subscriptions), rig.subscriptions.count) == (0, 0)


def test_clients_that_are_not_heard_expire() -> None:
    rig = Rig()
    rig.add("a", "q1")
    rig.add("b", "q1")
    rig.clock.advance(100)
    rig.replace("a", "q1")  # the same set counts as a sign of life
    rig.clock.advance(100)
    rig.run_off(150)
    assert rig.holders("q1") == ["a"]


def test_a_wildcard_client_has_one_subscription_and_a_changed_group_begins_anew() -> None:
    rig, wild = Rig(), group(sub_wildcard="true")
    rig.replace("a", how=wild)
    rig.replace("a", "ignored", how=wild)
    assert (rig.subscriptions.count, len(rig.subscriptions.wildcard_members("P", "G"))) == (1, 1)
    with pytest.raises(RequestError):
        rig.add("a", "q1", how=wild)
    rig.replace("a", "q1", how=SHARED)
    assert (rig.subscriptions.count, list(rig.subscriptions.wildcards("P")), rig.holders("q1")) == (1, [], ["a"])
