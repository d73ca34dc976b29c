from typing import Any

import pytest

from broker.server import Broker
from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.consumption import ConsumeStatsList, QueryCorrectionOffsetBody
from sprocket.remoting.bodies.group import GroupList
from sprocket.remoting.bodies.stats import OffsetWrapper, QuerySubscriptionResponseBody
from sprocket.remoting.bodies.topic import TopicList
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from tests.broker.rig import GROUP, TOPIC, TestClient, create

Pair = tuple[Broker, TestClient]


@pytest.mark.code(RequestCode.GET_CONSUME_STATS)
async def test_consume_stats(pair: Pair) -> None:
    broker, client = pair
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    for _ in range(3):
        await client.send()
    broker.offsets.commit(GROUP, TOPIC, 0, 2)
    broker.offsets.note_pull(GROUP, TOPIC, 0, 3)
    header = GetConsumeStatsRequestHeader(consumer_group=GROUP)
    response = await client.ask_well(RequestCode.GET_CONSUME_STATS, header)
    consumed_at = broker.store.store_time(TOPIC, 0, 1)
    wanted = b'{"brokerOffset":3,"consumerOffset":2,"pullOffset":3,"lastTimestamp":%d}' % consumed_at
    assert wanted in response.body
    assert b'{"brokerOffset":0,"consumerOffset":0,"pullOffset":0,"lastTimestamp":0}' in response.body
    header = GetConsumeStatsRequestHeader(consumer_group=GROUP, topic_list="Elsewhere;")
    response = await client.ask_well(RequestCode.GET_CONSUME_STATS, header)
    assert b'"offsetTable":{}' in response.body


async def test_connected_group_is_measured_by_what_it_subscribes_to(pair: Pair) -> None:
    broker, client = pair
    await client.send(topic="Old")
    await client.send(topic=TOPIC)
    for topic in ("Old", TOPIC):
        broker.offsets.commit(GROUP, topic, 0, 1)
    await client.heartbeat("c1", TOPIC)
    response = await client.ask_well(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group=GROUP))
    assert b"Old" not in response.body
    assert b"Orders" in response.body


@pytest.mark.code(
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
)
async def test_groups_of_a_topic_and_topics_of_a_group(pair: Pair) -> None:
    broker, client = pair
    broker.offsets.commit("Past", TOPIC, 0, 1)
    await client.heartbeat("c1", TOPIC)
    header = QueryTopicConsumeByWhoRequestHeader(topic=TOPIC)
    response = await client.ask_well(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
    assert loads(response.body, GroupList).group_list == [GROUP, "Past"]
    response = await client.ask_well(
        RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequestHeader(group="Past")
    )
    assert loads(response.body, TopicList).topic_list == [TOPIC]
    query = QuerySubscriptionByConsumerRequestHeader(group=GROUP, topic=TOPIC)
    response = await client.ask_well(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, query)
    found = loads(response.body, QuerySubscriptionResponseBody)
    assert found.subscription_data is not None
    assert found.subscription_data.topic == TOPIC


@pytest.mark.code(RequestCode.QUERY_CONSUME_TIME_SPAN)
async def test_time_span(pair: Pair) -> None:
    broker, client = pair
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    for _ in range(2):
        await client.send()
    broker.offsets.commit(GROUP, TOPIC, 0, 1)
    header = QueryConsumeTimeSpanRequestHeader(topic=TOPIC, group=GROUP)
    response = await client.ask_well(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
    times = [broker.store.store_time(TOPIC, 0, offset) for offset in range(2)]
    span = loads(response.body, dict[str, list[dict[str, Any]]])["consumeTimeSpanSet"][0]
    assert (span["minTimeStamp"], span["maxTimeStamp"], span["consumeTimeStamp"]) == (times[0], times[1], times[0])
    assert span["delayTime"] >= 0


async def test_offset_files_over_the_wire(pair: Pair) -> None:
    broker, client = pair
    broker.offsets.commit(GROUP, TOPIC, 0, 5)
    response = await client.ask_well(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert b'"offsetTable":{"Orders@CG":{0:5}}' in response.body
    broker.schedule.offsets.place(3, 8)
    response = await client.ask_well(RequestCode.GET_ALL_DELAY_OFFSET)
    assert b'"offsetTable":{3:8}' in response.body


@pytest.mark.code(RequestCode.GET_BROKER_CONSUME_STATS)
async def test_stats_of_every_group(pair: Pair) -> None:
    broker, client = pair
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Ordered", order=True))
    for topic in (TOPIC, TOPIC, "Ordered"):
        await client.send(topic=topic)
    for group, topic in (("A", TOPIC), ("A", "Ordered"), ("B", TOPIC)):
        broker.groups.find(group)
        broker.offsets.commit(group, topic, 0, 1)
    broker.offsets.note_pull("B", TOPIC, 0, 2)

    async def stats(is_order: bool) -> tuple[ConsumeStatsList[str], dict[str, list[MessageQueue]]]:
        header = GetConsumeStatsInBrokerHeader(is_order=is_order)
        response = await client.ask_well(RequestCode.GET_BROKER_CONSUME_STATS, header)
        found = loads(response.body, ConsumeStatsList[str])
        queues: dict[str, list[MessageQueue]] = {}
        for each in found.consume_stats_list:
            for group, parts in each.items():
                queues[group] = [queue for part in parts for queue in by_queue(part.offset_table)]
        return found, queues

    found, queues = await stats(False)
    assert {group: {queue.topic for queue in listed} for group, listed in queues.items() if listed} == {
        "A": {TOPIC, "Ordered"},
        "B": {TOPIC},
    }
    assert (found.total_diff, found.total_inflight_diff) == (2, 1)
    assert found.broker_addr == broker.address
    (part,) = next(each["B"] for each in found.consume_stats_list if "B" in each)
    last = broker.store.store_time(TOPIC, 0, 0)
    assert by_queue(part.offset_table)[MessageQueue(TOPIC, "broker-a", 0)] == OffsetWrapper(2, 1, 2, last)
    _, queues = await stats(True)
    assert {queue.topic for listed in queues.values() for queue in listed} == {"Ordered"}


@pytest.mark.code(RequestCode.QUERY_CORRECTION_OFFSET)
async def test_how_far_every_group_has_come(pair: Pair) -> None:
    broker, client = pair
    for group, offsets in (("A", {0: 5, 1: 3}), ("B", {0: 2, 1: 9}), ("Slow", {0: 1})):
        for queue_id, offset in offsets.items():
            broker.offsets.commit(group, TOPIC, queue_id, offset)

    async def correction(compare: str, left_out: str | None = None) -> dict[int, int]:
        header = QueryCorrectionOffsetHeader(topic=TOPIC, compare_group=compare, filter_groups=left_out)
        response = await client.ask_well(RequestCode.QUERY_CORRECTION_OFFSET, header)
        return loads(response.body, QueryCorrectionOffsetBody).correction_offsets

    assert await correction("A") == {0: 1, 1: 3}
    assert await correction("A", "Slow") == {0: 2, 1: 3}
    assert await correction("Slow", "Slow,B") == {0: (1 << 63) - 1, 1: 3}, "it is behind those that count"
    assert await correction("Nobody", "Slow") == {0: 2, 1: 3}
    assert broker.offsets.query("Slow", TOPIC, 0) == 1, "a group that is left out keeps its offsets"
