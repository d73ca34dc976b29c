"""INVOKE_BROKER_TO_RESET_OFFSET and CLONE_GROUP_OFFSET."""

import asyncio
import dataclasses
from collections.abc import Generator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from broker.server import Broker
from sprocket.common.next_turn import at_once
from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.consumption import ResetOffsetBodyForC
from sprocket.remoting.bodies.stats import ResetOffsetBody
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import CloneGroupOffsetRequestHeader
from sprocket.remoting.headers.offset import ResetOffsetRequestHeader
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from tests.broker.rig import GROUP, TOPIC, TestClient, create
from tests.waiting import until

Pair = tuple[Broker, TestClient]


def _told(client: TestClient) -> list[Request[Any]]:
    """Return what the broker has told a client, but for news of its group."""
    return [one for one in client.asked if one.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]


def reset_to(timestamp: int, *, is_force: bool = True, **changes: Any) -> ResetOffsetRequestHeader:
    header = ResetOffsetRequestHeader(group=GROUP, topic=TOPIC, timestamp=timestamp, is_force=is_force)
    return msgspec.structs.replace(header, **changes)


def clients_are_told(broker: Broker) -> None:
    """useServerSideResetOffset=false"""
    broker.config.replace_broker(dataclasses.replace(broker.config.broker, use_server_side_reset_offset=False))


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
    header = msgspec.structs.replace(header, **changes)
    response = await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert response.code == code
    assert not broker.offsets.has_resets


async def test_broadcasting_members_are_told_of_a_reset(pair: Pair) -> None:
    _, client = pair
    await client.send()
    await client.heartbeat("c1", TOPIC, model="BROADCASTING")
    header = ResetOffsetRequestHeader(group=GROUP, topic=TOPIC, timestamp=-1, is_force=True)
    await client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    await until(lambda: _told(client))
    assert _told(client)[0].code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert b'"queueId":0}:1' in _told(client)[0].body


@pytest.mark.code(RequestCode.CLONE_GROUP_OFFSET)
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


# What the broker does itself


@pytest.mark.code(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
async def test_reset_to_begin_end_time_and_offset(pair: Pair) -> None:
    broker, client = pair
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    for _ in range(4):
        await client.send()
    broker.groups.find(GROUP)
    middle = broker.store.store_time(TOPIC, 0, 2)
    expected = broker.store.offset_by_time(TOPIC, 0, middle)
    for header, offsets in (
        (reset_to(0), {0: 0, 1: 0}),
        (reset_to(-1), {0: 4, 1: 0}),
        (reset_to(middle), {0: expected, 1: 0}),
        (reset_to(0, queue_id=0, offset=3), {0: 3}),
        (reset_to(-1, queue_id=0, offset=-1), {0: 4}),
    ):
        response = await client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        table = by_queue(loads(response.body, ResetOffsetBody[str]).offset_table)
        assert table == {MessageQueue(TOPIC, "broker-a", queue_id): at for queue_id, at in offsets.items()}
        assert {queue_id: broker.offsets.query(GROUP, TOPIC, queue_id) for queue_id in offsets} == offsets


async def test_a_held_pull_is_sent_there_at_once(pair: Pair) -> None:
    broker, client = pair
    await client.send()
    broker.groups.find(GROUP)
    header = PullMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, queue_offset=1, max_msg_nums=32, sys_flag=6, commit_offset=1,
        suspend_timeout_millis=60_000, subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip
    other = TestClient(client.address)
    held = [
        asyncio.ensure_future(each.ask(RequestCode.PULL_MESSAGE, header_of))
        for each, header_of in ((client, header), (other, _of_group(header, "Other")))
    ]
    await until(lambda: len(broker.held) == 2)
    await client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_to(0))
    response = await held[0]
    assert response.code == ResponseCode.PULL_OFFSET_MOVED
    assert response.ext_fields["nextBeginOffset"] == "0"
    assert len(broker.held) == 1, "another group's pull waits on"
    held[1].cancel()
    await other.close()


def _of_group(header: PullMessageRequestHeader, group: str) -> PullMessageRequestHeader:
    return replace(header, consumer_group=group)


async def test_what_the_first_pull_after_a_reset_commits_is_not_taken(pair: Pair) -> None:
    broker, client = pair
    for _ in range(3):
        await client.send()
    broker.groups.find(GROUP)
    broker.offsets.commit(GROUP, TOPIC, 0, 3)
    await client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_to(0))
    header = PullMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, queue_offset=3, max_msg_nums=32, sys_flag=5, commit_offset=3,
        suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip
    assert (await client.ask(RequestCode.PULL_MESSAGE, header)).code == ResponseCode.PULL_OFFSET_MOVED
    assert broker.offsets.query(GROUP, TOPIC, 0) == 0


# What the clients do


async def test_clients_that_are_online_are_told(pair: Pair) -> None:
    broker, client = pair
    clients_are_told(broker)
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    for _ in range(3):
        await client.send()
    await client.heartbeat("c1", TOPIC)
    for queue_id in (0, 1):
        broker.offsets.commit(GROUP, TOPIC, queue_id, 1 - queue_id)
    told = [{0: 0, 1: 0}, {0: 1, 1: 0}, {0: 3, 1: 0}]
    for header, offsets in zip(
        (reset_to(0), reset_to(-1, is_force=False), reset_to(-1, is_force=True)), told, strict=True
    ):
        client.asked.clear()
        response = await client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        await until(lambda: _told(client))
        wanted = {MessageQueue(TOPIC, "broker-a", queue_id): offset for queue_id, offset in offsets.items()}
        for body in (response.body, _told(client)[0].body):
            assert by_queue(loads(body, ResetOffsetBody[str]).offset_table) == wanted
        assert _told(client)[0].code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert not broker.offsets.has_resets
    assert broker.offsets.query(GROUP, TOPIC, 0) == 1, "the clients commit, not the broker"


async def test_a_tool_for_cpp_clients_gets_their_body(pair: Pair) -> None:
    broker, client = pair
    clients_are_told(broker)
    await client.send()
    config = broker.topics.get(TOPIC)
    assert config is not None
    for queue_id in range(config.write_queue_nums):
        broker.offsets.commit(GROUP, TOPIC, queue_id, 0)
    await client.heartbeat("c1", TOPIC)
    client.asked.clear()
    handle = broker.routes.entries[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET].route.handle
    assert handle is not None
    for language in ("CPP", "1"):
        request = Request(code=RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header=reset_to(-1), language=language)
        steps = handle(request)
        assert isinstance(steps, Generator)
        response = at_once(steps)
        assert isinstance(response, Response)
        assert response.code == ResponseCode.SUCCESS
    await until(lambda: len(_told(client)) == 2)
    for asked in _told(client):
        body = loads(asked.body, ResetOffsetBodyForC)
        assert {(queue.queue_id, queue.offset) for queue in body.offset_table} >= {(0, 1)}


@pytest.mark.parametrize(
    ("changes", "version", "code", "remark"),
    [
        ({"topic": "Nothing"}, 479, ResponseCode.TOPIC_NOT_EXIST, "no topic in this broker. topic=Nothing"),
        ({"group": "Nobody"}, 479, ResponseCode.SYSTEM_ERROR, "THe consumer group <Nobody> not exist"),
        ({"group": "Gone"}, 479, ResponseCode.CONSUMER_NOT_ONLINE, "can not reset offset, Group: Gone Topic: Orders"),
        ({}, 27, ResponseCode.SYSTEM_ERROR, "the client does not support this feature"),
    ],
)
async def test_clients_that_cannot_be_told(
    pair: Pair, changes: dict[str, Any], version: int, code: int, remark: str
) -> None:
    broker, client = pair
    clients_are_told(broker)
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    await client.heartbeat("c1", TOPIC)
    online = broker.consumers.group(GROUP)
    assert online is not None
    for member in online.members.values():
        member.version = version
    for queue_id in (0, 1):
        broker.offsets.commit(GROUP, TOPIC, queue_id, 0)
        broker.offsets.commit("Gone", TOPIC, queue_id, 0)
    client.asked.clear()
    response = await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_to(0, **changes))
    assert response.code == code
    assert remark in (response.remark or "")
    assert not _told(client)


async def test_a_connected_group_gives_what_it_subscribes_to(pair: Pair) -> None:
    broker, client = pair
    for topic in (TOPIC, "Old"):
        await client.send(topic=topic)
        broker.offsets.commit(GROUP, topic, 0, 1)
    await client.heartbeat("c1", TOPIC)
    for offline, topics in ((False, {TOPIC}), (True, {TOPIC, "Old"})):
        header = CloneGroupOffsetRequestHeader(src_group=GROUP, dest_group=f"Copy{offline}", offline=offline)
        await client.ask_well(RequestCode.CLONE_GROUP_OFFSET, header)
        assert broker.offsets.topics_of(f"Copy{offline}") == topics
