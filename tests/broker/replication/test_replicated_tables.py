"""What a slave takes over beside the log."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerRole
from broker.replication.replicated_tables import ReplicatedTables
from broker.server import Broker
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.pop import SetMessageRequestModeRequestBody
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.message.properties import parse
from store.delivery import OwnLog
from tests.broker.insides import core_of
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker, stored
from tests.waiting import until

FAST = {"timer_precision_ms": 100, "timer_flush_interval_ms": 20, "flush_commit_log_least_pages": 0}
Running = AbstractAsyncContextManager[tuple[Broker, TestClient]]


def running_slave(root: Path, **changes: Any) -> Running:
    return running_broker(root, broker_id=1, broker_role=BrokerRole.SLAVE, **changes)


@asynccontextmanager
async def pair(root: Path, **changes: Any) -> AsyncIterator[tuple[Broker, TestClient, Broker]]:
    """A master, a client of it, and a slave that follows its log; tables go over when a test says so."""
    async with (
        running_broker(root / "master", ha_listen_port=0, **changes) as (master, client),
        running_slave(root / "slave", **changes) as (slave, _),
    ):
        assert slave.following is not None
        slave.following.follower.follow(f"127.0.0.1:{master.config.broker.ha_listen_port}")
        yield master, client, slave


def copy_all(source: ReplicatedTables, target: ReplicatedTables) -> None:
    for table in source.all:
        found = target.named(table.name)
        assert found is not None
        found.apply(table.encode())


def contents(tables: ReplicatedTables) -> dict[str, bytes]:
    return {table.name: table.encode() for table in tables.all}


async def test_a_slave_holds_what_its_master_holds_and_keeps_it_over_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "master") as (master, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        master.groups.update([SubscriptionGroupConfig(GROUP, retry_max_times=3)])
        master.groups.forbid(GROUP, TOPIC, 4)
        master.offsets.commit(GROUP, TOPIC, 0, 77)
        master.offsets.commit(GROUP, TOPIC, 1, 78)
        master.schedule.offsets.place(3, 5)
        mode = SetMessageRequestModeRequestBody(TOPIC, GROUP, "POP", 2)
        await client.ask_well(RequestCode.SET_MESSAGE_REQUEST_MODE, body=dumps(mode))
        master.pop.order_info.update(None, TOPIC, GROUP, 1, master.clock.wall_ms(), 60_000, [3, 4], [])
        master.timer.metrics.add(TOPIC, 2)
        items = {"0": [LogicQueueMappingItem(0, 0, "broker-a", 0)]}
        core_of(master).mappings.put(TOPIC, TopicQueueMappingDetail(TOPIC, hosted_queues=items))
        expected = contents(master.tables)
        async with running_slave(tmp_path / "slave") as (slave, _):
            slave.topics.update([TopicConfig("OnlyHere")])
            slave.offsets.commit("Gone", "OnlyHere", 0, 1)
            copy_all(master.tables, slave.tables)
            assert contents(slave.tables) == expected
            assert "OnlyHere" not in slave.topics
            assert core_of(slave).mappings.by_name == core_of(master).mappings.by_name
        async with running_slave(tmp_path / "slave") as (slave, _):
            assert contents(slave.tables) == expected


async def test_a_table_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    async with running_slave(tmp_path) as (slave, _):
        before = contents(slave.tables)
        for table in slave.tables.all:
            for content in (b"", b"[", b"7", b"\xff" * 20):
                with pytest.raises(ProtocolError):
                    table.apply(content)
        assert contents(slave.tables) == before


async def test_marks_differ_after_a_change_only(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        tables = broker.tables
        before = {table.name: table.mark() for table in tables.all}
        contents(tables)
        assert {table.name: table.mark() for table in tables.all} == before
        broker.offsets.commit(GROUP, TOPIC, 0, 1)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        changed = {table.name for table in tables.all if table.mark() != before[table.name]}
        assert changed == {"topics", "consumerOffset"}


async def test_offsets_beyond_the_log_are_kept_until_the_slave_serves(tmp_path: Path) -> None:
    """The rest of the log is still to come, unless the slave is to act for its master."""
    async with running_slave(tmp_path) as (slave, _):
        slave.tables.consumer_offsets.apply(dumps({"offsetTable": {f"{TOPIC}@{GROUP}": {0: 500}}}))
        slave.tables.delay_offsets.apply(dumps({"offsetTable": {3: 500}}))
    async with running_slave(tmp_path) as (slave, _):
        assert slave.offsets.query(GROUP, TOPIC, 0) == 500
        slave.role.act(True)
        assert slave.offsets.query(GROUP, TOPIC, 0) == 0
        assert slave.schedule.offsets.delivered[3] == 0


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_acting_slave_goes_on_where_the_masters_timer_was(tmp_path: Path, restarts: bool) -> None:
    """The new wheel gets the messages that wait, and none that the master delivered."""
    async with pair(tmp_path, store=FAST) as (master, client, slave):
        await client.send(b"first", TIMER_DELAY_MS="100")
        await client.send(b"second", TIMER_DELAY_MS="900")
        await until(lambda: master.store.max_offset(TOPIC, 0) == 1)
        due_ms = int(parse(str(stored(master, TOPIC, 0, 0).properties, "utf-8"))["TIMER_OUT_MS"])
        await until(lambda: master.timer.timer.checkpoint.progress.read_ms > due_ms)
        await until(lambda: slave.store.wrote_offset == master.store.wrote_offset)
        copy_all(master.tables, slave.tables)
        if not restarts:
            master.timer.deactivate()
            # In place of another master of the cluster.
            core_of(slave).delivery.deliver = OwnLog(master.store).deliver  # type: ignore[method-assign]
            slave.role.act(True)
            assert slave.timer.timer.queue_offset == 0
            await until(lambda: master.store.max_offset(TOPIC, 0) == 2)
            assert slave.timer.metrics.by_topic[TOPIC].count == 0
            slave.role.act(False)
    if restarts:
        # The slave's directory, taken for a master's.
        async with running_broker(tmp_path / "slave", store=FAST) as (broker, _):
            await until(lambda: broker.store.max_offset(TOPIC, 0) > 1)
            assert [bytes(stored(broker, TOPIC, 0, offset).body) for offset in range(2)] == [b"first", b"second"]
            assert broker.store.max_offset(TOPIC, 0) == 2


async def test_a_master_that_lost_its_tables_takes_the_mappings_back(tmp_path: Path) -> None:
    items = {"0": [LogicQueueMappingItem(0, 0, "broker-a", 0)]}
    async with running_broker(tmp_path / "one") as (one, client), running_broker(tmp_path / "two") as (two, _):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        core_of(one).mappings.put(TOPIC, TopicQueueMappingDetail(TOPIC, epoch=1, hosted_queues=items))
        core_of(two).mappings.put("Own", TopicQueueMappingDetail("Own", epoch=2, hosted_queues=items))
        two.tables.install([(table.name, table.encode()) for table in one.tables.all])
        epochs = {topic: detail.epoch for topic, detail in core_of(two).mappings.by_name.items()}
        assert epochs == {TOPIC: 1, "Own": 2}
        assert TOPIC in two.topics
    async with running_broker(tmp_path / "two") as (two, _):
        assert set(core_of(two).mappings.by_name) == {TOPIC, "Own"}
