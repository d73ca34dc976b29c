from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from sprocket.remoting.bodies.registration import TopicConfigAndMapping
from sprocket.remoting.bodies.topic import CreateTopicListRequestBody, TopicConfig, TopicList
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import (
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker

Pair = tuple[Broker, TestClient]


@pytest.mark.code(
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.DELETE_TOPIC_IN_BROKER,
)
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


@pytest.mark.code(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
async def test_create_list(pair: Pair) -> None:
    broker, client = pair
    body = dumps(CreateTopicListRequestBody([TopicConfig("A"), TopicConfig("B")]))
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert "A" in broker.topics
    body = dumps(CreateTopicListRequestBody([TopicConfig("C"), TopicConfig("bad name")]))
    response = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert response.code == ResponseCode.INVALID_PARAMETER
    assert "C" not in broker.topics


async def test_a_slave_copies_the_topics_in_pages(tmp_path: Path) -> None:
    async with running_broker(tmp_path, split_metadata_size=3) as (broker, client):
        for number in range(4):
            await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic=f"Many{number}"))
        copied: dict[str, TopicConfig] = {}
        version, total = "", 1
        while len(copied) < total:
            # RocketMQ's slave asks for more than this broker gives.
            header = GetAllTopicConfigRequestHeader(
                topic_seq=len(copied), max_topic_num=2000, data_version=version
            )  # fmt: skip
            response = await client.ask_well(RequestCode.GET_ALL_TOPIC_CONFIG, header)
            page = loads(response.body, TopicConfigAndMapping)
            version, total = dumps(page.data_version).decode(), int(response.ext_fields["totalTopicNum"])
            assert 0 < len(page.topic_config_table) <= 3
            copied |= page.topic_config_table
        assert copied == broker.topics.by_name
        whole = await client.ask_well(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert loads(whole.body, TopicConfigAndMapping).topic_config_table == copied


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
        (
            {"attributes": "+cleanup.policy=COMPACTION,+queue.type=BatchCQ"},
            "cleanup.policy=COMPACTION needs queue.type",
        ),
    ],
)
async def test_refused_topics(pair: Pair, changes: dict[str, Any], reason: str) -> None:
    broker, client = pair
    before = dict(broker.topics.by_name)
    response = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create(**changes))
    assert response.code == ResponseCode.INVALID_PARAMETER
    assert reason in (response.remark or "")
    assert broker.topics.by_name == before


async def test_refused_attributes(pair: Pair) -> None:
    broker, client = pair
    response = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Odd", attributes="message.type"))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "format is wrong" in (response.remark or "")
    assert "Odd" not in broker.topics


async def test_topics_of_mixed_messages_where_they_are_allowed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_mixed_message_type=True) as (broker, client):
        header = create("Mixed", attributes="+message.type=MIXED")
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        assert broker.topics.message_type("Mixed") == "MIXED"


@pytest.mark.code(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
async def test_system_topics_are_not_deleted(pair: Pair) -> None:
    broker, client = pair
    response = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="SELF_TEST_TOPIC"))
    assert response.code == ResponseCode.INVALID_PARAMETER
    assert "SELF_TEST_TOPIC" in broker.topics
    response = await client.ask_well(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert "SELF_TEST_TOPIC" in loads(response.body, TopicList).topic_list


@pytest.mark.code(RequestCode.GET_TOPIC_STATS_INFO)
async def test_topic_stats(pair: Pair) -> None:
    broker, client = pair
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    await client.send()
    response = await client.ask_well(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=TOPIC))
    stored_at = broker.store.store_time(TOPIC, 0, 0)
    queue_0 = b'{"topic":"Orders","brokerName":"broker-a","queueId":0}'
    assert b"%b:" % queue_0 + b'{"minOffset":0,"maxOffset":1,"lastUpdateTimestamp":%d}' % stored_at in response.body
    assert b'{"minOffset":0,"maxOffset":0,"lastUpdateTimestamp":0}' in response.body


@pytest.mark.code(RequestCode.DELETE_TOPIC_IN_BROKER_LIST)
async def test_several_topics_are_deleted_or_none(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clear_retry_topic_when_delete_topic=True) as (broker, client):
        body = dumps(CreateTopicListRequestBody([TopicConfig("A"), TopicConfig("B"), TopicConfig("C")]))
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        retry = f"%RETRY%{GROUP}_A"
        broker.topics.update([TopicConfig(retry, 1, 1)])
        broker.offsets.commit(GROUP, "A", 0, 1)
        code = RequestCode.DELETE_TOPIC_IN_BROKER_LIST
        for names in ([], ["A", ""], ["A", "SELF_TEST_TOPIC"]):
            response = await client.ask(code, body=dumps(TopicList(names)))
            assert response.code == ResponseCode.INVALID_PARAMETER
        assert {"A", "B", "C", retry} <= broker.topics.by_name.keys()
        await client.ask_well(code, body=dumps(TopicList(["A", "B", "A", "Unknown"])))
        assert {"A", "B", "C", retry} & broker.topics.by_name.keys() == {"C"}
        assert broker.offsets.groups_of("A") == set()


async def test_deleting_topics_that_do_not_exist_writes_nothing(pair: Pair) -> None:
    broker, client = pair
    root = broker.config.store.store_path_root_dir
    before = (root / "config/topics.json").stat().st_mtime_ns if (root / "config/topics.json").exists() else None
    for number in range(20):
        await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=f"Unknown{number}"))
    assert not (root / "deletedtopics").exists()
    after = (root / "config/topics.json").stat().st_mtime_ns if (root / "config/topics.json").exists() else None
    assert after == before


@pytest.mark.code(RequestCode.CLEAN_UNUSED_TOPIC)
async def test_unused_queues_are_cleaned(pair: Pair) -> None:
    broker, client = pair
    await client.send()
    del broker.topics.by_name[TOPIC]
    await client.ask_well(RequestCode.CLEAN_UNUSED_TOPIC)
    assert broker.store.queues() == []
