"""Idle lite topics are deleted with the offsets in them; those that get messages stay."""

from pathlib import Path

from broker.server import Broker
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import DeleteSubscriptionGroupRequestHeader, DeleteTopicRequestHeader
from sprocket.remoting.message.lite_topics import lite_queue
from tests.broker.lite.rig import GROUP, LIGHT, PARENT, ack, lite_broker, popped, send_lite, subscribe
from tests.broker.rig import running_broker
from tests.clock import ManualClock
from tests.waiting import until

_SHORT = {"min_lite_ttl": 60_000, "lite_ttl_check_interval": 20}


def _has(broker: Broker, lite: str) -> bool:
    return (lite_queue(PARENT, lite), 0) in broker.store.queues()


async def test_an_idle_lite_topic_is_deleted_with_its_offsets_and_starts_again_at_0(tmp_path: Path) -> None:
    clock = ManualClock()
    async with lite_broker(tmp_path, expiration="10", clock=clock, **_SHORT) as (broker, client):
        await subscribe(client, "c1", "idle", "busy")
        for lite in ("idle", "busy"):
            await send_lite(client, lite, b"a")
        for message in await popped(client, "c1"):
            assert (await ack(client, message)).code == ResponseCode.SUCCESS
        clock.advance(9 * 60)
        await send_lite(client, "busy", b"b")
        clock.advance(2 * 60)
        await until(lambda: not _has(broker, "idle"))
        assert _has(broker, "busy")
        assert broker.offsets.query(GROUP, lite_queue(PARENT, "idle"), 0) == -1
        assert broker.offsets.query(GROUP, lite_queue(PARENT, "busy"), 0) == 1
        # The client is still subscribed.
        await send_lite(client, "idle", b"again")
        assert sorted(m.body for m in await popped(client, "c1")) == [b"again", b"b"]


async def test_lite_topics_from_before_the_start_expire_by_their_last_message(tmp_path: Path) -> None:
    clock = ManualClock()
    async with lite_broker(tmp_path, expiration="10", clock=clock) as (_, client):
        await send_lite(client, "old", b"a")
        clock.advance(5 * 60)
        await send_lite(client, "new", b"a")
    async with running_broker(tmp_path, store=LIGHT, clock=clock, **_SHORT) as (broker, client):
        assert _has(broker, "old")
        clock.advance(6 * 60)
        await until(lambda: not _has(broker, "old"))
        assert _has(broker, "new")
        clock.advance(5 * 60)
        await until(lambda: not _has(broker, "new"))


async def test_lite_topics_go_with_their_parent(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (broker, client):
        for number in range(20):
            await send_lite(client, f"s{number}", b"a")
        await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=PARENT))
        await until(lambda: not any(_has(broker, f"s{number}") for number in range(20)))


async def test_offsets_of_lite_topics_survive_a_restart_and_subscriptions_do_not(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (_, client):
        await subscribe(client, "c1", "s1")
        for body in (b"a", b"b"):
            await send_lite(client, "s1", body)
        first, _ = await popped(client, "c1")
        await ack(client, first)
    async with running_broker(tmp_path, store=LIGHT) as (_, client):
        assert await popped(client, "c1") == []
        await subscribe(client, "c1", "s1")
        assert [m.body for m in await popped(client, "c1")] == [b"b"]


async def test_a_deleted_group_of_lite_topics_leaves_no_offsets(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (broker, client):
        await subscribe(client, "c1", "s1")
        await send_lite(client, "s1", b"a")
        for message in await popped(client, "c1"):
            await ack(client, message)
        assert broker.offsets.query(GROUP, lite_queue(PARENT, "s1"), 0) == 1
        header = DeleteSubscriptionGroupRequestHeader(group_name=GROUP, clean_offset=False)
        await client.ask_well(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        assert broker.offsets.query(GROUP, lite_queue(PARENT, "s1"), 0) == -1
