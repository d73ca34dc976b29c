"""Routes of static topics: logical queues, the broker that leads each, and the order of sends."""

from typing import Any

import pytest

from sprocket.client.connection.topic_route import TopicRoute, topic_route
from sprocket.client.send.queue_choice import RoundRobin, by_sharding_key
from sprocket.common.errors import ProtocolError
from sprocket.common.limits import MAX_TOPIC_QUEUES
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import BrokerData, QueueData, TopicRouteData, read_route
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER, NO_BROKER, TopicQueueMappingInfo
from sprocket.remoting.codec.fastjson import dumps


def info(name: str, epoch: int, *leads: int, total: int = 4, **values: Any) -> TopicQueueMappingInfo:
    ids = {str(number): place for place, number in enumerate(leads)}
    return TopicQueueMappingInfo("T", total_queues=total, bname=name, epoch=epoch, curr_id_map=ids, **values)


def data(*mappings: TopicQueueMappingInfo, masters: str = "ab") -> TopicRouteData:
    names = [each.bname or "" for each in mappings]
    return TopicRouteData(
        queue_datas=[QueueData(name, 2, 2, 6) for name in names],
        broker_datas=[BrokerData("c", name, {0 if name in masters else 1: f"{name}:1"}) for name in names],
        topic_queue_mapping_by_broker=dict(zip(names, mappings, strict=True)),
    )


def logical(*numbers: int) -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue("T", LOGICAL_BROKER, number) for number in numbers)


def leaders(route: TopicRoute) -> list[str]:
    return [route.broker_of(queue) for queue in route.publish]


def test_a_static_topic_has_the_queues_of_its_mapping_and_not_those_of_brokers() -> None:
    route = topic_route("T", data(info("a", 5, 0, 3), info("b", 5, 1, 2)))
    assert route.publish == route.subscribe == logical(0, 1, 2, 3)
    assert leaders(route) == ["a", "b", "b", "a"]
    assert route.broker_of(MessageQueue("T", "a", 0)) == "a"


def test_the_broker_with_the_highest_epoch_leads() -> None:
    for mappings in ([info("a", 7, 0, 1), info("b", 8, 1, 2)], [info("b", 8, 1, 2), info("a", 7, 0, 1)]):
        assert leaders(topic_route("T", data(*mappings))) == ["a", "b", "b", NO_BROKER]
    grown = topic_route("T", data(info("a", 7, 0, 1, total=2), info("b", 8, 2, total=3)))
    assert len(grown.publish) == 3


def test_messages_take_turns_over_brokers_and_pass_queues_that_nobody_leads() -> None:
    route = topic_route("T", data(info("a", 5, 0, 1), info("b", 5, 2)))
    assert route.rotation == logical(0, 2, 1)
    without_b = topic_route("T", data(info("a", 5, 0, 1), info("b", 5, 2), masters="a"))
    assert without_b.rotation == logical(0, 1)
    choice = RoundRobin()
    assert [choice.choose(route, failed=["a"]) for _ in range(3)] == list(logical(2, 2, 2))
    assert {choice.choose(route, lambda name: name == "a") for _ in range(4)} == set(logical(0, 1))


def test_a_key_stays_with_its_queue_while_nobody_leads_it() -> None:
    whole = topic_route("T", data(info("a", 5, 0, 1), info("b", 5, 2, 3)))
    part = topic_route("T", data(info("a", 5, 0, 1), info("b", 5)))
    for key in ("k1", "k2", "k3", "k4", "k5"):
        assert by_sharding_key(part, key) == by_sharding_key(whole, key)


def test_while_nobody_leads_any_queue_one_is_chosen_so_that_the_send_waits() -> None:
    route = topic_route("T", data(info("a", 5), info("b", 5)))
    assert route.rotation == () and RoundRobin().choose(route) in route.publish


def test_a_move_is_a_change_of_the_route() -> None:
    before = topic_route("T", data(info("a", 5, 0, 1, 2, 3), info("b", 5)))
    after = topic_route("T", data(info("a", 6), info("b", 6, 0, 1, 2, 3)))
    assert before.publish == after.publish and before != after


def test_mappings_of_another_scope_do_not_count() -> None:
    assert topic_route("T", data(info("a", 5, 0, scope="x"), info("b", 5, 1, total=2))).publish == logical(0, 1)


def test_ids_that_are_no_queue_of_the_topic_do_not_count() -> None:
    odd = info("a", 5, 0, 1, total=2)
    assert odd.curr_id_map is not None
    odd.curr_id_map |= {"2": 0, "x": 0, "-1": 0, "9" * 5000: 0}
    route = topic_route("T", data(odd))
    assert route.leaders == {0: "a", 1: "a"}


def test_no_name_server_makes_a_client_list_too_many_logical_queues() -> None:
    allowed = data(info("a", 5, 0, total=MAX_TOPIC_QUEUES))
    assert read_route(dumps(allowed)) == allowed
    with pytest.raises(ProtocolError, match="65536 logical queues, the limit is 65535"):
        read_route(dumps(data(info("a", 5, 0, total=MAX_TOPIC_QUEUES + 1))))
