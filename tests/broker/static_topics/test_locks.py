"""Locks of a logical queue: at most one client of a group holds it, also while it moves."""

from pathlib import Path

from sprocket.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.client import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader
from tests.broker.rig import GROUP, TOPIC
from tests.broker.static_topics.rig import A, B, Site, item, site
from tests.clock import ManualClock

LOGIC = 10_000
QUEUE = MessageQueue(TOPIC, LOGICAL_BROKER, 0)


async def locks(two: Site, bname: str, client_id: str) -> bool:
    body = dumps(LockBatchRequestBody(GROUP, client_id, mq_set=[QUEUE]))
    response = await two.clients[bname].ask_well(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), body)
    return loads(response.body, LockBatchResponseBody).lock_ok_mq_set == [QUEUE]


async def unlock(two: Site, bname: str, client_id: str) -> None:
    body = dumps(LockBatchRequestBody(GROUP, client_id, mq_set=[QUEUE]))
    await two.clients[bname].ask_well(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), body)


async def ready(two: Site) -> None:
    """Logical queue 0 is led by broker a, and both brokers know the group."""
    await two.created()
    for client in two.clients.values():
        await client.heartbeat("other", TOPIC)


async def test_only_the_leader_locks_a_queue(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await ready(two)
        assert not await locks(two, B, "c1")
        assert await locks(two, A, "c1")
        assert not await locks(two, A, "c2")


async def test_a_client_holds_its_queue_over_a_move(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await ready(two)
        assert await locks(two, A, "c1")
        await two.remapped(LOGIC)
        assert not await locks(two, A, "c1")  # it stops, or finds the new leader
        assert not await locks(two, B, "c2")
        assert await locks(two, B, "c1")
        assert not await locks(two, B, "c2")
        await unlock(two, B, "c1")
        assert await locks(two, B, "c2")
        assert not await locks(two, B, "c1")


async def test_nobody_locks_a_queue_whose_former_leader_may_still_lead(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await ready(two)
        items = [item(0, 0, A, 0), item(1, 1, B, -1)]
        await two.put(B, {0: items, 1: [item(0, 0, B, 0)]}, epoch=2)
        assert not await locks(two, B, "c1")
        assert await locks(two, A, "c1")


async def test_the_locks_of_a_former_leader_that_is_down_end_after_a_minute(tmp_path: Path) -> None:
    clock = ManualClock()
    async with site(tmp_path, auto_create_subscription_group=True, clock=clock) as two:
        await ready(two)
        assert await locks(two, A, "c1")
        await two.remapped(LOGIC)
        await two.brokers[A].stop()
        assert not await locks(two, B, "c2")
        clock.advance(59.0)
        assert not await locks(two, B, "c2")
        clock.advance(2.0)
        assert await locks(two, B, "c2")
        assert not await locks(two, B, "c1")
