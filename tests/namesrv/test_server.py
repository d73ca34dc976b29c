"""The name server over real connections."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from remoting.bodies.registration import RegisterBrokerBody
from remoting.bodies.route import ClusterInfo, GetBrokerMemberGroupResponseBody, QueueData, TopicRouteData
from remoting.bodies.topic import DataVersion, TopicList
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ReceivedResponse, Request
from remoting.fastjson import dumps, loads
from remoting.frames import encode_request
from remoting.headers.admin import GetBrokerMemberGroupRequestHeader
from remoting.headers.base import Header
from remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnregisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from remoting.routes import Action, Resource, Route, RouteTable
from remoting.server import RemotingServer
from sprocket.common.clock import ManualClock
from sprocket.common.errors import ConfigError
from tests.namesrv.reports import CLUSTER, body, header

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
WAIT_S = 10.0


class Site:
    """A name server, a clock in the hand of the test, and the connections to it."""

    def __init__(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        self.clock = ManualClock()
        self.kv_config_path = tmp_path / "kvConfig.json"
        config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=self.kv_config_path, **changes)
        self.server = NameServer(config, clock=self.clock)
        self.clients: list[RemotingClient] = []
        self.client = self.connection()

    def connection(self) -> RemotingClient:
        self.clients.append(RemotingClient())
        return self.clients[-1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def ask(
        self,
        code: RequestCode,
        of: Header | None = None,
        content: bytes = b"",
        expect: ResponseCode = ResponseCode.SUCCESS,
        by: RemotingClient | None = None,
    ) -> ReceivedResponse:
        response = await (by or self.client).invoke(self.address, code, of, content, timeout_s=WAIT_S)
        assert response.code == expect, response.remark
        return response

    async def register(
        self,
        to: RegisterBrokerRequestHeader | None = None,
        of: RegisterBrokerBody | None = None,
        by: RemotingClient | None = None,
    ) -> ReceivedResponse:
        return await self.ask(RequestCode.REGISTER_BROKER, to or header(), (of or body()).encode(False), by=by)

    async def route(self, topic: str = "t", expect: ResponseCode = ResponseCode.SUCCESS) -> ReceivedResponse:
        request = GetRouteInfoRequestHeader(topic=topic)
        return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, request, expect=expect)

    async def queues(self, topic: str = "t") -> list[QueueData]:
        return loads((await self.route(topic)).body, TopicRouteData).queue_datas

    async def cluster(self) -> ClusterInfo:
        return loads((await self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body, ClusterInfo)

    async def addrs(self, name: str = "broker-a") -> dict[int, str]:
        group = (await self.cluster()).broker_addr_table.get(name)
        return {} if group is None else group.broker_addrs

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def site_at(tmp_path: Path, **changes: Any) -> AsyncIterator[Site]:
    site = Site(tmp_path, changes)
    await site.server.start()
    try:
        yield site
    finally:
        for client in site.clients:
            await client.close()
        await site.server.stop()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_at(tmp_path) as opened:
        yield opened


def as_client(version: int, fields: dict[str, str]) -> bytes:
    """A route request of a client of any version."""
    encoded = encode_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, fields)
    size = int.from_bytes(encoded[5:8], "big")
    changed = json.dumps({**json.loads(encoded[8 : 8 + size]), "version": version}).encode()
    return (4 + len(changed)).to_bytes(4, "big") + len(changed).to_bytes(4, "big") + changed


async def raw_route(site: Site, version: int, **fields: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.server.port)
    try:
        writer.write(as_client(version, {"topic": "t", **fields}))
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
        return frame[4 + int.from_bytes(frame[1:4], "big") :]
    finally:
        writer.close()


async def test_every_request_code_is_routed_or_refused_by_name(site: Site) -> None:
    routed = set(site.server.routes.entries)
    assert len(routed) == 23
    for code in RequestCode:
        if code not in routed:
            response = await site.ask(code, expect=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            assert response.remark == f" request type {int(code)} ({code.name}) not supported"
    for entry in site.server.routes.entries.values():
        assert (entry.route.resource, entry.route.action) != (Resource.NONE, Action.NONE)


async def test_a_broker_registers_and_a_client_finds_its_topic(site: Site) -> None:
    await site.register()
    await site.register(header(addr=SLAVE, broker_id=1))
    route = loads((await site.route()).body, TopicRouteData)
    assert route.queue_datas == [QueueData("broker-a", 4, 4, 6, 0)]
    assert route.broker_datas[0].broker_addrs == {0: MASTER, 1: SLAVE}
    info = await site.cluster()
    assert info.cluster_addr_table == {CLUSTER: ["broker-a"]}
    topics = await site.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert sorted(loads(topics.body, TopicList).topic_list) == ["t", "u"]


async def test_a_slave_hears_where_its_master_is(site: Site) -> None:
    await site.register()
    answer = (await site.register(header(addr=SLAVE, broker_id=1))).header(RegisterBrokerResponseHeader)
    assert (answer.master_addr, answer.ha_server_addr) == (MASTER, MASTER + "2")


async def test_a_compressed_body_with_its_checksum(site: Site) -> None:
    content = body(["x", "y"]).encode(True)
    request = header()
    request.compressed, request.body_crc32 = True, zlib.crc32(content) & 0x7FFFFFFF
    await site.ask(RequestCode.REGISTER_BROKER, request, content)
    assert [q.read_queue_nums for q in await site.queues("x")] == [4]


async def test_a_body_that_does_not_match_its_checksum_is_refused(site: Site) -> None:
    request = header()
    request.body_crc32 = 1
    response = await site.ask(
        RequestCode.REGISTER_BROKER, request, body().encode(False), expect=ResponseCode.SYSTEM_ERROR
    )
    assert response.remark == "crc32 not match"
    assert await site.addrs() == {}


async def test_bodies_that_are_none_are_refused_and_leave_no_trace(site: Site) -> None:
    for content, compressed in ((b"{", False), (b'{"filterServerList":7}', False), (b"not zlib", True)):
        request = header()
        request.compressed = compressed
        await site.ask(RequestCode.REGISTER_BROKER, request, content, expect=ResponseCode.SYSTEM_ERROR)
    bomb = zlib.compress(bytes(80_000_000), 1)
    request = header()
    request.compressed = True
    response = await site.ask(RequestCode.REGISTER_BROKER, request, bomb, expect=ResponseCode.SYSTEM_ERROR)
    assert "inflates beyond" in (response.remark or "")
    assert await site.addrs() == {}


async def test_a_single_topic_of_an_unknown_broker_is_refused(site: Site) -> None:
    response = await site.ask(
        RequestCode.REGISTER_BROKER, header(), body(["t"]).encode(False), expect=ResponseCode.SYSTEM_ERROR
    )
    assert response.remark == "register broker failed"


async def test_a_registration_is_answered_with_the_order_configuration(site: Site) -> None:
    assert (await site.register()).body == b""
    await site.ask(
        RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="t", value="broker-a:4")
    )
    assert json.loads((await site.register()).body) == {"table": {"t": "broker-a:4"}}
    await site.ask(RequestCode.UPDATE_NAMESRV_CONFIG, content=b"returnOrderTopicConfigToBroker=false\n")
    assert (await site.register()).body == b""


async def test_whether_the_tables_of_a_broker_are_known(site: Site) -> None:
    request = QueryDataVersionRequestHeader(
        broker_name="broker-a", broker_addr=MASTER, cluster_name=CLUSTER, broker_id=0
    )

    async def query(version: int) -> tuple[bool, bytes]:
        content = dumps(DataVersion(0, 1000, version))
        response = await site.ask(RequestCode.QUERY_DATA_VERSION, request, content)
        return response.header(QueryDataVersionResponseHeader).changed, response.body

    assert await query(1) == (True, b"")
    await site.register()
    changed, known = await query(1)
    assert not changed
    assert loads(known, DataVersion) == DataVersion(0, 1000, 1)
    assert (await query(2))[0]


async def test_a_broker_unregisters(site: Site) -> None:
    await site.register()
    await site.ask(
        RequestCode.UNREGISTER_BROKER,
        UnregisterBrokerRequestHeader(broker_name="broker-a", broker_addr=MASTER, cluster_name=CLUSTER, broker_id=0),
    )
    assert await site.addrs() == {}
    response = await site.route(expect=ResponseCode.TOPIC_NOT_EXIST)
    assert response.remark == (
        "No topic route info in name server for the topic: t"
        "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


async def test_a_closed_connection_removes_its_broker_at_once(site: Site) -> None:
    broker = site.connection()
    await site.register(by=broker)
    await broker.close()
    await site.until(lambda: not site.server.table.live)
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
    await site.until(lambda: len(site.server._server.channels) < open_before)
    assert await site.addrs() == {0: MASTER}


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
    await site.until(lambda: broker.open_channel(site.address) is None)
    assert lively.open_channel(site.address) is not None


async def test_the_scan_runs_by_itself(tmp_path: Path) -> None:
    async with site_at(tmp_path, scan_not_active_broker_interval=1) as site:
        await site.register(header(timeout_ms=1000))
        site.clock.advance(1.1)
        await site.until(lambda: not site.server.table.live)


async def test_a_step_of_the_wall_clock_expires_nobody(site: Site) -> None:
    await site.register()
    site.clock.step_wall(3_600_000)
    site.server.scan()
    assert await site.addrs() == {0: MASTER}


async def test_old_clients_get_the_dialect_and_new_ones_standard_json(site: Site) -> None:
    await site.register()
    assert b'{0:"10.0.0.1:10911"}' in await raw_route(site, 400)
    assert b'{"0":"10.0.0.1:10911"}' in await raw_route(site, 401)
    assert b'{"0":"10.0.0.1:10911"}' in await raw_route(site, 0, acceptStandardJsonOnly="true")


async def test_a_client_in_a_zone_gets_the_groups_of_its_zone(site: Site) -> None:
    await site.register(header(zone="east"))
    await site.register(header("broker-b", OTHER, zone="west"))
    near = loads(await raw_route(site, 479, __ZONE_MODE="true", __ZONE_NAME="west"), TopicRouteData)
    assert [group.broker_name for group in near.broker_datas] == ["broker-b"]
    everywhere = loads(await raw_route(site, 479, __ZONE_NAME="west"), TopicRouteData)
    assert len(everywhere.broker_datas) == 2


async def test_routes_carry_the_order_configuration_where_enabled(tmp_path: Path) -> None:
    async with site_at(tmp_path, order_message_enable=True) as site:
        await site.register()
        put = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="t", value="broker-a:4")
        await site.ask(RequestCode.PUT_KV_CONFIG, put)
        assert loads((await site.route()).body, TopicRouteData).order_topic_conf == "broker-a:4"
        assert loads((await site.route("u")).body, TopicRouteData).order_topic_conf is None


async def test_routes_wait_for_service_where_asked_to(tmp_path: Path) -> None:
    async with site_at(tmp_path, need_wait_for_service=True) as site:
        await site.register()
        site.clock.advance(44.9)
        assert (await site.route(expect=ResponseCode.SYSTEM_ERROR)).remark == "name server not ready"
        site.clock.advance(0.1)
        await site.route()


async def test_write_permission_is_wiped_and_added(site: Site) -> None:
    await site.register()
    wipe = WipeWritePermOfBrokerRequestHeader(broker_name="broker-a")
    response = await site.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe)
    assert response.ext_fields == {"wipeTopicCount": "2"}
    assert [q.perm for q in await site.queues()] == [4]
    add = AddWritePermOfBrokerRequestHeader(broker_name="broker-a")
    response = await site.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, add)
    assert response.ext_fields == {"addTopicCount": "2"}
    assert [q.perm for q in await site.queues()] == [6]


async def test_topics_are_registered_listed_and_deleted(site: Site) -> None:
    await site.register()
    await site.register(header("broker-b", OTHER, cluster="d"))
    content = dumps(TopicRouteData(queue_datas=[QueueData("broker-a", 1, 1, 6, 1)]))
    await site.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequestHeader(topic="single"), content)
    await site.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequestHeader(topic="empty"))
    by_cluster = await site.ask(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader(cluster=CLUSTER))
    assert sorted(loads(by_cluster.body, TopicList).topic_list) == ["single", "t", "u"]
    unit = await site.ask(RequestCode.GET_UNIT_TOPIC_LIST)
    assert loads(unit.body, TopicList).topic_list == ["single"]
    await site.ask(
        RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequestHeader(topic="t", cluster_name="d")
    )
    assert [q.broker_name for q in await site.queues()] == ["broker-a"]
    await site.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequestHeader(topic="t"))
    await site.route(expect=ResponseCode.TOPIC_NOT_EXIST)


async def test_lists_of_topics_can_be_disabled(site: Site) -> None:
    await site.register()
    await site.ask(RequestCode.UPDATE_NAMESRV_CONFIG, content=b"enableAllTopicList=false\nenableTopicList=false\n")
    cluster = GetTopicsByClusterRequestHeader(cluster=CLUSTER)
    for code, request in (
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None),
        (RequestCode.GET_TOPICS_BY_CLUSTER, cluster),
        (RequestCode.GET_UNIT_TOPIC_LIST, None),
        (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, None),
        (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None),
    ):
        assert (await site.ask(code, request, expect=ResponseCode.SYSTEM_ERROR)).remark == "disable"
    system = await site.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert loads(system.body, TopicList) == TopicList([CLUSTER, "broker-a"], MASTER)


async def test_members_of_a_group(site: Site) -> None:
    await site.register()
    request = GetBrokerMemberGroupRequestHeader(cluster_name=CLUSTER, broker_name="broker-a")
    response = await site.ask(RequestCode.GET_BROKER_MEMBER_GROUP, request)
    group = loads(response.body, GetBrokerMemberGroupResponseBody).broker_member_group
    assert group is not None
    assert group.broker_addrs == {0: MASTER}


async def test_kv_config(site: Site) -> None:
    get = GetKVConfigRequestHeader(namespace="n", key="k")
    of_namespace = GetKVListByNamespaceRequestHeader(namespace="n")
    missing = await site.ask(RequestCode.GET_KV_CONFIG, get, expect=ResponseCode.QUERY_NOT_FOUND)
    assert missing.remark == "No config item, Namespace: n Key: k"
    await site.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, of_namespace, expect=ResponseCode.QUERY_NOT_FOUND)
    await site.ask(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace="n", key="k", value="v"))
    assert (await site.ask(RequestCode.GET_KV_CONFIG, get)).ext_fields == {"value": "v"}
    assert json.loads((await site.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, of_namespace)).body) == {"table": {"k": "v"}}
    await site.ask(RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace="n", key="k"))
    assert json.loads(site.kv_config_path.read_bytes()) == {"configTable": {"n": {}}}


async def test_its_own_configuration_is_shown_and_updated_by_an_allowlist(site: Site) -> None:
    await site.ask(RequestCode.UPDATE_NAMESRV_CONFIG, content=b"supportActingMaster=true\n")
    text = (await site.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    assert "supportActingMaster=true\n" in text
    assert "scanNotActiveBrokerInterval=5000\n" in text
    for key in ("kvConfigPath", "listenPort", "configBlackList", "rocketmqHome", "unheardOf"):
        content = f"orderMessageEnable=true\n{key}=1\n".encode()
        refused = await site.ask(RequestCode.UPDATE_NAMESRV_CONFIG, content=content, expect=ResponseCode.NO_PERMISSION)
        assert key in (refused.remark or "")
    content = b"orderMessageEnable=true\nenableTopicList=perhaps\n"
    bad = await site.ask(RequestCode.UPDATE_NAMESRV_CONFIG, content=content, expect=ResponseCode.INVALID_PARAMETER)
    assert "enableTopicList" in (bad.remark or "")
    assert not site.server.settings.current.order_message_enable


@asynccontextmanager
async def listening_broker() -> AsyncIterator[tuple[str, list[NotifyMinBrokerIdChangeRequestHeader]]]:
    """A broker's port that takes down what the name server tells it."""
    heard: list[NotifyMinBrokerIdChangeRequestHeader] = []

    def take_down(request: Request[NotifyMinBrokerIdChangeRequestHeader]) -> None:
        heard.append(request.header)

    code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    route = Route(code, NotifyMinBrokerIdChangeRequestHeader, take_down, Resource.CLUSTER, Action.UPDATE)
    server = RemotingServer(RouteTable([route]), host="127.0.0.1")
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}", heard
    finally:
        await server.stop()


async def test_members_are_told_when_the_smallest_broker_id_changes(tmp_path: Path) -> None:
    async with (
        site_at(tmp_path, notify_min_broker_id_changed=True, support_acting_master=True) as site,
        listening_broker() as (addr, heard),
    ):
        master = site.connection()
        await site.register(header(addr=addr, broker_id=1, acting=True))
        await site.register(header(acting=True), by=master)
        await site.until(lambda: len(heard) == 1)
        assert (heard[0].min_broker_id, heard[0].min_broker_addr) == (0, MASTER)
        assert (heard[0].ha_broker_addr, heard[0].offline_broker_addr) == (MASTER + "2", None)
        await master.close()
        await site.until(lambda: len(heard) == 2)
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
        await site.until(lambda: not site.server._tasks)
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
