"""Lite topics over a socket: sends, subscriptions, pops, acknowledgements, redelivery and order."""

import asyncio
from pathlib import Path

import pytest

from sprocket.remoting.bodies.lite import OffsetOption, OffsetOptionType
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.lite_topics import lite_queue
from tests.broker.lite.rig import (
    GROUP,
    PARENT,
    ack,
    change_invisible,
    change_subscriptions,
    lite_broker,
    pop,
    popped,
    send_lite,
    subscribe,
)
from tests.broker.rig import TestClient, bodies_in_order, create, running_broker
from tests.send_headers import send_header


def _success(response: object) -> None:
    assert getattr(response, "code", None) == ResponseCode.SUCCESS, response


@pytest.mark.code(RequestCode.POP_LITE_MESSAGE)
async def test_messages_of_two_lite_topics_come_in_one_pop_each_topic_in_order(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (broker, client):
        await subscribe(client, "c1", "s1", "s2")
        for number in range(3):
            await send_lite(client, "s1", b"1-%d" % number)
            await send_lite(client, "s2", b"2-%d" % number)
        await send_lite(client, "other", b"of nobody")
        found = await popped(client, "c1")
        assert [m.body for m in found if m.lite == "s1"] == [b"1-0", b"1-1", b"1-2"]
        assert [m.body for m in found if m.lite == "s2"] == [b"2-0", b"2-1", b"2-2"]
        assert len(found) == 6
        assert len(bodies_in_order(broker, PARENT)) == 7  # all are in the parent too
        assert await popped(client, "c1") == []


async def test_a_lite_topic_waits_until_its_messages_are_acknowledged_and_another_does_not(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (broker, client):
        await subscribe(client, "c1", "s1", "s2")
        await send_lite(client, "s1", b"first")
        (first,) = await popped(client, "c1")
        await send_lite(client, "s1", b"second")
        await send_lite(client, "s2", b"aside")
        (aside,) = await popped(client, "c1")
        assert aside.body == b"aside"
        _success(await ack(client, first))
        (second,) = await popped(client, "c1")
        assert second.body == b"second"
        _success(await ack(client, second))
        _success(await ack(client, second))  # again: no effect
        assert broker.offsets.query(GROUP, lite_queue(PARENT, "s1"), 0) == 2


async def test_an_unacknowledged_message_comes_again_with_its_count(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (_, client):
        await subscribe(client, "c1", "s1")
        await send_lite(client, "s1", b"a")
        await send_lite(client, "s1", b"b")
        first = await popped(client, "c1", invisible_time=300)
        assert [m.count for m in first] == [0, 0]
        _success(await ack(client, first[0]))
        (again,) = await popped(client, "c1", poll_time=10_000)
        assert (again.body, again.count) == (b"b", 1)
        late = await ack(client, first[1])  # its handle is of the earlier pop
        assert late.code == ResponseCode.SUCCESS
        assert await popped(client, "c1") == []


async def test_a_held_pop_is_answered_by_a_message(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (_, client):
        await subscribe(client, "c1", "s1")
        waiting = asyncio.create_task(popped(client, "c1", poll_time=30_000))
        await client.ask(RequestCode.GET_BROKER_LITE_INFO)  # the pop is held before this answer
        assert not waiting.done()
        await send_lite(client, "s1", b"news")
        (message,) = await waiting
        assert message.body == b"news"


async def test_a_changed_invisible_time_ends_early_and_a_suspended_pop_counts_no_delivery(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (_, client):
        await subscribe(client, "c1", "s1")
        await send_lite(client, "s1", b"a")
        (first,) = await popped(client, "c1")
        _success(await change_invisible(client, first, 200))
        (second,) = await popped(client, "c1", poll_time=10_000)
        assert second.count == 1
        _success(await change_invisible(client, second, 200, suspend=True))
        (third,) = await popped(client, "c1", poll_time=10_000)
        assert third.count == 1


@pytest.mark.code(RequestCode.LITE_SUBSCRIPTION_CTL)
async def test_messages_sent_before_the_subscription_are_found(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (_, client):
        await send_lite(client, "s1", b"early")
        _success(await change_subscriptions(client, "c1", "COMPLETE_ADD", "s1", "s2"))
        (message,) = await popped(client, "c1")
        assert message.body == b"early"


async def test_an_offset_option_moves_the_group(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (_, client):
        for number in range(4):
            await send_lite(client, "s1", b"%d" % number)
        await subscribe(client, "c1", "s1", option=OffsetOption(OffsetOptionType.POLICY, 2))
        assert await popped(client, "c1") == []
        _success(await change_subscriptions(client, "c1", "PARTIAL_REMOVE", "s1"))
        await subscribe(client, "c1", "s1", option=OffsetOption(OffsetOptionType.TAIL_N, 1))
        assert [m.body for m in await popped(client, "c1")] == [b"3"]
        await subscribe(client, "c2", "s1", option=OffsetOption(OffsetOptionType.OFFSET, 2))
        assert [m.body for m in await popped(client, "c2")] == [b"2", b"3"]


async def test_an_exclusive_lite_topic_goes_to_the_last_subscriber_and_the_other_is_told(tmp_path: Path) -> None:
    async with lite_broker(tmp_path, group={"sub.model": "Exclusive"}) as (_, client):
        first = TestClient(client.address, answers={RequestCode.NOTIFY_UNSUBSCRIBE_LITE: None})
        try:
            await subscribe(first, "c1", "s1", "s2")
            await send_lite(client, "s1", b"a")
            await subscribe(client, "c2", "s1")
            assert await popped(first, "c1") == []
            assert [m.body for m in await popped(client, "c2")] == [b"a"]
            # The first client still states its whole old set: it is told again.
            _success(await change_subscriptions(first, "c1", "COMPLETE_ADD", "s1", "s2"))
            assert [request.code for request in first.asked] == [RequestCode.NOTIFY_UNSUBSCRIBE_LITE] * 2
            await send_lite(client, "s2", b"b")
            assert [m.body for m in await popped(first, "c1")] == [b"b"]
        finally:
            await first.close()


async def test_a_wildcard_group_gets_all_lite_topics_of_its_parent(tmp_path: Path) -> None:
    async with lite_broker(tmp_path, group={"sub.wildcard": "true"}) as (_, client):
        await send_lite(client, "s1", b"early")
        _success(await change_subscriptions(client, "c1", "COMPLETE_ADD"))
        _success(await change_subscriptions(client, "c2", "COMPLETE_ADD"))
        refused = await change_subscriptions(client, "c1", "PARTIAL_ADD", "s1")
        assert refused.code == ResponseCode.ILLEGAL_OPERATION
        await send_lite(client, "s2", b"late")
        bodies = [m.body for one in ("c1", "c2") for m in await popped(client, one)]
        assert bodies == [b"early", b"late"]


async def test_a_client_that_disconnects_leaves_its_events_to_others(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (_, client):
        other = TestClient(client.address)
        await subscribe(other, "gone", "s1")
        await subscribe(client, "stays", "s1")
        for number in range(4):
            await send_lite(client, "s1", b"%d" % number)
        await other.close()
        found = await popped(client, "stays", poll_time=10_000)
        assert [m.body for m in found] == [b"0", b"1", b"2", b"3"]


async def test_quotas_refuse_subscriptions_and_new_lite_topics(tmp_path: Path) -> None:
    async with lite_broker(tmp_path, store={"max_lmq_consume_queue_num": 2}, max_lite_subscription_count=3) as (
        _,
        client,
    ):
        await subscribe(client, "c1", "s1", "s2", "s3")
        await subscribe(client, "c1", "s1", "s2", "s3")  # no new one
        refused = await change_subscriptions(client, "c2", "PARTIAL_ADD", "s1")
        assert refused.code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        await send_lite(client, "s1", b"a")
        await send_lite(client, "s2", b"a")
        header = send_header(PARENT, queue_id=0, properties=names.encode({names.LITE_TOPIC: "s3"}))
        full = await client.ask(RequestCode.SEND_MESSAGE_V2, header, b"a")
        assert full.code == ResponseCode.LMQ_QUOTA_EXCEEDED


async def test_a_broker_without_light_queues_refuses_lite_sends_and_pops(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(PARENT))
        header = send_header(PARENT, queue_id=0, properties=names.encode({names.LITE_TOPIC: "s1"}))
        refused = await client.ask(RequestCode.SEND_MESSAGE_V2, header, b"a")
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert "enableLmq" in (refused.remark or "")
        response = await pop(client, "c1")
        assert response.code == ResponseCode.INVALID_PARAMETER
        assert "enableLmq" in (response.remark or "")


async def test_only_the_bound_group_pops_and_acknowledges(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (_, client):
        await subscribe(client, "c1", "s1")
        await send_lite(client, "s1", b"a")
        (message,) = await popped(client, "c1")
        other = await pop(client, "c1", consumer_group="Other")
        assert other.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (await ack(client, message, consumer_group="Other")).code == ResponseCode.INVALID_PARAMETER
        assert (await ack(client, message, offset=99)).code == ResponseCode.NO_MESSAGE
        assert (await ack(client, message, queue_id=1)).code == ResponseCode.INVALID_PARAMETER
        wrong = await change_subscriptions(client, "c1", "PARTIAL_ADD", "s1", topic="Elsewhere")
        assert wrong.code == ResponseCode.INVALID_PARAMETER
