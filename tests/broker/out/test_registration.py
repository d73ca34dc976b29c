"""Registration against name servers that remember what they were told."""

import asyncio
import itertools
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.remoting.bodies.registration import RegisterBrokerBody
from sprocket.remoting.bodies.route import QueueData, TopicRouteData
from sprocket.remoting.bodies.stats import KVTable
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import VERSION, ReceivedResponse, Request, Response
from sprocket.remoting.headers.admin import CreateTopicRequestHeader, DeleteTopicRequestHeader
from sprocket.remoting.headers.namesrv import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnregisterBrokerRequestHeader,
)
from sprocket.remoting.routes import Action, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from tests.broker.rig import running_broker
from tests.waiting import until


class FakeNameServer:
    """Accepts registrations and keeps them; `order_topics` are answered as having an order configuration.

    An old one does not know REGISTER_TOPIC_IN_NAMESRV.
    """

    def __init__(self, *, is_old: bool = False) -> None:
        self.registrations: list[tuple[RegisterBrokerRequestHeader, RegisterBrokerBody]] = []
        self.unregistrations: list[UnregisterBrokerRequestHeader] = []
        self.alone: list[tuple[str, TopicRouteData]] = []
        self.order_topics: list[str] = []
        self.code = ResponseCode.SUCCESS
        code, cluster, update = RequestCode, Resource.CLUSTER, Action.UPDATE
        routes: list[Route] = [
            Route(code.REGISTER_BROKER, RegisterBrokerRequestHeader, self._register, cluster, update),
            Route(code.UNREGISTER_BROKER, UnregisterBrokerRequestHeader, self._unregister, cluster, update),
        ]
        if not is_old:
            routes.append(
                Route(code.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequestHeader, self._register_topic, cluster, update)
            )
        self.server = RemotingServer(RouteTable(routes), ConnectionSettings("127.0.0.1"))

    def _register(self, request: Request[RegisterBrokerRequestHeader]) -> Response:
        header = request.header
        assert header.body_crc32 == crc32(request.body) & 0x7FFFFFFF
        body = RegisterBrokerBody.decode(request.body, header.compressed, VERSION)
        self.registrations.append((header, body))
        return Response(self.code, body=dumps(KVTable(dict.fromkeys(self.order_topics, "broker-a:4"))))

    def _register_topic(self, request: Request[RegisterTopicRequestHeader]) -> Response:
        self.alone.append((request.header.topic, loads(request.body, TopicRouteData)))
        return Response(self.code)

    def _unregister(self, request: Request[UnregisterBrokerRequestHeader]) -> Response:
        self.unregistrations.append(request.header)
        return Response()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def topics(self, index: int = -1) -> set[str]:
        return set(self.registrations[index][1].topic_config_serialize_wrapper.topic_config_table)


@pytest.fixture
async def name_servers() -> Any:
    servers = [FakeNameServer(), FakeNameServer()]
    for server in servers:
        await server.server.start()
    yield servers
    for server in servers:
        await server.server.stop()


def create(topic: str) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )


async def test_every_name_server_hears_of_start_change_and_stop(
    tmp_path: Path, name_servers: list[FakeNameServer]
) -> None:
    addresses = ";".join(server.address for server in name_servers)
    async with running_broker(tmp_path, namesrv_addr=addresses, broker_ip2="127.0.0.2") as (broker, client):
        await until(lambda: all(server.registrations for server in name_servers))
        for server in name_servers:
            header, body = server.registrations[0]
            assert (header.broker_name, header.cluster_name, header.broker_id) == ("broker-a", "DefaultCluster", 0)
            assert header.broker_addr == broker.address == f"127.0.0.1:{broker.port}"
            assert header.ha_server_addr == f"127.0.0.2:{broker.config.broker.ha_listen_port}"
            assert set(body.topic_config_serialize_wrapper.topic_config_table) == set(broker.topics.by_name)
        await until(lambda: all(session.is_registered for session in broker.registration.sessions))
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Orders"))
        for server in name_servers:
            assert server.topics() == {"Orders"}, "the answer waits for it"
            # Without mappings a name server that deletes would take this for all topics.
            assert server.registrations[-1][1].topic_config_serialize_wrapper.topic_queue_mapping_info_map
            assert not server.registrations[0][1].topic_config_serialize_wrapper.topic_queue_mapping_info_map
        version = name_servers[0].registrations[-1][1].topic_config_serialize_wrapper.data_version
        assert version != broker.topics.data_version, "the version of the whole table"
        await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="Orders"))
        await until(lambda: all(len(server.registrations) >= 3 for server in name_servers))
        assert "Orders" not in name_servers[0].topics()
    for server in name_servers:
        assert [header.broker_addr for header in server.unregistrations] == [
            name_servers[0].registrations[0][0].broker_addr
        ]


async def test_one_that_is_down_delays_no_other(tmp_path: Path, name_servers: list[FakeNameServer]) -> None:
    await name_servers[0].server.stop()
    addresses = f"127.0.0.1:1;{name_servers[1].address}"
    async with running_broker(tmp_path, namesrv_addr=addresses) as (broker, client):
        assert await broker.registration.wait_registered(5)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Orders"))
        await until(lambda: "Orders" in name_servers[1].topics())


async def test_compressed_registration(tmp_path: Path, name_servers: list[FakeNameServer]) -> None:
    server = name_servers[0]
    async with running_broker(tmp_path, namesrv_addr=server.address, compressed_register=True) as (broker, _):
        await until(lambda: server.registrations)
        header, _ = server.registrations[0]
        assert header.compressed
        assert server.topics() == set(broker.topics.by_name)


async def test_refusal_is_tried_again(tmp_path: Path, name_servers: list[FakeNameServer]) -> None:
    server = name_servers[0]
    server.code = ResponseCode.SYSTEM_ERROR
    async with running_broker(tmp_path, namesrv_addr=server.address) as (broker, _):
        await until(lambda: server.registrations)
        assert not await broker.registration.wait_registered(0)
        server.code = ResponseCode.SUCCESS
        assert await broker.registration.wait_registered(10)


async def test_lost_connection_is_registered_again(tmp_path: Path, name_servers: list[FakeNameServer]) -> None:
    server = name_servers[0]
    async with running_broker(tmp_path, namesrv_addr=server.address) as (broker, _):
        await until(lambda: server.registrations)
        for channel in list(server.server.channels.values()):
            channel.abort("test")
        await until(lambda: len(server.registrations) == 2)
        assert server.topics() == set(broker.topics.by_name)


async def test_order_topics_of_the_name_server_are_taken_over(
    tmp_path: Path, name_servers: list[FakeNameServer]
) -> None:
    server = name_servers[0]
    server.order_topics = ["Orders"]
    async with running_broker(tmp_path, namesrv_addr=server.address) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Orders"))
        await until(lambda: broker.topics.is_order("Orders"))


async def test_limited_permission_is_what_clients_are_told(tmp_path: Path, name_servers: list[FakeNameServer]) -> None:
    server = name_servers[0]
    async with running_broker(tmp_path, namesrv_addr=server.address) as (broker, client):
        await until(lambda: server.registrations)
        await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
        await until(lambda: len(server.registrations) == 2)
        table = server.registrations[-1][1].topic_config_serialize_wrapper.topic_config_table
        assert table["TBW102"].perm == 4
        assert broker.topics.by_name["TBW102"].perm == 7


async def test_a_changed_topic_is_registered_alone(tmp_path: Path, name_servers: list[FakeNameServer]) -> None:
    server = name_servers[0]
    async with running_broker(tmp_path, namesrv_addr=server.address, enable_single_topic_register=True) as rig:
        broker, client = rig
        await until(lambda: broker.registration.sessions[0].is_registered)
        await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
        await until(lambda: len(server.registrations) == 2)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Orders"))
        assert [topic for topic, _ in server.alone] == ["Orders"]
        assert server.alone[0][1].queue_datas == [QueueData("broker-a", 4, 4, 4, 0)], "as clients may use it"
        assert len(server.registrations) == 2
        server.code = ResponseCode.SYSTEM_ERROR
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Payments"))
        server.code = ResponseCode.SUCCESS
        await until(lambda: "Payments" in server.topics())
        # A lost connection: the name server does not know the broker any more, and all topics come first.
        known = len(server.registrations)
        for channel in list(server.server.channels.values()):
            channel.abort("test")
        await until(lambda: len(server.registrations) > known)
        assert server.topics() == set(broker.topics.by_name)


async def test_many_changed_topics_are_registered_together(tmp_path: Path, name_servers: list[FakeNameServer]) -> None:
    server = name_servers[0]
    async with running_broker(tmp_path, namesrv_addr=server.address, enable_single_topic_register=True) as rig:
        broker, _ = rig
        await until(lambda: broker.registration.sessions[0].is_registered)
        broker.topics.update(TopicConfig(f"t{number}") for number in range(65))
        await until(lambda: len(server.registrations) == 2)
        assert server.topics() == {f"t{number}" for number in range(65)}
        assert server.alone == []


async def test_topics_of_first_sends_one_after_the_other_share_registrations(
    tmp_path: Path, name_servers: list[FakeNameServer]
) -> None:
    server = name_servers[0]
    async with running_broker(tmp_path, namesrv_addr=server.address) as (_, client):
        await until(lambda: server.registrations)
        began, before = asyncio.get_running_loop().time(), len(server.registrations)
        names = {f"First{number}" for number in range(50)}
        for name in sorted(names):
            await client.send(b"x", name)
        took_s = asyncio.get_running_loop().time() - began
        await until(lambda: names <= set().union(*map(server.topics, range(len(server.registrations)))))
        # Every 10 ms, and one at each end.
        assert len(server.registrations) - before <= took_s / 0.01 + 2


async def test_an_operator_waits_for_no_other_changes(tmp_path: Path, name_servers: list[FakeNameServer]) -> None:
    server = name_servers[0]
    async with running_broker(tmp_path, namesrv_addr=server.address) as (_, client):
        await until(lambda: server.registrations)
        for number in range(5):
            await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(f"Asked{number}"))
            assert f"Asked{number}" in server.topics(), "the response says that the name server has it"


async def test_an_old_name_server_gets_changed_topics_with_the_broker(tmp_path: Path) -> None:
    server = FakeNameServer(is_old=True)
    await server.server.start()
    async with running_broker(tmp_path, namesrv_addr=server.address, enable_single_topic_register=True) as rig:
        broker, client = rig
        await until(lambda: broker.registration.sessions[0].is_registered)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Orders"))
        assert server.topics() == {"Orders"}
    await server.server.stop()


async def test_parts_are_marked_and_each_has_its_own_version(
    tmp_path: Path, name_servers: list[FakeNameServer]
) -> None:
    server = name_servers[0]
    settings = {"enable_split_registration": True, "split_registration_size": 5}
    async with running_broker(tmp_path, namesrv_addr=server.address, **settings) as (broker, client):
        await until(lambda: broker.registration.sessions[0].is_registered)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Orders"))
        parts = [registered.topic_config_serialize_wrapper for _, registered in server.registrations]
        assert all(1 <= len(part.topic_config_table) <= 5 for part in parts)
        # A name server removes routes only for a registration without mappings.
        assert all(part.topic_queue_mapping_info_map for part in parts)
        assert set(parts[-1].topic_config_table) == {"Orders"}
        assert parts[-2].data_version != broker.topics.data_version != parts[-1].data_version
        assert set().union(*(part.topic_config_table for part in parts)) == set(broker.topics.by_name)
        # With a version that it has, a name server would take no change of a topic that it knows.
        versions = [part.data_version for part in parts]
        assert all(before != after for before, after in itertools.combinations(versions, 2))


_WAYS: list[dict[str, Any]] = [
    {},
    {"enable_single_topic_register": True},
    {"enable_split_registration": True, "split_registration_size": 3},
    {"enable_split_registration": True, "split_registration_size": 3, "enable_single_topic_register": True},
    {"compressed_register": True},
]


@pytest.mark.parametrize("settings", _WAYS, ids=lambda settings: "+".join(settings) or "default")
async def test_no_change_removes_a_route_from_a_name_server_that_deletes(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    config = NamesrvConfig(
        listen_port=0, kv_config_path=tmp_path / "kv.json", delete_topic_with_broker_registration=True
    )
    name_server = NameServer(config)
    await name_server.start()
    address = f"127.0.0.1:{name_server.port}"
    async with running_broker(tmp_path, namesrv_addr=address, **settings) as (broker, client):
        assert await broker.registration.wait_registered(5)
        for topic in ("Orders", "Payments", "%RETRY%consumers", "Orders"):
            await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic))
            assert set(name_server.table.topics) == set(broker.topics.by_name)
        # A change of a topic that is known is taken, too.
        changed = create("Payments")
        changed.read_queue_nums = changed.write_queue_nums = 7
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, changed)
        assert name_server.table.topics["Payments"]["broker-a"].write_queue_nums == 7
        assert set(name_server.table.topics) == set(broker.topics.by_name)
        await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="Orders"))
        if "enable_split_registration" not in settings:
            await until(lambda: "Orders" not in name_server.table.topics)
        assert set(name_server.table.topics) >= set(broker.topics.by_name)
    await name_server.stop()


async def test_with_the_real_name_server(tmp_path: Path) -> None:
    name_server = NameServer(NamesrvConfig(listen_port=0, kv_config_path=tmp_path / "kv.json"))
    await name_server.start()
    address = f"127.0.0.1:{name_server.port}"
    operator = RemotingClient()

    async def route(topic: str) -> ReceivedResponse:
        return await operator.invoke(
            address, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
        )

    async with running_broker(tmp_path, namesrv_addr=address) as (broker, client):
        assert await broker.registration.wait_registered(5)
        assert not await broker.registration.is_outdated(address)
        broker.topics.data_version.next(1)
        assert await broker.registration.is_outdated(address)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Orders"))
        found = loads((await route("Orders")).body, TopicRouteData)
        assert found.broker_datas[0].broker_addrs == {0: broker.address}
        assert found.queue_datas[0].write_queue_nums == 4
        await client.send(topic="OnFirstUse")
        async with asyncio.timeout(60):
            while (await route("OnFirstUse")).code != ResponseCode.SUCCESS:
                await asyncio.sleep(0.005)
    assert (await route("Orders")).code == ResponseCode.TOPIC_NOT_EXIST
    await operator.close()
    await name_server.stop()
