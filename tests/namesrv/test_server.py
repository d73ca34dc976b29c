"""The name server over real connections: its routes, the removal of brokers, and its notices to brokers."""

import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.common.errors import ConfigError, StoreError
from sprocket.remoting.bodies.route import TopicRouteData
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    UnregisterBrokerRequestHeader,
)
from sprocket.remoting.routes import Action, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from tests.compat.ports import free_port
from tests.namesrv.reports import CLUSTER, header
from tests.namesrv.site import Site, site_at
from tests.waiting import until

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


async def test_every_request_code_is_routed_or_refused_by_name(site: Site) -> None:
    routed = set(site.server.routes.entries)
    assert len(routed) == 23
    for code in RequestCode:
        if code not in routed:
            response = await site.ask(code, expect=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            assert response.remark == f" request type {int(code)} ({code.name}) not supported"
    for entry in site.server.routes.entries.values():
        assert (entry.route.resource, entry.route.action) != (Resource.NONE, Action.NONE)


async def test_a_closed_connection_removes_its_broker_at_once(site: Site) -> None:
    broker = site.connection()
    await site.register(by=broker)
    await broker.close()
    await until(lambda: not site.server.table.live)
    assert await site.addrs() == {}


async def test_a_broker_that_came_back_outlives_its_old_connection(site: Site) -> None:
    before, after = site.connection(), site.connection()
    await site.register(by=before)
    await site.register(by=after)
    await site.ask(
        RequestCode.UNREGISTER_BROKER,
        UnregisterBrokerRequestHeader(broker_name="broker-a", broker_addr=MASTER, cluster_name=CLUSTER, broker_id=0),
        by=before,
    )
    open_before = len(site.server._server.channels)
    await before.close()
    await until(lambda: len(site.server._server.channels) < open_before)
    assert await site.addrs() == {0: MASTER}


@pytest.mark.code(RequestCode.BROKER_HEARTBEAT)
async def test_a_silent_broker_expires_and_its_connection_is_closed(site: Site) -> None:
    broker, lively = site.connection(), site.connection()
    await site.register(by=broker)
    await site.register(header("broker-b", OTHER), by=lively)
    site.clock.advance(60)
    heartbeat = BrokerHeartbeatRequestHeader(cluster_name=CLUSTER, broker_addr=OTHER, broker_name="broker-b")
    await site.ask(RequestCode.BROKER_HEARTBEAT, heartbeat, by=lively)
    site.clock.advance(60.1)
    site.server.scan()
    assert list((await site.cluster()).broker_addr_table) == ["broker-b"]
    await until(lambda: broker.open_channel(site.address) is None)
    assert lively.open_channel(site.address) is not None


async def test_the_scan_runs_by_itself(tmp_path: Path) -> None:
    async with site_at(tmp_path, scan_not_active_broker_interval=1) as site:
        await site.register(header(timeout_ms=1000))
        site.clock.advance(1.1)
        await until(lambda: not site.server.table.live)


async def test_a_step_of_the_wall_clock_expires_nobody(site: Site) -> None:
    await site.register()
    site.clock.step_wall(3_600_000)
    site.server.scan()
    assert await site.addrs() == {0: MASTER}


@asynccontextmanager
async def listening_broker() -> AsyncIterator[tuple[str, list[NotifyMinBrokerIdChangeRequestHeader]]]:
    """A broker's port that records the name server's notices."""
    heard: list[NotifyMinBrokerIdChangeRequestHeader] = []

    def take_down(request: Request[NotifyMinBrokerIdChangeRequestHeader]) -> None:
        heard.append(request.header)

    code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    route = Route(code, NotifyMinBrokerIdChangeRequestHeader, take_down, Resource.CLUSTER, Action.UPDATE)
    server = RemotingServer(RouteTable([route]), ConnectionSettings("127.0.0.1"))
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}", heard
    finally:
        await server.stop()


@pytest.mark.code(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
async def test_members_are_told_when_the_smallest_broker_id_changes(tmp_path: Path) -> None:
    async with (
        site_at(tmp_path, notify_min_broker_id_changed=True, support_acting_master=True) as site,
        listening_broker() as (addr, heard),
    ):
        master = site.connection()
        await site.register(header(addr=addr, broker_id=1, acting=True))
        await site.register(header(acting=True), by=master)
        await until(lambda: len(heard) == 1)
        assert (heard[0].min_broker_id, heard[0].min_broker_addr) == (0, MASTER)
        assert (heard[0].ha_broker_addr, heard[0].offline_broker_addr) == (MASTER + "2", None)
        await master.close()
        await until(lambda: len(heard) == 2)
        assert (heard[1].min_broker_id, heard[1].min_broker_addr) == (1, addr)
        assert heard[1].offline_broker_addr == MASTER
        # The slave is shown as the master, and its topics are read-only.
        route = loads((await site.route()).body, TopicRouteData)
        assert (route.broker_datas[0].broker_addrs, route.queue_datas[0].perm) == ({0: addr}, 4)


async def test_members_are_not_told_by_default_and_one_that_is_away_harms_nobody(site: Site) -> None:
    async with listening_broker() as (addr, heard):
        await site.register(header(addr=addr, broker_id=1, acting=True))
        await site.register(header(acting=True))
        site.server.settings.update(b"notifyMinBrokerIdChanged=true\n")
        await site.register(header("broker-b", "127.0.0.1:1", 1, acting=True))
        await site.register(header("broker-b", OTHER, 0, acting=True))
        await until(lambda: not site.server._tasks)
        assert heard == []
    assert await site.addrs("broker-b") == {0: OTHER, 1: "127.0.0.1:1"}


async def test_a_kv_file_that_is_none_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("[")
    with pytest.raises(ConfigError):
        async with site_at(tmp_path):
            pass


async def test_two_name_servers_know_nothing_of_each_other(tmp_path: Path) -> None:
    async with site_at(tmp_path / "a") as one, site_at(tmp_path / "b") as two:
        await one.register()
        assert await one.addrs() == {0: MASTER}
        assert await two.addrs() == {}


_IDLE = """
import asyncio, pathlib, sys
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer

async def main():
    server = NameServer(NamesrvConfig(listen_port=0, kv_config_path=pathlib.Path(sys.argv[1])))
    await server.start()
    status = pathlib.Path("/proc/self/status").read_text()
    print(int(status.split("VmRSS:")[1].split()[0]), *sorted({"numpy", "store", "broker"} & set(sys.modules)))
    await server.stop()

asyncio.run(main())
"""


def test_an_idle_name_server_is_small_and_brings_no_store(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _IDLE, str(tmp_path / "kvConfig.json")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert printed[1:] == []
    assert int(printed[0]) < 60 * 1024


@pytest.mark.parametrize("step", ["kv_config.load", "access.load", "access.warn"])
async def test_a_start_that_fails_leaves_the_port_free(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise StoreError("planted")

    port = free_port()
    server = NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=port, kv_config_path=tmp_path / "kv.json"))
    part, name = step.split(".")
    monkeypatch.setattr(getattr(server, part), name, fails)
    with pytest.raises(StoreError, match="planted"):
        await server.start()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
    await server.stop()
