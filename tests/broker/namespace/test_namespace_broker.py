"""Namespaces at a whole broker: how operators set them, and what their topics, groups, clients and messages may be."""

from pathlib import Path
from typing import Any

import pytest

from broker.processor.send import SendProcessor
from broker.upkeep.namespace_service import NamespaceService
from sprocket.common.refusal_reasons import Reason
from sprocket.engine.choice import native
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.namespace import NamespacePolicy, NamespaceUsesBody
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.admin import CreateTopicRequestHeader
from sprocket.remoting.headers.client import HeartbeatRequestHeader
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from tests.broker.insides import core_of, service_of
from tests.broker.rig import TestClient, running_broker
from tests.clock import ManualClock
from tests.send_headers import client_batch, send_header

OWN, OTHER = "shop|orders", "shop|billing"
SUCCESS = ResponseCode.SUCCESS
ID = "UNIQ_KEY\x010A000001000000000000000000000001\x02"


async def set_namespace(client: TestClient, name: str = OWN, **limits: Any) -> None:
    await client.ask_well(RequestCode.SET_NAMESPACE, None, dumps(NamespacePolicy(name=name, **limits)))


async def create(client: TestClient, topic: str, queues: int = 4, attributes: str | None = None) -> ReceivedResponse:
    header = CreateTopicRequestHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
        topic_filter_type="SINGLE_TAG", attributes=attributes,
    )  # fmt: skip
    return await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def create_group(client: TestClient, *groups: str) -> ReceivedResponse:
    if len(groups) == 1:
        body = dumps(SubscriptionGroupConfig(groups[0]))
        return await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    body = dumps({"groupConfigList": [SubscriptionGroupConfig(group) for group in groups]})
    return await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)


async def send(
    client: TestClient, topic: str, body: bytes = b"body", more: str = "", **fields: Any
) -> ReceivedResponse:
    return await client.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, properties=ID + more, **fields), body)


def says(answer: ReceivedResponse, text: str) -> bool:
    return answer.code != SUCCESS and text in (answer.remark or "")


@pytest.mark.code(RequestCode.SET_NAMESPACE, RequestCode.GET_NAMESPACES, RequestCode.DELETE_NAMESPACE)
async def test_what_is_set_holds_at_once_and_after_a_restart_until_it_is_deleted(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        assert (await create(client, f"{OWN}%first")).code == SUCCESS
        await set_namespace(client, max_topics=1)
        assert says(await create(client, f"{OWN}%second"), "it has 1 of at most 1 topics (maxTopics)")
        assert (await create(client, f"{OWN}%first", 8)).code == SUCCESS  # it is there
        assert (await create(client, f"{OTHER}%second")).code == SUCCESS
        assert broker.routes.refusals.by_reason == {Reason.NAMESPACE: 1}
    async with running_broker(tmp_path, clock=ManualClock()) as (_, client):
        assert says(await create(client, f"{OWN}%second"), "maxTopics")
        uses = loads(bytes((await client.ask_well(RequestCode.GET_NAMESPACES)).body), NamespaceUsesBody).uses
        assert [(use.name, use.topics, use.policy is not None) for use in uses] == [(OTHER, 1, False), (OWN, 1, True)]
        await client.ask_well(RequestCode.DELETE_NAMESPACE, None, OWN.encode())
        assert (await create(client, f"{OWN}%second")).code == SUCCESS
        assert says(await client.ask(RequestCode.DELETE_NAMESPACE, None, OWN.encode()), "there is no namespace")


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"name": "a|b|c"}, "is no namespace"),
        ({"name": OWN, "max_topics": -1}, "from 0 (no limit)"),
        ({"name": OWN, "message_types": ("CLOUD",)}, "is no message type"),
        ({"name": OWN, "message_types": ("FIFO",)}, "new topics would have the type NORMAL"),
        ({"name": OWN, "max_queues": 4, "topic_queues": 8}, "topic_queues is above max_queues"),
        ({"name": OWN, "topic_attributes": {"colour": "red"}}, "attributes of topics are"),
        ({"name": OWN, "topic_attributes": {"message.type": "LOUD"}}, "topicAttributes"),
    ],
)
async def test_a_wrong_policy_is_refused(tmp_path: Path, limits: dict[str, Any], why: str) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (_, client):
        answer = await client.ask(RequestCode.SET_NAMESPACE, None, dumps(NamespacePolicy(**limits)))
        assert says(answer, why), answer.remark


async def test_each_way_to_a_topic_is_bounded(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        await set_namespace(client, max_topics=2, max_queues=4)
        assert says(await create(client, f"{OWN}%wide", 5), "at most 4 queues (maxQueues)")
        listed = dumps({"topicConfigList": [TopicConfig(f"{OWN}%{name}", 1, 1) for name in "abc"]})
        refused = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, listed)
        assert says(refused, "it has 0 of at most 2 topics")
        assert (await send(client, f"{OWN}%a")).code == SUCCESS
        assert (await send(client, f"{OWN}%b")).code == SUCCESS
        assert says(await send(client, f"{OWN}%c"), "it has 2 of at most 2 topics")
        assert (await send(client, f"{OWN}%b")).code == SUCCESS
        assert (await send(client, f"{OTHER}%c")).code == SUCCESS
        assert says(await create(client, f"%RETRY%{OWN}%none", 1), "only brokers create")
        assert not any("%c" in name for name in core_of(broker).topics.by_name if name.startswith(OWN))


async def test_new_topics_follow_the_template(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        template = {"message.type": "FIFO", "reserve.time": "24"}
        await set_namespace(client, topic_queues=7, topic_attributes=template, message_types=("FIFO", "DELAY"))
        assert (await send(client, f"{OWN}%sent", more="__SHARDINGKEY\x01k\x02")).code == SUCCESS
        assert (await create(client, f"{OWN}%made", 2)).code == SUCCESS
        assert (await create(client, f"{OWN}%own", 2, "+message.type=DELAY")).code == SUCCESS
        assert says(await create(client, f"{OWN}%normal", 2, "+message.type=NORMAL"), "of type FIFO or DELAY")
        assert says(await create(client, f"{OWN}%made", 2, "+message.type=MIXED"), "")
        topics = core_of(broker).topics.by_name
    assert (topics[f"{OWN}%sent"].write_queue_nums, topics[f"{OWN}%sent"].attributes) == (7, template)
    assert (topics[f"{OWN}%made"].write_queue_nums, topics[f"{OWN}%made"].attributes) == (2, template)
    assert topics[f"{OWN}%own"].attributes == template | {"message.type": "DELAY"}


async def test_each_way_to_a_group_is_bounded(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        await send(client, f"{OWN}%a")
        await set_namespace(client, max_groups=1)
        assert says(await create_group(client, f"{OWN}%one", f"{OWN}%two"), "0 of at most 1 consumer groups")
        assert (await create_group(client, f"{OWN}%one")).code == SUCCESS
        assert (await create_group(client, f"{OWN}%one")).code == SUCCESS
        full = "it has its 1 consumer groups (maxGroups)"
        assert says(await create_group(client, f"{OWN}%two"), "maxGroups")
        assert says(await client.pull(topic=f"{OWN}%a", group=f"{OWN}%two"), full)
        pop = PopMessageRequestHeader(
            consumer_group=f"{OWN}%two", topic=f"{OWN}%a", queue_id=-1, max_msg_nums=1, invisible_time=1000,
            poll_time=0, born_time=0, init_mode=0, exp_type=None, exp=None, order=False,
        )  # fmt: skip
        assert says(await client.ask(RequestCode.POP_MESSAGE, pop), full)
        heartbeat = dumps(HeartbeatData("c", consumer_data_set=[ConsumerData(f"{OWN}%two")]))
        assert says(await client.ask(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), heartbeat), full)
        assert (await create_group(client, f"{OTHER}%two")).code == SUCCESS
        assert [name for name in core_of(broker).groups.by_name if name.startswith(OWN)] == [f"{OWN}%one"]


async def test_only_so_many_connections_join_groups(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        await set_namespace(client, max_connections=1)
        mine = dumps(HeartbeatData("c", [ProducerData(f"{OWN}%p")], [ConsumerData(f"{OWN}%g")]))
        for _ in range(2):
            assert (await client.ask(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), mine)).code == SUCCESS
        other = TestClient(client.address)
        try:
            refused = await other.ask(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), mine)
            assert says(refused, "its clients have its 1 connections (maxConnections)")
            elsewhere = dumps(HeartbeatData("d", [ProducerData(f"{OTHER}%p")]))
            assert (await other.ask(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), elsewhere)).code == SUCCESS
        finally:
            await other.remoting.close()
        metrics = {metric.name: metric for metric in service_of(broker, NamespaceService).exported_metrics()}
        used = dict(metrics["sprocket_namespace_used"].read())
        assert used == {(OWN, "topics"): 0, (OWN, "groups"): 1, (OWN, "connections"): 1}
        assert dict(metrics["sprocket_namespace_limit"].read()) == {(OWN, "connections"): 1}


async def test_messages_have_the_size_and_type_that_the_namespace_allows(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (_, client):
        topic = f"{OWN}%a"
        assert (await send(client, topic, b"b" * 100)).code == SUCCESS
        await set_namespace(client, max_message_bytes=64, message_types=("NORMAL", "DELAY"))
        assert (await send(client, topic, b"b" * 64)).code == SUCCESS
        assert says(await send(client, topic, b"b" * 65), "at most 64 bytes (maxMessageBytes), this one 65")
        assert (await send(client, topic, more="DELAY\x013\x02")).code == SUCCESS
        fifo = "messages are of type NORMAL or DELAY (messageTypes), this one FIFO"
        assert says(await send(client, topic, more="__SHARDINGKEY\x01k\x02"), fifo)
        assert says(await send(client, topic, more="TRAN_MSG\x01true\x02", sys_flag=4), "this one TRANSACTION")
        large = client_batch((0, b"b" * 40, b""), (0, b"b" * 40, b""))
        assert says(await send(client, topic, large, batch=True), "maxMessageBytes")
        keyed = client_batch((0, b"1", b""), (0, b"2", b"__SHARDINGKEY\x01k\x02"))
        assert says(await send(client, topic, keyed, batch=True), fifo)
        assert (await send(client, topic, client_batch((0, b"1", b""), (0, b"2", b"")), batch=True)).code == SUCCESS
        await set_namespace(client, message_types=("FIFO",), topic_attributes={"message.type": "FIFO"})
        plain = client_batch((0, b"1", b"K\x01v"), (0, b"2", b""))
        assert (await send(client, topic, plain, more="__SHARDINGKEY\x01k\x02", batch=True)).code == SUCCESS
        assert says(await send(client, topic, plain, batch=True), "messages are of type FIFO")
        assert (await send(client, f"{OTHER}%a", b"b" * 100)).code == SUCCESS


@pytest.mark.skipif(native("broker.send.kernel_native") is None, reason="the compiled engine is not built")
async def test_the_compiled_kernel_serves_what_a_namespace_allows_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[bytes] = []
    handle = SendProcessor.send

    def send_by_handler(self: SendProcessor, run: list[Any]) -> None:
        left.extend(bytes(request.body) for request in run)
        handle(self, run)

    monkeypatch.setattr(SendProcessor, "send", send_by_handler)
    async with running_broker(tmp_path) as (_, client):
        topic = f"{OWN}%a"
        await create(client, topic)
        await send(client, topic)  # makes the queue
        left.clear()
        await set_namespace(client, max_message_bytes=64, message_types=("NORMAL", "FIFO"))
        for body, more, is_allowed in (
            (b"1", "", True), (b"2", "__SHARDINGKEY\x01k\x02", True), (b"b" * 65, "", False),
            (b"p", "_SYS_MSG_PRIORITY_\x010\x02", False),
            (b"3", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02", False), (b"4", "DELAY\x013\x02", False),
        ):  # fmt: skip
            assert ((await send(client, topic, body, more)).code == SUCCESS) is is_allowed
        assert left == [b"b" * 65, b"p", b"3", b"4"]
        await set_namespace(client, message_types=("FIFO",), topic_attributes={"message.type": "FIFO"})
        for body, key, is_allowed in ((b"5", "", False), (b"6", "k", True)):
            answer = await send(client, topic, body, f"MY__SHARDINGKEY\x01other\x02__SHARDINGKEY\x01{key}\x02")
            assert (answer.code == SUCCESS) is is_allowed
        assert left[4:] == [b"5"]


async def test_a_namespace_bounds_what_consumers_read_of_its_topics(tmp_path: Path) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as (broker, client):
        await create(client, f"{OWN}%long", 1, "+reserve.time=72")
        await create(client, f"{OWN}%short", 1, "+reserve.time=1,+retention.bytes=10")
        await create(client, f"{OTHER}%other", 1)
        await set_namespace(client, retention_hours=24, retention_bytes=1000)
        rules = {topic: (rule.max_age_ms, rule.max_bytes) for topic, rule in broker.retention.rules.items()}
        assert rules == {f"{OWN}%long": (24 * 3_600_000, 1000), f"{OWN}%short": (3_600_000, 10)}
        await client.ask_well(RequestCode.DELETE_NAMESPACE, None, OWN.encode())
        assert broker.retention.rules[f"{OWN}%long"].max_age_ms == 72 * 3_600_000
