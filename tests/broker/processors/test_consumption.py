from typing import Any

import pytest

from broker.server import Broker
from remoting.bodies.group import GroupList
from remoting.bodies.stats import QuerySubscriptionResponseBody
from remoting.bodies.topic import TopicList
from remoting.codes import RequestCode, ResponseCode
from remoting.fastjson import loads
from remoting.headers.admin import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from remoting.headers.offset import ResetOffsetRequestHeader
from tests.broker.rig import GROUP, TOPIC, TestClient, create, until

Pair = tuple[Broker, TestClient]


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


async def test_who_consumes_what(pair: Pair) -> None:
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


async def test_reset_sends_the_next_pull_there(pair: Pair) -> None:
    broker, client = pair
    for _ in range(3):
        await client.send()
    broker.groups.find(GROUP)
    broker.offsets.commit(GROUP, TOPIC, 0, 3)
    header = ResetOffsetRequestHeader(group=GROUP, topic=TOPIC, timestamp=0, is_force=True)
    response = await client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert b'{"topic":"Orders","brokerName":"broker-a","queueId":0}:0' in response.body
    response = await client.pull(offset=3)
    assert response.code == ResponseCode.PULL_OFFSET_MOVED
    assert response.ext_fields["nextBeginOffset"] == "0"
    assert (await client.pull(offset=0)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "Nothing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "Nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queue_id": 0, "offset": 99}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": 77}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_refused_resets(pair: Pair, changes: dict[str, Any], code: int) -> None:
    broker, client = pair
    await client.send()
    broker.groups.find(GROUP)
    header = ResetOffsetRequestHeader(group=GROUP, topic=TOPIC, timestamp=0, is_force=True)
    for name, value in changes.items():
        setattr(header, name, value)
    response = await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert response.code == code
    assert not broker.offsets.has_resets


async def test_broadcasting_members_are_told_of_a_reset(pair: Pair) -> None:
    _, client = pair
    await client.send()
    await client.heartbeat("c1", TOPIC, model="BROADCASTING")
    header = ResetOffsetRequestHeader(group=GROUP, topic=TOPIC, timestamp=-1, is_force=True)
    await client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    await until(lambda: client.asked)
    assert client.asked[0].code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert b'"queueId":0}:1' in client.asked[0].body


async def test_offset_files_over_the_wire(pair: Pair) -> None:
    broker, client = pair
    broker.offsets.commit(GROUP, TOPIC, 0, 5)
    response = await client.ask_well(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert b'"offsetTable":{"Orders@CG":{0:5}}' in response.body
    broker.schedule.offsets.place(3, 8)
    response = await client.ask_well(RequestCode.GET_ALL_DELAY_OFFSET)
    assert b'"offsetTable":{3:8}' in response.body


async def test_offsets_are_cloned(pair: Pair) -> None:
    broker, client = pair
    for topic in (TOPIC, "Other"):
        await client.send(topic=topic)
        broker.offsets.commit(GROUP, topic, 0, 1)
    header = CloneGroupOffsetRequestHeader(src_group=GROUP, dest_group="Copy", topic=TOPIC)
    await client.ask_well(RequestCode.CLONE_GROUP_OFFSET, header)
    assert broker.offsets.topics_of("Copy") == {TOPIC}
    header = CloneGroupOffsetRequestHeader(src_group=GROUP, dest_group="Copy")
    await client.ask_well(RequestCode.CLONE_GROUP_OFFSET, header)
    assert broker.offsets.query("Copy", "Other", 0) == 1
