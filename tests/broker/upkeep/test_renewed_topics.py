"""A topic that is deleted and created again under live consumers, who remember the old one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from broker.server import Broker
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader
from sprocket.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.headers.pull import PullMessageResponseHeader
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from tests.broker.pop.rig import Message, ack, change, popped
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker
from tests.waiting import until

Pair = tuple[Broker, TestClient]
OLD: Final = 10
RETRIES: Final = f"%RETRY%{GROUP}_{TOPIC}"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_broker(tmp_path, store={"timer_precision_ms": 100}) as pair:
        await pair[1].ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await pair[1].heartbeat("c1", TOPIC)
        for number in range(OLD):
            await pair[1].send(b"old %d" % number)
        yield pair


async def delete(client: TestClient) -> None:
    await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))


async def renew(client: TestClient, messages: int) -> None:
    await delete(client)
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    for number in range(messages):
        await client.send(b"new %d" % number)


async def commit(client: TestClient, offset: int) -> ReceivedResponse:
    header = UpdateConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset)
    return await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def committed(client: TestClient) -> int:
    header = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    response = await client.ask_well(RequestCode.QUERY_CONSUMER_OFFSET, header)
    return response.header(QueryConsumerOffsetResponseHeader).offset


def next_offset(response: ReceivedResponse) -> int:
    return response.header(PullMessageResponseHeader).next_begin_offset


# More new messages than old ones: then no offset is beyond the end of the queue.
@pytest.mark.parametrize("messages", [3, OLD + 5])
async def test_a_pulling_consumer_reads_the_new_topic_from_its_first_message(pair: Pair, messages: int) -> None:
    _, client = pair
    assert next_offset(await client.pull(offset=0)) == OLD
    assert (await commit(client, OLD)).code == ResponseCode.SUCCESS
    await renew(client, messages)
    await commit(client, OLD)  # as clients do every few seconds
    assert await committed(client) == 0
    moved = await client.pull(offset=OLD)
    assert (moved.code, next_offset(moved)) == (ResponseCode.PULL_OFFSET_MOVED, 0)
    found = await client.pull(offset=0)
    assert (found.code, next_offset(found)) == (ResponseCode.SUCCESS, messages)
    assert (await commit(client, 2)).code == ResponseCode.SUCCESS
    assert await committed(client) == 2


async def test_a_pull_that_is_held_moves_when_the_topic_is_created_again(pair: Pair) -> None:
    broker, client = pair
    held = asyncio.ensure_future(client.pull(offset=OLD, sys_flag=6))
    await until(lambda: broker.held)
    await renew(client, 1)
    moved = await held
    assert (moved.code, next_offset(moved)) == (ResponseCode.PULL_OFFSET_MOVED, 0)


async def test_a_pull_at_the_first_message_is_answered_with_messages(pair: Pair) -> None:
    _, client = pair
    await renew(client, 3)
    assert next_offset(await client.pull(offset=0)) == 3


async def test_all_queues_of_a_wide_topic_are_reset(pair: Pair) -> None:
    broker, client = pair
    await delete(client)
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(read_queue_nums=3_000))
    await until(lambda: broker.offsets.is_reset(GROUP, TOPIC, 2_999))
    assert all(broker.offsets.is_reset(GROUP, TOPIC, queue_id) for queue_id in range(3_000))


async def test_after_a_restart_heartbeats_tell_who_is_live(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        for number in range(OLD):
            await client.send(b"old %d" % number)
        await delete(client)
    async with running_broker(tmp_path) as (_, client):
        await client.heartbeat("c1", TOPIC)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for number in range(OLD + 5):
            await client.send(b"new %d" % number)
        moved = await client.pull(offset=OLD)
        assert (moved.code, next_offset(moved)) == (ResponseCode.PULL_OFFSET_MOVED, 0)


async def test_a_group_that_has_left_has_no_reset(pair: Pair) -> None:
    broker, client = pair
    await client.pull(offset=0, group="Gone")
    await commit(client, OLD)
    await client.remoting.close()
    await until(lambda: broker.consumers.group(GROUP) is None)
    other = TestClient(client.address)
    await renew(other, 3)
    assert not broker.offsets.has_resets
    await other.close()


async def popped_of(pair: Pair, *, order: bool, invisible_time: int = 60_000) -> list[Message]:
    return await popped(pair[1], order=order, queue_id=0, invisible_time=invisible_time)


@pytest.mark.parametrize("order", [False, True])
async def test_pops_of_the_old_topic_say_nothing_about_the_new_one(pair: Pair, order: bool) -> None:
    broker, client = pair
    old = await popped_of(pair, order=order)
    assert len(old) == OLD
    await renew(client, 3)
    assert broker.pop.inflight.count(TOPIC, GROUP, 0) == 0
    assert not len(broker.pop.buffer)
    # Its handles come late.
    for message in old[:4]:
        await ack(client, message)
        await change(client, message, 60_000)
    new = await popped_of(pair, order=order)
    assert [message.body for message in new] == [b"new 0", b"new 1", b"new 2"]
    for message in old:
        await ack(client, message)
    assert broker.pop.inflight.count(TOPIC, GROUP, 0) == 3
    for message in new:
        assert (await ack(client, message)).code == ResponseCode.SUCCESS
    assert broker.pop.inflight.count(TOPIC, GROUP, 0) == 0
    await until(lambda: broker.offsets.query(GROUP, TOPIC, 0) == 3)


async def test_what_was_popped_of_the_old_topic_is_not_redelivered_from_the_new_one(pair: Pair) -> None:
    broker, client = pair
    await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=b"popCkStayBufferTime=100\n")
    await popped_of(pair, order=False, invisible_time=2_000)
    await until(lambda: broker.store.max_offset(TIMER_TOPIC, 0) == 1)
    await renew(client, 3)
    new = await popped_of(pair, order=False)
    assert len(new) == 3
    await asyncio.gather(*(ack(client, message) for message in new))
    queue = broker.pop.log.topic
    await until(lambda: broker.store.max_offset(queue, 0) and not broker.revive.queues[0].behind_messages)
    assert broker.store.max_offset(RETRIES, 0) == broker.store.max_offset(f"%RETRY%{GROUP}+{TOPIC}", 0) == 0
