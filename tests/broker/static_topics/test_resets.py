"""Resets of groups in logical queues: back over a move, to the end, and into a gap."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.stats import ResetOffsetBody
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from tests.broker.rig import GROUP, TOPIC, TestClient
from tests.broker.static_topics.rig import A, B, Site, site
from tests.waiting import until

LOGIC = 10_000


@pytest.fixture(name="moved")
async def moved_queue(tmp_path: Path) -> AsyncIterator[Site]:
    """Logical queue 0 has three messages at broker a and two at broker b; the group has read all but the last."""
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await two.created()
        for text in (b"0", b"1", b"2"):
            await two.clients[A].send(text)
        await two.remapped(LOGIC)
        await asyncio.sleep(0.01)  # times have milliseconds
        for text in (b"new", b"newer"):
            await two.clients[B].send(text)
        for client in two.clients.values():
            await client.ask(RequestCode.PULL_MESSAGE, _pull(0, lo=False))  # makes the group
        await commit(two.clients[B], 3)
        await commit(two.clients[B], LOGIC + 1)
        yield two


async def commit(client: TestClient, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset)
    await client.ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def committed(client: TestClient) -> int:
    header = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    return int((await client.ask_well(RequestCode.QUERY_CONSUMER_OFFSET, header)).ext_fields["offset"])


def _pull(offset: int, **changes: Any) -> PullMessageRequestHeader:
    header = PullMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, queue_offset=offset, max_msg_nums=32, sys_flag=4,
        commit_offset=0, suspend_timeout_millis=20_000, subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip
    return msgspec.structs.replace(header, **changes)


async def reset(client: TestClient, timestamp: int, **changes: Any) -> dict[MessageQueue, int]:
    header = ResetOffsetRequestHeader(group=GROUP, topic=TOPIC, timestamp=timestamp, is_force=True)
    header = msgspec.structs.replace(header, **changes)
    response = await client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    return by_queue(loads(response.body, ResetOffsetBody[str]).offset_table)


QUEUE = MessageQueue(TOPIC, LOGICAL_BROKER, 0)


async def test_a_group_goes_back_to_a_broker_that_led_before(moved: Site) -> None:
    client = moved.clients[B]
    assert (await reset(client, 0))[QUEUE] == 0
    # The broker that led before has nothing to reset, and RocketMQ's tool asks it, too.
    assert await reset(moved.clients[A], 0) == {}
    await commit(client, LOGIC + 2)  # of a member that does not know yet
    assert await committed(client) == 0
    response = await client.ask(RequestCode.PULL_MESSAGE, _pull(LOGIC + 1))
    assert (response.code, response.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    assert await committed(client) == 0  # also for a member that starts now
    assert (await client.ask(RequestCode.PULL_MESSAGE, _pull(0))).code == ResponseCode.SUCCESS
    await commit(client, 2)
    assert await committed(client) == 2
    response = await client.ask(RequestCode.PULL_MESSAGE, _pull(3))
    assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    response = await client.ask(RequestCode.PULL_MESSAGE, _pull(LOGIC))
    assert response.code == ResponseCode.SUCCESS
    await commit(client, LOGIC + 2)
    assert await committed(client) == LOGIC + 2


async def test_a_group_skips_its_backlog(moved: Site) -> None:
    client = moved.clients[B]
    await reset(client, 0)
    assert (await reset(client, -1))[QUEUE] == LOGIC + 2
    assert await committed(client) == LOGIC + 2
    assert moved.brokers[A].offsets.query(GROUP, TOPIC, 0) == 3


async def test_a_time_is_searched_in_the_whole_queue(moved: Site) -> None:
    newest = moved.brokers[B].store.earliest_store_time(TOPIC, 1)
    assert (await reset(moved.clients[B], newest))[QUEUE] == LOGIC
    assert (await reset(moved.clients[B], newest - 1))[QUEUE] == LOGIC


@pytest.mark.parametrize(("offset", "place"), [(1, (1, -1)), (5_000, (3, -1)), (LOGIC, (3, 0))])
async def test_an_offset_of_one_queue(moved: Site, offset: int, place: tuple[int, int]) -> None:
    assert await reset(moved.clients[B], 0, queue_id=0, offset=offset) == {QUEUE: offset}
    brokers = moved.brokers
    assert (brokers[A].offsets.query(GROUP, TOPIC, 0), brokers[B].offsets.query(GROUP, TOPIC, 1)) == place


async def test_a_pull_that_waits_moves_at_once(moved: Site) -> None:
    client = moved.clients[B]
    waiting = asyncio.create_task(client.ask(RequestCode.PULL_MESSAGE, _pull(LOGIC + 2, sys_flag=4 | 2)))
    await until(lambda: len(moved.brokers[B].held))
    await reset(client, 0)
    response = await waiting
    assert (response.code, response.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group": "Nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queue_id": 0, "offset": LOGIC + 9}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": 0, "offset": -2}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": 7, "offset": 1}, ResponseCode.NOT_LEADER_FOR_QUEUE),
    ],
)
async def test_refused_resets_change_nothing(moved: Site, changes: dict[str, Any], code: int) -> None:
    header = ResetOffsetRequestHeader(group=GROUP, topic=TOPIC, timestamp=0, is_force=True)
    header = msgspec.structs.replace(header, **changes)
    assert (await moved.clients[B].ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)).code == code
    assert await committed(moved.clients[B]) == LOGIC + 1


async def test_a_broker_that_does_not_answer_refuses_the_reset(moved: Site) -> None:
    await moved.brokers[A].stop()
    try:
        header = ResetOffsetRequestHeader(
            group=GROUP, topic=TOPIC, queue_id=0, offset=LOGIC, timestamp=0, is_force=True
        )
        refused = await moved.clients[B].ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert refused.code == ResponseCode.SYSTEM_ERROR and "broker-a" in (refused.remark or "")
        # No pull moves, so that a repeated reset does all or nothing of it.
        assert (await moved.clients[B].ask(RequestCode.PULL_MESSAGE, _pull(LOGIC + 1))).code == ResponseCode.SUCCESS
    finally:
        await moved.brokers[A].start()
