"""NOTIFICATION and POLLING_INFO over the wire."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.processor.pop.notification import NotificationService
from broker.server import Broker
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)
from store.record.record import PendingMessage
from tests.broker.insides import service_of
from tests.broker.pop.rig import pop
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker
from tests.waiting import until

Pair = tuple[Broker, TestClient]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """A broker with a topic of two queues."""
    async with running_broker(tmp_path) as pair:
        await pair[1].ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        yield pair


def question(
    queue_id: int = -1,
    poll_time: int = 0,
    topic: str = TOPIC,
    group: str = GROUP,
    order: bool = False,
    exp: str | None = None,
    exp_type: str | None = "TAG",
) -> NotificationRequestHeader:
    return NotificationRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        poll_time=poll_time,
        order=order,
        exp=exp,
        exp_type=exp_type,
    )


async def ask(client: TestClient, header: NotificationRequestHeader) -> tuple[bool, bool | None]:
    response = await client.ask_well(RequestCode.NOTIFICATION, header)
    answer = response.header(NotificationResponseHeader)
    return answer.has_msg, answer.polling_full


def asking(client: TestClient, header: NotificationRequestHeader) -> "asyncio.Task[tuple[bool, bool | None]]":
    return asyncio.create_task(ask(client, header))


def held(broker: Broker) -> int:
    """How many questions are held."""
    return len(service_of(broker, NotificationService).held)


@pytest.mark.code(RequestCode.NOTIFICATION)
async def test_there_is_something_until_it_is_popped(pair: Pair) -> None:
    _, client = pair
    assert await ask(client, question()) == (False, False)
    await client.send(queue_id=1)
    assert await ask(client, question()) == (True, False)
    assert await ask(client, question(queue_id=1)) == (True, False)
    assert await ask(client, question(queue_id=0)) == (False, False)
    assert (await pop(client)).header(PopMessageResponseHeader).rest_num == 0
    assert await ask(client, question()) == (False, False)
    assert await ask(client, question(group="Other")) == (True, False)


@pytest.mark.parametrize(
    ("v2", "with_v1", "retry_topic", "expected"),
    [
        (False, True, "%RETRY%CG_Orders", True),
        (False, True, "%RETRY%CG+Orders", False),
        (True, True, "%RETRY%CG_Orders", True),
        (True, True, "%RETRY%CG+Orders", True),
        (True, False, "%RETRY%CG_Orders", False),
    ],
)
async def test_redelivered_messages_count(
    tmp_path: Path, v2: bool, with_v1: bool, retry_topic: str, expected: bool
) -> None:
    async with running_broker(tmp_path, enable_retry_topic_v2=v2, retrieve_message_from_pop_retry_topic_v1=with_v1) as (
        broker,
        client,
    ):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        waiting = asking(client, question(poll_time=60_000)) if expected else None
        await until(lambda: held(broker) == expected)
        broker.topics.get_or_create(retry_topic, 1)
        broker.store.append([PendingMessage(retry_topic, 0, b"again", b"", 0, 0, 0, 0, bytes(8))])
        if waiting is not None:
            assert await waiting == (True, False)
        assert await ask(client, question(queue_id=1)) == (expected, False)


async def test_a_held_question_is_answered_by_a_message(pair: Pair) -> None:
    broker, client = pair
    any_queue = [asking(client, question(poll_time=60_000)) for _ in range(2)]
    queue_0 = asking(client, question(queue_id=0, poll_time=60_000))
    await until(lambda: held(broker) == 3)
    await client.send(queue_id=1)
    done, _ = await asyncio.wait(any_queue, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [(True, False)]
    assert held(broker) == 2, "one message, one answer"
    await client.send(queue_id=0)
    assert await queue_0 == (True, False)
    assert await asyncio.gather(*any_queue) == [(True, False)] * 2


async def test_a_question_is_answered_when_its_time_is_up(pair: Pair) -> None:
    _, client = pair
    assert await ask(client, question(poll_time=150)) == (False, False)


async def test_no_more_questions_are_held_than_allowed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, max_pop_polling_size=1) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        first = asking(client, question(poll_time=60_000))
        await until(lambda: held(broker) == 1)
        assert await ask(client, question(poll_time=60_000)) == (False, True)
        await client.send()
        assert await first == (True, False)


async def test_only_wanted_messages_are_reported(pair: Pair) -> None:
    broker, client = pair
    await client.send(queue_id=0, TAGS="B")
    assert await ask(client, question(exp="A || C")) == (False, False)
    for exp, kind in (("A || B", "TAG"), ("*", "TAG"), ("A", None), ("", "TAG"), ("TAGS = 'A'", "SQL92")):
        assert await ask(client, question(exp=exp, exp_type=kind)) == (True, False)
    waiting = asking(client, question(exp="A", poll_time=60_000))
    await until(lambda: held(broker) == 1)
    await client.send(queue_id=1, TAGS="B")
    assert await ask(client, question(queue_id=1)) == (True, False)
    assert held(broker) == 1
    await client.send(queue_id=1, TAGS="A")
    assert await waiting == (True, False)
    response = await client.ask(RequestCode.NOTIFICATION, question(exp="a >", exp_type="SQL92"))
    assert response.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_message_filter_num_for_notification": 2}, True),
        ({"max_message_filter_num_for_notification": 3}, False),
        ({"use_message_filter_for_notification": False}, True),
    ],
)
async def test_many_messages_are_reported_without_a_look(
    tmp_path: Path, changes: dict[str, Any], expected: bool
) -> None:
    async with running_broker(tmp_path, **changes) as (_, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for _ in range(2):
            await client.send(TAGS="B")
        assert await ask(client, question(exp="A")) == (expected, False)
        assert await ask(client, question(queue_id=1, exp="A")) == (False, False)


async def test_a_queue_that_is_held_in_order_has_nothing_until_it_is_free(pair: Pair) -> None:
    broker, client = pair
    await client.send(queue_id=0)
    assert (await pop(client, order=True, invisible_time=1_000)).code == ResponseCode.SUCCESS
    await client.send(queue_id=0)
    assert await ask(client, question(order=True)) == (False, False)
    assert await ask(client, question()) == (True, False)
    waiting = asking(client, question(order=True, poll_time=60_000))
    await until(lambda: held(broker) == 1)
    assert await waiting == (True, False), "after the invisible time"


@pytest.mark.code(RequestCode.POLLING_INFO)
async def test_held_pops_are_counted_by_queue(pair: Pair) -> None:
    broker, client = pair

    async def count(queue_id: int) -> int:
        header = PollingInfoRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id)
        response = await client.ask_well(RequestCode.POLLING_INFO, header)
        return response.header(PollingInfoResponseHeader).polling_num

    assert [await count(-1), await count(0)] == [0, 0]
    pops = [asyncio.create_task(pop(client, queue_id=queue_id, poll_time=60_000)) for queue_id in (-1, -1, 0)]
    await until(lambda: len(broker.pop.held) == 3)
    assert [await count(-1), await count(0), await count(1)] == [2, 1, 0]
    for _ in pops:
        await client.send(queue_id=0)
    await asyncio.gather(*pops)


@pytest.mark.parametrize("code", [RequestCode.NOTIFICATION, RequestCode.POLLING_INFO])
async def test_what_is_refused(pair: Pair, code: RequestCode) -> None:
    broker, client = pair

    async def refused(topic: str = TOPIC, queue_id: int = -1, group: str = GROUP) -> tuple[int, str]:
        header = (
            question(queue_id, topic=topic, group=group)
            if code == RequestCode.NOTIFICATION
            else PollingInfoRequestHeader(consumer_group=group, topic=topic, queue_id=queue_id)
        )
        response = await client.ask(code, header)
        return response.code, response.remark or ""

    assert (await refused("Nobody"))[0] == ResponseCode.TOPIC_NOT_EXIST
    code_, remark = await refused(queue_id=2)
    assert code_ == ResponseCode.INVALID_PARAMETER
    assert remark.startswith("queueId[2] is illegal, topic:[Orders] topicConfig.readQueueNums:[2] consumer:[127.0.0.1:")
    assert (await refused(group="a b"))[0] == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    closed = SubscriptionGroupConfig("Closed", consume_enable=False)
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(closed))
    assert await refused(group="Closed") == (ResponseCode.NO_PERMISSION, "subscription group no permission, Closed")
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(perm=2))
    assert await refused() == (ResponseCode.NO_PERMISSION, "the topic[Orders] peeking message is forbidden")
    broker.config.update(b"brokerPermission=2")
    assert await refused() == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] peeking message is forbidden",
    )
