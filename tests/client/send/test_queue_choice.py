"""Which queue is next: round robin, past brokers to avoid, and the same one for the same key."""

import pytest

from sprocket.client.connection.topic_route import TopicRoute, default_topic_route, subscribe_address, topic_route
from sprocket.client.send.fault_tolerance import FaultTolerance, not_available_ms
from sprocket.client.send.queue_choice import RoundRobin, by_sharding_key
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.client.java_vectors import HASHES

ROUTE = TopicRoute("T", tuple(MessageQueue("T", name, index) for name in ("a", "b") for index in range(2)), ())


def test_queues_take_turns_and_so_do_brokers() -> None:
    choice = RoundRobin()
    a0, a1, b0, b1 = ROUTE.publish
    assert [choice.choose(ROUTE) for _ in range(5)] == [a0, b0, a1, b1, a0]
    uneven = TopicRoute("T", (a0, a1, b0), ())
    assert uneven.rotation == (a0, b0, a1)


def test_producers_that_start_together_begin_at_different_queues() -> None:
    begun = [RoundRobin(lambda first=first: first).choose(ROUTE) for first in range(6)]  # type: ignore[misc]
    assert begun == [*ROUTE.rotation, *ROUTE.rotation[:2]]


def test_topics_that_are_created_by_their_first_message_spread_over_brokers() -> None:
    numbers = iter(range(4))
    choice = RoundRobin(lambda: next(numbers))
    names = [choice.choose(TopicRoute(f"New{n}", ROUTE.publish, ())).broker_name for n in range(4)]
    assert names == ["a", "b", "a", "b"]


def test_another_broker_follows_one_that_failed() -> None:
    choice = RoundRobin()
    assert [choice.choose(ROUTE, failed=["a"]).broker_name for _ in range(4)] == ["b"] * 4


def test_broker_to_avoid_is_passed_and_is_taken_when_there_is_no_other() -> None:
    choice = RoundRobin()
    assert {choice.choose(ROUTE, lambda name: name == "b").broker_name for _ in range(4)} == {"b"}
    assert choice.choose(ROUTE, lambda name: False, failed=["a"]).broker_name == "b"
    only_a = TopicRoute("T", ROUTE.publish[:2], ())
    assert choice.choose(only_a, lambda name: False, failed=["a"]).broker_name == "a"


def test_no_broker_is_tried_twice_while_another_was_not() -> None:
    three = TopicRoute("T", tuple(MessageQueue("T", name, 0) for name in "abc"), ())
    choice = RoundRobin()
    assert choice.choose(three, failed=["a", "b"]).broker_name == "c"
    assert choice.choose(three, failed=["b", "c"]).broker_name == "a"
    assert choice.choose(three, failed=["a", "b", "c"]).broker_name != "c"


@pytest.mark.parametrize("key", HASHES)
def test_queue_of_a_key_is_that_of_java(key: str) -> None:
    assert by_sharding_key(ROUTE, key) == ROUTE.publish[abs(HASHES[key]) % 4]


@pytest.mark.parametrize(
    ("latency_ms", "avoided_ms"),
    [(0, 0), (549, 0), (550, 2000), (1800, 5000), (3000, 6000), (5000, 10000), (14999, 10000), (15000, 30000)],
)
def test_time_that_a_slow_broker_is_avoided(latency_ms: int, avoided_ms: int) -> None:
    assert not_available_ms(latency_ms) == avoided_ms


def available(faults: FaultTolerance, broker_name: str, now: float) -> bool:
    faults.end_avoidances(now)
    return faults.is_available(broker_name)


def test_failed_broker_is_avoided_for_ten_seconds() -> None:
    faults = FaultTolerance()
    faults.failed("a", started=99.0, now=100.0)
    assert not available(faults, "a", 109.9)
    assert available(faults, "a", 110.0)
    assert available(faults, "b", 100.0)
    faults.sent("b", started=99.4, now=100.0)
    assert not available(faults, "b", 101.9)
    assert available(faults, "b", 102.0)
    assert not faults.avoided  # compiled code starts messages only then


def test_another_master_is_not_avoided_for_what_the_one_before_did() -> None:
    changed_at = {"a": 50.0}
    faults = FaultTolerance(True, lambda name: changed_at[name])
    faults.failed("a", started=98.0, now=100.0)
    assert not available(faults, "a", 101.0)
    changed_at["a"] = 102.0
    assert available(faults, "a", 102.0)
    faults.failed("a", started=99.0, now=103.0)  # a send to the one before, which ends late
    assert available(faults, "a", 103.0)
    faults.failed("a", started=103.0, now=104.0)
    assert not available(faults, "a", 104.0)


def test_nothing_is_avoided_when_that_is_disabled() -> None:
    faults = FaultTolerance(enabled=False)
    faults.failed("a", started=99.0, now=100.0)
    assert available(faults, "a", 100.0)


def data(*queues: QueueData, order: str | None = None) -> TopicRouteData:
    brokers = [BrokerData("c", name, {0: f"{name}:1", 1: f"{name}:2"}) for name in ("a", "b")]
    return TopicRouteData(order, list(queues), [*brokers, BrokerData("c", "slave-only", {1: "s:1"})])


def test_route_has_queues_by_permission_and_master() -> None:
    route = topic_route("T", data(QueueData("b", 1, 2, 6), QueueData("a", 3, 1, 4), QueueData("slave-only", 1, 1, 6)))
    assert route.publish == (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1))
    assert [(queue.broker_name, queue.queue_id) for queue in route.subscribe] == [
        ("a", 0), ("a", 1), ("a", 2), ("b", 0), ("slave-only", 0),
    ]  # fmt: skip


def test_order_conf_names_the_queues_to_send_to() -> None:
    route = topic_route("T", data(QueueData("a", 4, 4, 6), order="b:2;a:1"))
    assert [(queue.broker_name, queue.queue_id) for queue in route.publish] == [("b", 0), ("b", 1), ("a", 0)]


def test_default_route_has_no_more_queues_than_are_asked_for() -> None:
    assert len(default_topic_route("New", data(QueueData("a", 8, 8, 7)), 4).publish) == 4


def test_member_to_read_from() -> None:
    members = {0: "m:1", 2: "s:1"}
    assert subscribe_address(members, 0) == ("m:1", 0)
    assert subscribe_address(members, 1) == ("s:1", 2)  # the one suggested is gone: the slave after it
    assert subscribe_address(members, 5) == ("m:1", 0)
    assert subscribe_address(members, 5, only_this=True) == ("", -1)
    assert subscribe_address(None, 0) == ("", -1)


def test_a_choice_that_was_not_used_is_undone() -> None:
    choice = RoundRobin()
    a0, _, b0, _ = ROUTE.publish
    assert choice.choose(ROUTE) == a0
    assert choice.choose(ROUTE) == b0
    choice.undo("T")
    assert choice.choose(ROUTE) == b0
