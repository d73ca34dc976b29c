"""What operators ask: topics, groups, consumption, connections, configuration, figures."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from remoting.bodies.client import ConsumerConnection, ProducerConnection
from remoting.bodies.group import GroupList, SubscriptionGroupConfig, SubscriptionGroupList, SubscriptionGroupTable
from remoting.bodies.registration import TopicConfigAndMapping
from remoting.bodies.stats import HARuntimeInfo, KVTable, QuerySubscriptionResponseBody
from remoting.bodies.topic import CreateTopicListRequestBody, TopicConfig, TopicList
from remoting.codes import RequestCode, ResponseCode
from remoting.fastjson import dumps, loads
from remoting.headers.admin import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumeStatsRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    ViewBrokerStatsDataRequestHeader,
    ViewMessageRequestHeader,
)
from remoting.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from remoting.headers.offset import ResetOffsetRequestHeader
from tests.broker.rig import GROUP, TOPIC, TestClient, running_broker, stored, until

Pair = tuple[Broker, TestClient]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_broker(tmp_path) as pair:
        yield pair


def create(topic: str = TOPIC, **changes: Any) -> CreateTopicRequestHeader:
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=2,
        write_queue_nums=2,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    for name, value in changes.items():
        setattr(header, name, value)
    return header


# Topics


async def test_create_describe_delete(pair: Pair) -> None:
    broker, client = pair
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(attributes="+message.type=FIFO", order=True))
    wanted = TopicConfig(TOPIC, 2, 2, 6, order=True, attributes={"message.type": "FIFO"})
    response = await client.ask_well(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=TOPIC))
    assert loads(response.body, TopicConfig) == wanted
    response = await client.ask_well(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert loads(response.body, TopicConfigAndMapping).topic_config_table[TOPIC] == wanted
    await client.send()
    broker.offsets.commit(GROUP, TOPIC, 0, 1)
    await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
    response = await client.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=TOPIC))
    assert response.code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.store.max_offset(TOPIC, 0) == 0
    assert broker.offsets.groups_of(TOPIC) == set()


async def test_create_list(pair: Pair) -> None:
    broker, client = pair
    body = dumps(CreateTopicListRequestBody([TopicConfig("A"), TopicConfig("B")]))
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert "A" in broker.topics
    body = dumps(CreateTopicListRequestBody([TopicConfig("C"), TopicConfig("bad name")]))
    response = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert response.code == ResponseCode.INVALID_PARAMETER
    assert "C" not in broker.topics


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": "a b"}, "illegal characters"),
        ({"topic": "TBW102"}, "conflict with system topic"),
        ({"topic": "rmq_sys_x"}, "conflict with system topic"),
        ({"read_queue_nums": -1}, "readQueueNums = -1"),
        ({"write_queue_nums": 1 << 20}, "writeQueueNums"),
        ({"perm": 8}, "perm = 8"),
        ({"topic_filter_type": "NO_TAG"}, "NO_TAG"),
        ({"attributes": "+message.type=MIXED"}, "MIXED"),
        ({"attributes": "message.type"}, "wrong"),
    ],
)
async def test_refused_topics(pair: Pair, changes: dict[str, Any], reason: str) -> None:
    broker, client = pair
    before = dict(broker.topics.by_name)
    response = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create(**changes))
    assert response.code == ResponseCode.INVALID_PARAMETER
    assert reason in (response.remark or "")
    assert broker.topics.by_name == before


async def test_system_topics_are_not_deleted(pair: Pair) -> None:
    broker, client = pair
    response = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="SELF_TEST_TOPIC"))
    assert response.code == ResponseCode.INVALID_PARAMETER
    assert "SELF_TEST_TOPIC" in broker.topics
    response = await client.ask_well(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert "SELF_TEST_TOPIC" in loads(response.body, TopicList).topic_list


async def test_topic_stats(pair: Pair) -> None:
    broker, client = pair
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    await client.send()
    response = await client.ask_well(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=TOPIC))
    stored_at = broker.store.store_time(TOPIC, 0, 0)
    queue_0 = b'{"topic":"Orders","brokerName":"broker-a","queueId":0}'
    assert b"%b:" % queue_0 + b'{"minOffset":0,"maxOffset":1,"lastUpdateTimestamp":%d}' % stored_at in response.body
    assert b'{"minOffset":0,"maxOffset":0,"lastUpdateTimestamp":0}' in response.body


async def test_unused_queues_are_cleaned(pair: Pair) -> None:
    broker, client = pair
    await client.send()
    del broker.topics.by_name[TOPIC]
    await client.ask_well(RequestCode.CLEAN_UNUSED_TOPIC)
    assert broker.store.queues() == []


# Groups


async def test_groups(pair: Pair) -> None:
    broker, client = pair
    body = dumps(SubscriptionGroupConfig("A", retry_max_times=3))
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    body = dumps(SubscriptionGroupList([SubscriptionGroupConfig("B"), SubscriptionGroupConfig("C")]))
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)
    response = await client.ask_well(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert {"A", "B", "C"} <= loads(response.body, SubscriptionGroupTable).subscription_group_table.keys()
    header = GetSubscriptionGroupConfigRequestHeader(group="A")
    response = await client.ask_well(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert loads(response.body, SubscriptionGroupConfig).retry_max_times == 3
    broker.offsets.commit("A", TOPIC, 0, 1)
    delete = DeleteSubscriptionGroupRequestHeader(group_name="A", clean_offset=True)
    await client.ask_well(RequestCode.DELETE_SUBSCRIPTIONGROUP, delete)
    assert broker.offsets.topics_of("A") == set()
    response = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "A" not in broker.groups


@pytest.mark.parametrize("config", [SubscriptionGroupConfig("a b"), SubscriptionGroupConfig("A", retry_queue_nums=-1)])
async def test_refused_groups(pair: Pair, config: SubscriptionGroupConfig) -> None:
    _, client = pair
    response = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(config))
    assert response.code == ResponseCode.INVALID_PARAMETER


# Consumption


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


# Connections


async def test_connections(pair: Pair) -> None:
    _, client = pair
    await client.heartbeat("c1", TOPIC, producer_group="PG")
    header = GetConsumerConnectionListRequestHeader(consumer_group=GROUP)
    response = await client.ask_well(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    found = loads(response.body, ConsumerConnection)
    assert [(one.client_id, one.language) for one in found.connection_set] == [("c1", "PYTHON")]
    assert found.message_model == "CLUSTERING"
    assert set(found.subscription_table) == {TOPIC}
    producers = GetProducerConnectionListRequestHeader(producer_group="PG")
    response = await client.ask_well(RequestCode.GET_PRODUCER_CONNECTION_LIST, producers)
    assert len(loads(response.body, ProducerConnection).connection_set) == 1
    response = await client.ask_well(RequestCode.GET_ALL_PRODUCER_INFO)
    assert b'"data":{"PG":[{"clientId":"c1","remoteIP":"127.0.0.1"' in response.body


async def test_nobody_is_connected(pair: Pair) -> None:
    _, client = pair
    header = GetConsumerConnectionListRequestHeader(consumer_group="Nobody")
    assert (await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)).code == ResponseCode.CONSUMER_NOT_ONLINE
    running = GetConsumerRunningInfoRequestHeader(consumer_group="Nobody", client_id="c1")
    response = await client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running)
    assert response.remark == "The Consumer <Nobody> <c1> not online"


async def test_question_is_passed_on_to_the_consumer(pair: Pair) -> None:
    _, client = pair
    operator = TestClient(client.address)
    await client.heartbeat("c1", TOPIC)
    header = GetConsumerRunningInfoRequestHeader(consumer_group=GROUP, client_id="c1")
    response = await operator.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    # This client does not serve the code, and its own answer is what the operator gets.
    assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    await operator.close()


# Configuration and figures


async def test_configuration_is_read_and_updated(pair: Pair) -> None:
    broker, client = pair
    response = await client.ask_well(RequestCode.GET_BROKER_CONFIG)
    lines = response.body.decode().splitlines()
    assert "brokerName=broker-a" in lines
    assert "autoCreateTopicEnable=true" in lines
    await client.ask_well(
        RequestCode.UPDATE_BROKER_CONFIG, body=b"autoCreateTopicEnable=false\ndefaultTopicQueueNums=2\n"
    )
    assert not broker.config.broker.auto_create_topic_enable
    assert broker.config.broker.default_topic_queue_nums == 2


@pytest.mark.parametrize(
    "text",
    [
        "storePathRootDir=/tmp/elsewhere",
        "brokerName=other",
        "listenPort=1",
        "rocketmqHome=/tmp",
        "noSuchKey=1",
        "autoCreateTopicEnable=perhaps",
        "brokerPermission=99",
        "brokerPermission=1",
    ],
)
async def test_refused_updates_change_nothing(pair: Pair, text: str) -> None:
    broker, client = pair
    before = broker.config.broker
    body = f"traceOn=false\n{text}\n".encode()
    response = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert response.code == ResponseCode.NO_PERMISSION
    assert text.partition("=")[0] in (response.remark or "")
    assert broker.config.broker == before


async def test_runtime_info(pair: Pair) -> None:
    _, client = pair
    for _ in range(4):
        await client.send()
    await client.send(DELAY="18")
    response = await client.ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)
    info = loads(response.body, KVTable).table
    assert info["brokerVersionDesc"] == "V5_3_3"
    assert info["msgPutTotalTodayNow"] == "5"
    assert info["putMessageTimesTotal"] == "5"
    assert int(info["commitLogMaxOffset"]) > 0
    assert len(info["putTps"].split()) == 3
    assert info["commitLogDirCapacity"].startswith("Total : ")


async def test_message_by_its_place_in_the_log(pair: Pair) -> None:
    broker, client = pair
    await client.send(b"payload")
    record = stored(broker, TOPIC, 0, 0)
    header = ViewMessageRequestHeader(offset=record.physical_offset)
    response = await client.ask_well(RequestCode.VIEW_MESSAGE_BY_ID, header)
    assert b"payload" in response.body
    assert len(response.body) == record.size_bytes
    response = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=1 << 40))
    assert response.code == ResponseCode.SYSTEM_ERROR


async def test_master_without_slaves(pair: Pair) -> None:
    broker, client = pair
    await client.send()
    response = await client.ask_well(RequestCode.GET_BROKER_HA_STATUS)
    info = loads(response.body, HARuntimeInfo)
    assert (info.master, info.in_sync_slave_nums) == (True, 0)
    assert info.master_commit_log_max_offset == broker.store.wrote_offset


async def test_statistics_that_are_not_kept_are_not_made_up(pair: Pair) -> None:
    _, client = pair
    header = ViewBrokerStatsDataRequestHeader(stats_name="TOPIC_PUT_NUMS", stats_key=TOPIC)
    response = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "The stats <TOPIC_PUT_NUMS> <Orders> not exist"
