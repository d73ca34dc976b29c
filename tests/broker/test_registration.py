"""Registration against name servers that remember what they were told."""

import asyncio
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from remoting.bodies.registration import RegisterBrokerBody
from remoting.bodies.route import TopicRouteData
from remoting.bodies.stats import KVTable
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import VERSION, ReceivedResponse, Request, Response
from remoting.fastjson import dumps, loads
from remoting.headers.admin import CreateTopicRequestHeader, DeleteTopicRequestHeader
from remoting.headers.namesrv import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    UnregisterBrokerRequestHeader,
)
from remoting.routes import Action, Resource, Route, RouteTable
from remoting.server import RemotingServer
from tests.broker.rig import running_broker, until


class FakeNameServer:
    """Accepts registrations and keeps them; `order_topics` are answered as having an order configuration."""

    def __init__(self) -> None:
        self.registrations: list[tuple[RegisterBrokerRequestHeader, RegisterBrokerBody]] = []
        self.unregistrations: list[UnregisterBrokerRequestHeader] = []
        self.order_topics: list[str] = []
        self.code = ResponseCode.SUCCESS
        table = RouteTable(
            [
                Route(
                    RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader, self._register,
                    Resource.CLUSTER, Action.UPDATE,
                ),
                Route(
                    RequestCode.UNREGISTER_BROKER, UnregisterBrokerRequestHeader, self._unregister,
                    Resource.CLUSTER, Action.UPDATE,
                ),
            ]
        )  # fmt: skip
        self.server = RemotingServer(table, host="127.0.0.1")

    def _register(self, request: Request[RegisterBrokerRequestHeader]) -> Response:
        header = request.header
        assert header.body_crc32 == crc32(request.body) & 0x7FFFFFFF
        body = RegisterBrokerBody.decode(request.body, header.compressed, VERSION)
        self.registrations.append((header, body))
        return Response(self.code, body=dumps(KVTable(dict.fromkeys(self.order_topics, "broker-a:4"))))

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
        assert all(server.topics() == {"Orders"} for server in name_servers), "the answer waits for it"
        version = name_servers[0].registrations[-1][1].topic_config_serialize_wrapper.data_version
        assert version == broker.topics.data_version
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
        await until(lambda: name_servers[1].topics() == {"Orders"})


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


async def test_lost_connection_is_registered_anew(tmp_path: Path, name_servers: list[FakeNameServer]) -> None:
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
