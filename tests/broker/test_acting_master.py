"""A slave acts for its lost master, and hands back what it has done when the master returns."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from ha.hello import MAGIC_BYTES
from sprocket.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from sprocket.remoting.bodies.topic import PERM_READ
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.client import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader
from sprocket.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from tests.broker.group_rig import Cluster, bodies, cluster
from tests.broker.pop.rig import ack, popped
from tests.broker.rig import GROUP, TOPIC, TestClient, create, records
from tests.waiting import until

A, B = "broker-a", "broker-b"


async def start_pair(it: Cluster, **changes: Any) -> tuple[Broker, Broker, TestClient]:
    """Master and slave of one group, in step, and a client of the master."""
    master = await it.start(A, **changes)
    await until(lambda: 0 in it.members(A))
    slave = await it.start(A, 1, **changes)
    await until(lambda: 1 in it.members(A))
    client = it.client(master)
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    await until(lambda: slave.store.wrote_offset == master.store.wrote_offset and TOPIC in slave.topics)
    return master, slave, client


async def in_step(master: Broker, slave: Broker) -> None:
    """The slave has the master's log and offsets."""
    await until(lambda: slave.store.wrote_offset == master.store.wrote_offset)
    await until(lambda: slave.offsets.encode() == master.offsets.encode())
    await until(lambda: slave.schedule.offsets.delivered == master.schedule.offsets.delivered)


async def commit(client: TestClient, queue_id: int, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset
    )
    await client.ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def lock(client: TestClient, client_id: str, *queue_ids: int, only_this: bool = False) -> list[int]:
    queues = [MessageQueue(TOPIC, A, queue_id) for queue_id in queue_ids]
    body = dumps(LockBatchRequestBody(GROUP, client_id, only_this, queues))
    answer = await client.ask_well(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), body)
    return sorted(queue.queue_id for queue in loads(answer.body, LockBatchResponseBody).lock_ok_mq_set)


async def unlock(client: TestClient, client_id: str, *queue_ids: int) -> None:
    body = dumps(LockBatchRequestBody(GROUP, client_id, False, [MessageQueue(TOPIC, A, each) for each in queue_ids]))
    await client.ask_well(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), body)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_consumers_go_on_at_the_slave_and_no_offset_moved_back_when_the_master_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    caplog.set_level("INFO", "broker.slave.slave_sessions")
    async with cluster(tmp_path) as it:
        master, slave, client = await start_pair(it, broker_ip1=host)
        for number in range(10):
            await client.send(b"%d" % number)
        await client.heartbeat("C1", TOPIC)
        await commit(client, 0, 3)
        await in_step(master, slave)
        await it.stop(A)
        await until(lambda: slave.role.is_acting)
        (group,) = it.route(TOPIC).broker_datas
        assert group.broker_addrs == {0: slave.address}  # clients take it for the master
        assert [queues.perm for queues in it.route(TOPIC).queue_datas] == [PERM_READ]
        acting = it.client(slave)
        await acting.heartbeat("C1", TOPIC)
        answer = await acting.pull(offset=3)
        assert answer.code == ResponseCode.SUCCESS
        assert await lock(acting, "C1", 0) == [0]
        assert await lock(acting, "C2", 0) == []
        await commit(acting, 0, 8)
        again = await it.start(A, broker_ip1=host)
        assert not again.presence.members.is_online or slave.role.is_acting
        await until(lambda: 0 in it.members(A))
        assert again.offsets.query(GROUP, TOPIC, 0) == 8
        await until(lambda: not slave.role.is_acting)
        await it.client(again).send(b"more")
        await in_step(again, slave)
        assert bodies(slave, TOPIC) == bodies(again, TOPIC)
        assert slave.offsets.query(GROUP, TOPIC, 0) == 8
    # Nor while the master was about to come: the plain one proves nothing and compares no logs.
    assert "speaks the plain protocol" not in caplog.text


async def test_what_is_due_goes_through_another_master_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        master, slave, client = await start_pair(it)
        other = await it.start(B)
        await it.client(other).ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.heartbeat("C1", TOPIC)
        await it.client(other).heartbeat("C1", TOPIC)
        await client.send(b"now")
        await client.send(b"done")
        messages = await popped(client, invisible_time=3_000)
        assert (await ack(client, messages[1])).code == ResponseCode.SUCCESS
        await client.send(b"delayed", DELAY="3", UNIQ_KEY="0A" * 16)
        await client.send(b"timed", TIMER_DELAY_MS="2500", UNIQ_KEY="0B" * 16)
        await client.send(b"half", TRAN_MSG="true", PGROUP="PG", UNIQ_KEY="0C" * 16)
        await in_step(master, slave)
        end = slave.store.wrote_offset
        await it.stop(A)
        await until(lambda: slave.role.is_acting)
        await until(lambda: {b"delayed", b"timed"} <= set(bodies(other, TOPIC)))
        await until(lambda: bodies(other, TRANS_HALF_TOPIC) == [b"half"])
        retry = f"%RETRY%{GROUP}_{TOPIC}"
        await until(lambda: bodies(other, retry) == [b"now"])
        assert records(other, retry)[0].reconsume_times == 1
        assert slave.store.wrote_offset == end  # nothing of its own
        again = await it.start(A)
        await until(lambda: not slave.role.is_acting)
        # The master knows that all of it is done.
        assert again.store.max_offset(SCHEDULE_TOPIC, 2) == 1
        await until(lambda: again.schedule.offsets.delivered.get(3) == 1)
        await until(lambda: again.timer.timer.queue_offset == again.store.max_offset(TIMER_TOPIC, 0))
        await until(lambda: not again.timer.timer.waiting)
        await until(lambda: again.transactions.open.half_offset == 1)
        await until(lambda: again.revive.queues[0].behind_messages == 0)
        await it.client(again).send(b"last")
        await in_step(again, slave)
        assert bodies(again, TOPIC) == [b"done", b"last", b"now"]
        assert bodies(again, retry) == []
        assert bodies(other, TOPIC) == [b"delayed", b"timed"]
        assert bodies(other, retry) == [b"now"]


async def test_without_escape_what_is_due_waits_for_the_master(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        master, slave, client = await start_pair(it)
        slave.config.update(b"enableRemoteEscape=false")
        other = await it.start(B)
        await it.client(other).ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send(b"delayed", DELAY="1")
        await in_step(master, slave)
        await it.stop(A)
        await until(lambda: slave.role.is_acting)
        await until(lambda: slave.clock.wall_ms() > records(slave, SCHEDULE_TOPIC)[0].store_timestamp + 1_500)
        assert bodies(other, TOPIC) == []
        assert slave.schedule.offsets.delivered.get(1, 0) == 0
        again = await it.start(A)
        await until(lambda: bodies(again, TOPIC) == [b"delayed"])
        assert bodies(other, TOPIC) == []


async def test_the_smallest_of_two_slaves_acts(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        _, first, _ = await start_pair(it)
        second = await it.start(A, 2)
        await until(lambda: set(it.members(A)) == {0, 1, 2})
        await it.stop(A)
        await until(lambda: first.role.is_acting)
        assert not second.role.is_acting
        await it.stop(A, 1)
        await until(lambda: second.role.is_acting)
        assert it.route(TOPIC).broker_datas[0].broker_addrs == {0: second.address}


async def test_a_master_is_isolated_until_its_slave_follows_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with cluster(tmp_path) as it:
        _, slave, _ = await start_pair(it)
        await it.stop(A)
        await until(lambda: slave.role.is_acting)
        assert slave.following is not None
        follow = slave.following.follower.follow
        slave.following.follower.follow = lambda address: None  # type: ignore[method-assign]
        again = await it.start(A)
        await until(lambda: not slave.role.serves_group)  # it has heard, and stands still
        assert slave.role.is_acting
        # Somebody of the slave's host has begun to greet, and shows no log.
        _, writer = await asyncio.open_connection("127.0.0.1", again.config.broker.ha_listen_port)
        writer.write(MAGIC_BYTES)
        await until(lambda: again.replication.listener.connections)
        await asyncio.sleep(1.0)
        assert "event=handover_fetched" not in caplog.text
        assert 0 not in it.members(A)
        writer.close()
        slave.following.follower.follow = follow  # type: ignore[method-assign]
        follow(f"127.0.0.1:{again.config.broker.ha_listen_port}")
        await until(lambda: 0 in it.members(A))
        await until(lambda: not slave.role.is_acting)


async def test_locks_in_strict_mode_need_most_of_the_group(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        master, slave, client = await start_pair(it, lock_in_strict_mode=True, total_replicas=2)
        await client.heartbeat("C1", TOPIC)
        await until(lambda: GROUP in slave.groups)
        await until(lambda: set(master.presence.members.known) == {0, 1})
        other = it.client(slave)
        assert await lock(other, "C2", 1, only_this=True) == [1]
        assert await lock(client, "C1", 0, 1) == [0]
        assert await lock(other, "C2", 0, only_this=True) == []  # the slave knows whose it is
        await unlock(client, "C1", 0)
        assert await lock(other, "C2", 0, only_this=True) == [0]


async def test_a_member_that_falls_silent_is_noticed_and_is_told_what_was_done(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        master, slave, client = await start_pair(it)
        for number in range(9):
            await client.send(b"%d" % number)
        await client.heartbeat("C1", TOPIC)
        await commit(client, 0, 3)
        await in_step(master, slave)
        # Its connections stay; it says nothing more, as one that is stopped or cut off, and registers again.
        master.presence.members.stop()
        await until(lambda: slave.role.is_acting)
        acting = it.client(slave)
        await acting.heartbeat("C1", TOPIC)
        await commit(acting, 0, 8)
        master.presence.members.go_online()
        await until(lambda: not slave.role.is_acting)
        assert master.offsets.query(GROUP, TOPIC, 0) == 8
        await in_step(master, slave)


async def test_the_slave_serves_pops_and_another_master_stores_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        master, slave, client = await start_pair(it)
        other = await it.start(B)
        await it.client(other).ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for each in (client, it.client(other)):
            await each.heartbeat("C1", TOPIC)
        for body in (b"first", b"second", b"third"):
            await client.send(body)
        (before,) = await popped(client, max_msg_nums=1, invisible_time=3_000)
        await in_step(master, slave)
        end = slave.store.wrote_offset
        await it.stop(A)
        await until(lambda: slave.role.is_acting)
        acting = it.client(slave)
        await acting.heartbeat("C1", TOPIC)
        # All messages popped from the master and from the slave are acknowledged here, but for one.
        assert (await ack(acting, before)).code == ResponseCode.SUCCESS
        second, third = await popped(acting, invisible_time=1_500)
        assert [second.body, third.body] == [b"second", b"third"]
        assert (await ack(acting, third)).code == ResponseCode.SUCCESS
        retry = f"%RETRY%{GROUP}_{TOPIC}"
        await until(lambda: bodies(other, retry) == [b"second"])
        await until(lambda: not slave.revive.queues[0].behind_messages and not slave.timer.timer.enqueue_behind)
        await until(lambda: not other.revive.queues[0].behind_messages)
        assert bodies(other, retry) == [b"second"]
        assert slave.store.wrote_offset == end
