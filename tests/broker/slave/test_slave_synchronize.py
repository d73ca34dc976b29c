"""A slave beside its master in one process: what it asks for, and when."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerRole
from broker.server import Broker
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.remoting.bodies.pop import SetMessageRequestModeRequestBody
from sprocket.remoting.bodies.stats import HARuntimeInfo
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker, stored
from tests.waiting import until

FAST = {
    "ha_session_enable": False,
    "timer_precision_ms": 100,
    "timer_flush_interval_ms": 20,
    "flush_commit_log_least_pages": 0,
}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.slave.slave_synchronize._TURN_S", 0.05)


@asynccontextmanager
async def name_server() -> AsyncIterator[str]:
    server = NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1"))
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


@asynccontextmanager
async def running_slave(root: Path, **changes: Any) -> AsyncIterator[tuple[Broker, TestClient]]:
    """A slave that asks for everything every turn."""
    async with running_broker(root, broker_id=1, broker_role=BrokerRole.SLAVE, **changes) as (slave, client):
        slave.synchronize.all_s = slave.synchronize.checkpoint_s = 0.0
        yield slave, client


@asynccontextmanager
async def pair(root: Path, **changes: Any) -> AsyncIterator[tuple[Broker, TestClient, Broker, TestClient]]:
    async with (
        name_server() as address,
        running_broker(root / "master", namesrv_addr=address, store=FAST, **changes) as (master, client),
    ):
        assert await master.registration.wait_registered(10)
        async with running_slave(root / "slave", namesrv_addr=address, store=FAST) as (slave, other):
            yield master, client, slave, other


def in_step(master: Broker, slave: Broker) -> bool:
    """The same log, and the same tables but for what changes all the time."""
    names = {"topics", "subscriptionGroup", "consumerOffset", "delayOffset", "messageRequestMode"}
    tables = [table for table in master.tables.all if table.name in names]
    copies = [slave.tables.named(table.name) for table in tables]
    same = [copy is not None and copy.encode() == table.encode() for table, copy in zip(tables, copies, strict=True)]
    return slave.store.wrote_offset == master.store.wrote_offset and all(same)


async def test_log_and_tables_of_a_slave_become_those_of_its_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, client, slave, _):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for number in range(20):
            await client.send(b"%d" % number, queue_id=number % 2)
        master.offsets.commit(GROUP, TOPIC, 0, 7)
        master.groups.find(GROUP)
        mode = SetMessageRequestModeRequestBody(TOPIC, GROUP, "POP", 2)
        await client.ask_well(RequestCode.SET_MESSAGE_REQUEST_MODE, body=dumps(mode))
        await client.send(b"later", DELAY="1")
        await until(lambda: master.schedule.offsets.delivered.get(1) == 1)
        await until(lambda: in_step(master, slave))
        assert slave.offsets.query(GROUP, TOPIC, 0) == 7
        assert bytes(stored(slave, TOPIC, 1, 3).body) == b"7"
        # What an operator takes away goes away.
        master.groups.delete(GROUP)
        await until(lambda: GROUP not in slave.groups)


async def test_the_status_of_a_slave_says_what_it_follows(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, client, slave, other):
        await client.send(b"x" * 1000)
        await until(lambda: slave.store.wrote_offset == master.store.wrote_offset)
        started_ms = slave.clock.wall_ms() - 60_000
        response = await other.ask_well(RequestCode.GET_BROKER_HA_STATUS)
        info = loads(bytes(response.body), HARuntimeInfo)
        mine = info.ha_client_runtime_info
        assert not info.master
        assert mine.activated
        assert mine.master_addr == master.registration.ha_address
        assert mine.max_offset == master.store.wrote_offset
        assert started_ms < mine.last_read_timestamp <= slave.clock.wall_ms()
        assert started_ms < mine.last_write_timestamp <= slave.clock.wall_ms()
        names = {"masterAddr", "transferredByteInSecond", "maxOffset", "lastReadTimestamp", "lastWriteTimestamp"}
        assert names <= set(loads(bytes(response.body), dict)["haClientRuntimeInfo"])


class StubMaster:
    """Answers what a slave asks for; `codes` are refused."""

    def __init__(self, answers: dict[RequestCode, bytes]) -> None:
        self.answers = answers
        self.asked: list[int] = []
        table = RouteTable(
            [Route(code, NoHeader, self._answer, Resource.NONE, Action.NONE) for code in answers]
        )  # fmt: skip
        self.server = RemotingServer(table, ConnectionSettings("127.0.0.1"))

    def _answer(self, request: Request[NoHeader]) -> Response:
        self.asked.append(request.code)
        body = self.answers[RequestCode(request.code)]
        return Response(body=body) if body else Response(ResponseCode.SYSTEM_ERROR, "not now")


@asynccontextmanager
async def stub_master(answers: dict[RequestCode, bytes], root: Path) -> AsyncIterator[tuple[StubMaster, Broker]]:
    stub = StubMaster(answers)
    await stub.server.start()
    async with running_slave(root) as (slave, _):
        assert slave.following is not None
        slave.following.master_found(f"127.0.0.1:{stub.server.port}", "")
        slave.synchronize.may_poll = lambda: True  # as if its log had been compared over a plain connection
        try:
            yield stub, slave
        finally:
            await stub.server.stop()


OFFSETS = dumps({"offsetTable": {f"{TOPIC}@{GROUP}": {0: 5}}})
STATUS = dumps({"master": True, "masterCommitLogMaxOffset": 0})
MODES = b'{"messageRequestModeMap":{}}'


async def test_one_table_that_cannot_be_had_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Topics are refused, groups are no JSON, the timer is not known at all; each is told of once."""
    answers = {
        RequestCode.GET_ALL_TOPIC_CONFIG: b"",
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: b"{",
        RequestCode.GET_ALL_CONSUMER_OFFSET: OFFSETS,
        RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{2:9}}',
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: MODES,
        RequestCode.GET_BROKER_HA_STATUS: STATUS,
    }
    with caplog.at_level(logging.INFO):
        async with stub_master(answers, tmp_path) as (stub, slave):
            await until(lambda: slave.offsets.query(GROUP, TOPIC, 0) == 5)
            await until(lambda: slave.schedule.offsets.delivered.get(2) == 9)
            await until(lambda: stub.asked.count(RequestCode.GET_ALL_TOPIC_CONFIG) >= 2)
            topics = len(slave.topics.by_name)
            assert topics > 3
            stub.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = dumps({"topicConfigTable": {}, "dataVersion": {}})
            await until(lambda: not slave.topics.by_name)
            await until(lambda: "event=table_synchronized table=topics" in caplog.text)
            lines = [record.getMessage() for record in caplog.records]
            await stub.server.stop()
            await until(lambda: "event=master_not_asked" in caplog.text)
    for name in ("topics", "subscriptionGroup", "timercheck", "timermetrics"):
        assert sum(f"event=table_not_synchronized table={name} " in line for line in lines) == 1, (name, lines)


@pytest.mark.code(
    RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_BROKER_HA_STATUS
)
async def test_what_was_delivered_waits_for_the_log_that_says_so(tmp_path: Path) -> None:
    """Else a slave that goes on alone would deliver nothing of what it does not have."""
    answers = {
        RequestCode.GET_ALL_CONSUMER_OFFSET: OFFSETS,
        RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{2:9}}',
        RequestCode.GET_BROKER_HA_STATUS: dumps({"master": True, "masterCommitLogMaxOffset": 1}),
    }
    async with stub_master(answers, tmp_path) as (stub, slave):
        await until(lambda: stub.asked.count(RequestCode.GET_ALL_CONSUMER_OFFSET) >= 3)
        assert slave.offsets.query(GROUP, TOPIC, 0) == 5
        assert 2 not in slave.schedule.offsets.delivered
        assert stub.asked.count(RequestCode.GET_ALL_DELAY_OFFSET) == 1
    async with running_broker(tmp_path / "master") as (master, client), stub_master(answers, tmp_path) as (stub, slave):
        await client.send()
        stub.answers[RequestCode.GET_BROKER_HA_STATUS] = dumps({"masterCommitLogMaxOffset": master.store.wrote_offset})
        assert slave.following is not None
        slave.following.follower.follow(f"127.0.0.1:{master.config.broker.ha_listen_port}")
        await until(lambda: slave.schedule.offsets.delivered.get(2) == 9)


async def test_a_master_that_does_not_know_the_status_is_asked_for_its_figures(tmp_path: Path) -> None:
    answers = {
        RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{2:9}}',
        RequestCode.GET_BROKER_RUNTIME_INFO: dumps({"table": {"commitLogMaxOffset": "0"}}),
    }
    async with stub_master(answers, tmp_path) as (_, slave):
        await until(lambda: slave.schedule.offsets.delivered.get(2) == 9)


async def test_nothing_is_asked_unless_the_link_admits_it_or_while_the_slave_acts(tmp_path: Path) -> None:
    answers = {RequestCode.GET_ALL_CONSUMER_OFFSET: OFFSETS, RequestCode.GET_BROKER_HA_STATUS: STATUS}
    may_poll = False
    async with stub_master(answers, tmp_path) as (stub, slave):
        slave.synchronize.may_poll = lambda: may_poll
        await asyncio.sleep(0.3)
        assert not stub.asked
        may_poll = True
        await until(lambda: slave.offsets.query(GROUP, TOPIC, 0) == 5)
        slave.role.act(True)
        asked = len(stub.asked)
        await asyncio.sleep(0.3)
        assert len(stub.asked) == asked


async def test_the_configured_address_is_followed_and_nobody_changes_it_from_outside(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "master") as (master, client):
        await client.send(b"x" * 100)
        address = f"127.0.0.1:{master.config.broker.ha_listen_port}"
        async with running_slave(tmp_path / "slave") as (slave, other):
            response = await other.ask(RequestCode.UPDATE_BROKER_CONFIG, body=f"haMasterAddress={address}".encode())
            assert response.code == ResponseCode.NO_PERMISSION, response.remark
            assert slave.config.store.ha_master_address == ""
        await client.send(b"y" * 100)
        async with running_broker(
            tmp_path / "slave", broker_id=1, broker_role=BrokerRole.SLAVE, store={"ha_master_address": address}
        ) as (slave, _):
            await until(lambda: slave.store.wrote_offset == master.store.wrote_offset)


async def test_a_topic_that_is_not_known_is_asked_for_at_once(tmp_path: Path) -> None:
    """Messages of a new topic come before its configuration: the log is followed, tables are asked for."""
    async with pair(tmp_path) as (master, client, slave, _):
        await until(lambda: in_step(master, slave))
        slave.synchronize.all_s = 3600.0
        slave.synchronize.checkpoint_s = 0.1
        await client.send(b"first of its topic", topic="New")
        await until(lambda: "New" in slave.topics)
        assert slave.topics.get("New") == master.topics.get("New")


# A master that lost its log, or never had this one


async def _filled(root: Path, store: dict[str, Any]) -> None:
    """Leave a slave's store with ten messages, their topic and a group at offset 10; its master's is gone."""
    async with (
        name_server() as address,
        running_broker(root / "master", namesrv_addr=address, store=store) as (master, client),
    ):
        assert await master.registration.wait_registered(10)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        async with running_slave(root / "slave", namesrv_addr=address, store=store) as (slave, _):
            for _ in range(10):
                await client.send(b"of the lost master")
            master.offsets.commit(GROUP, TOPIC, 0, 10)
            await until(lambda: in_step(master, slave) and slave.offsets.query(GROUP, TOPIC, 0) == 10)
    shutil.rmtree(root / "master")


def _has_kept_all(slave: Broker) -> bool:
    return (
        TOPIC in slave.topics and slave.offsets.query(GROUP, TOPIC, 0) == 10 and slave.store.max_offset(TOPIC, 0) == 10
    )


@pytest.mark.parametrize("has_sessions", [True, False])
async def test_a_master_with_an_empty_disk_takes_no_table_from_its_slave(tmp_path: Path, has_sessions: bool) -> None:
    """It began to listen after the slave asked what it speaks, and before the next table is due."""
    settings = FAST | {"ha_session_enable": has_sessions}
    await _filled(tmp_path, settings)
    async with running_slave(tmp_path / "slave", store=settings) as (slave, _):
        following = slave.following
        assert following is not None
        following.master_found("127.0.0.1:9", "127.0.0.1:9")
        await asyncio.sleep(0.2)  # the question has failed
        async with running_broker(tmp_path / "master", store=settings) as (master, _):
            following.master_found(master.address, "")
            await asyncio.sleep(1.0)
            assert _has_kept_all(slave)
            # Also once its log is followed, or would be.
            following.master_found(master.address, f"127.0.0.1:{master.config.broker.ha_listen_port}")
            await asyncio.sleep(1.0)
            assert _has_kept_all(slave)


async def test_a_plain_link_that_outlives_its_master_vouches_for_no_other_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine lost power and came back empty: the old connection stays for haHousekeepingInterval."""
    await _filled(tmp_path, FAST)
    answers = {
        RequestCode.GET_ALL_TOPIC_CONFIG: dumps({"topicConfigTable": {}, "dataVersion": {}}),
        RequestCode.GET_ALL_CONSUMER_OFFSET: OFFSETS,
        RequestCode.GET_BROKER_HA_STATUS: STATUS,
    }
    async with stub_master(answers, tmp_path / "slave") as (stub, slave):
        await until(lambda: stub.asked.count(RequestCode.GET_BROKER_HA_STATUS) >= 3)
        assert set(stub.asked) == {RequestCode.GET_BROKER_HA_STATUS}
        assert _has_kept_all(slave)
        assert caplog.text.count("this slave keeps its own tables") == 1
        stub.answers[RequestCode.GET_BROKER_HA_STATUS] = dumps({"masterCommitLogMaxOffset": 1 << 20})
        await until(lambda: TOPIC not in slave.topics)


async def test_a_master_whose_log_is_not_followed_is_asked_for_nothing(tmp_path: Path) -> None:
    """However long its log is: another broker may answer at that address."""
    await _filled(tmp_path, FAST)
    answers = {
        RequestCode.GET_ALL_TOPIC_CONFIG: dumps({"topicConfigTable": {}, "dataVersion": {}}),
        RequestCode.GET_BROKER_HA_STATUS: dumps({"masterCommitLogMaxOffset": 1 << 30}),
    }
    stub = StubMaster(answers)
    await stub.server.start()
    async with running_slave(tmp_path / "slave", store=FAST) as (slave, _):
        assert slave.following is not None
        slave.following.master_found(f"127.0.0.1:{stub.server.port}", "127.0.0.1:9")
        await asyncio.sleep(0.5)
        assert not stub.asked
        assert _has_kept_all(slave)
    await stub.server.stop()
