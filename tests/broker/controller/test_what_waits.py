"""Messages that wait for something survive changes of the role: delayed, timed, popped, and in transactions."""

import asyncio
from pathlib import Path

import pytest

from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from tests.broker.controller.rig import Group, group
from tests.broker.pop.rig import ack, popped
from tests.broker.rig import GROUP, TOPIC, TestClient, bodies_in_order, create
from tests.waiting import until

_STORE = {
    "in_sync_replicas": 2,
    "message_delay_level": "1s 2s 3s",
    "timer_precision_ms": 100,
    "timer_flush_interval_ms": 20,
}
_COMMIT = 8


async def change_roles(it: Group, seconds: float) -> None:
    """Let the two replicas lead in turn."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + seconds
    while loop.time() < until_s:
        await it.in_step()
        await it.elect(3 - it.master)
        await until(lambda: it[it.master].broker.replication.replicas.in_sync_slaves())
        await asyncio.sleep(0.3)  # the tables follow


def arrived(it: Group, body: bytes, topic: str = TOPIC) -> bool:
    return body in bodies_in_order(it[it.master].broker, topic)


async def begun(it: Group) -> TestClient:
    """Elect the first replica, make the topic, and wait for the slave."""
    await it.elect(1)
    client = it[1].client
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    await until(lambda: it[1].broker.replication.replicas.in_sync_slaves())
    return client


async def test_delayed_and_timed_messages_arrive_after_changes(tmp_path: Path) -> None:
    async with group(tmp_path, store=_STORE) as it:
        client = await begun(it)
        await client.send(b"delayed", DELAY="3", UNIQ_KEY="0A" * 16)
        await client.send(b"timed", TIMER_DELAY_MS="2500", UNIQ_KEY="0B" * 16)
        await client.send(b"later", TIMER_DELAY_MS="4500", UNIQ_KEY="0D" * 16)
        await change_roles(it, 2.0)
        for body in (b"delayed", b"timed", b"later"):
            await until(lambda body=body: arrived(it, body))  # type: ignore[misc]
        await client.close()


async def test_a_transaction_ends_at_the_next_master(tmp_path: Path) -> None:
    async with group(tmp_path, store=_STORE, transaction_check_interval=100, transaction_time_out=0) as it:
        client = await begun(it)
        half = await client.send(b"half", TRAN_MSG="true", PGROUP="PG", UNIQ_KEY="0C" * 16)
        await client.send(b"silent", TRAN_MSG="true", PGROUP="PG", UNIQ_KEY="0E" * 16)
        await it.in_step()
        await it.elect(2)
        await until(lambda: it[2].broker.replication.replicas.in_sync_slaves())
        check = RequestCode.CHECK_TRANSACTION_STATE
        producer = TestClient(f"127.0.0.1:{it[2].broker.port}", answers={check: None})
        end = EndTransactionRequestHeader(
            topic=TOPIC, producer_group="PG", tran_state_table_offset=half.queue_offset,
            commit_log_offset=int(half.msg_id[-16:], 16), commit_or_rollback=_COMMIT, msg_id="0C" * 16,
            transaction_id="0C" * 16,
        )  # fmt: skip
        await producer.ask_well(RequestCode.END_TRANSACTION, end)
        assert arrived(it, b"half")
        # The other one is asked about by the master that is there now.
        await producer.heartbeat("P1", producer_group="PG")
        await until(lambda: [request for request in producer.asked if request.body.find(b"silent") >= 0])
        assert not [request for request in producer.asked if request.body.find(b"half") >= 0]
        assert not arrived(it, b"silent")
        await producer.close()
        await client.close()


async def test_popped_messages_are_redelivered_or_acknowledged_at_the_next_master(tmp_path: Path) -> None:
    async with group(tmp_path, store=_STORE, revive_interval=50) as it:
        client = await begun(it)
        await client.send(b"forgotten")
        await client.send(b"acknowledged", UNIQ_KEY="0F" * 16)
        await client.heartbeat("C1", TOPIC)
        messages = {one.body: one for one in await popped(client, invisible_time=3_000)}
        assert set(messages) == {b"forgotten", b"acknowledged"}
        await it.in_step()
        await asyncio.sleep(0.5)  # the tables follow
        await it.elect(2)
        second = it[2].client
        await until(lambda: it[2].broker.replication.replicas.in_sync_slaves())
        assert (await ack(second, messages[b"acknowledged"])).code == ResponseCode.SUCCESS
        retry = f"%RETRY%{GROUP}_{TOPIC}"
        await until(lambda: arrived(it, b"forgotten", retry))
        await asyncio.sleep(0.5)
        assert bodies_in_order(it[2].broker, retry) == [b"forgotten"]
        await client.close()
        await second.close()


async def test_offsets_and_members_of_groups_are_there_at_the_next_master(tmp_path: Path) -> None:
    async with group(tmp_path, store=_STORE) as it:
        client = await begun(it)
        for number in range(10):
            await client.send(b"%d" % number)
        second = it[2].client
        # A consumer reports to all brokers of the group.
        await second.heartbeat("C1", TOPIC)
        it[1].broker.offsets.commit(GROUP, TOPIC, 0, 7)
        await until(lambda: it[2].broker.offsets.query(GROUP, TOPIC, 0) == 7)
        await it.elect(2)
        assert it[2].broker.offsets.query(GROUP, TOPIC, 0) == 7
        found = it[2].broker.consumers.group(GROUP)
        assert found is not None and found.client_ids() == ["C1"]
        # With the subscription of its heartbeat.
        assert (await second.pull(offset=7, sys_flag=0)).code == ResponseCode.SUCCESS
        await client.close()
        await second.close()


async def test_a_held_pull_is_answered_by_a_change_and_served_after_it(tmp_path: Path) -> None:
    async with group(tmp_path, store=_STORE) as it:
        client = await begun(it)
        held = asyncio.create_task(client.pull(sys_flag=4 | 2))
        await until(lambda: len(it[1].broker.held) == 1)
        await it.elect(2)
        assert (await held).code == ResponseCode.PULL_NOT_FOUND
        second = it[2].client
        held = asyncio.create_task(second.pull(sys_flag=4 | 2))
        await until(lambda: len(it[2].broker.held) == 1)
        await until(lambda: it[2].broker.replication.replicas.in_sync_slaves())
        await second.send(b"new")
        assert (await held).code == ResponseCode.SUCCESS
        await client.close()
        await second.close()


async def test_a_replica_without_a_master_is_read(tmp_path: Path) -> None:
    """Also where slaves are not: there is nobody else to read from."""
    async with group(tmp_path, 1, slave_read_enable=False) as it:
        await it.elect(1)
        client = it[1].client
        await client.send(b"one")
        await it[1].border.switch.rest()
        assert (await client.pull()).code == ResponseCode.SUCCESS
        with pytest.raises(AssertionError):
            await client.send(b"two")
        await client.close()
