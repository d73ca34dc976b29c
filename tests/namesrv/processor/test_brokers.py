"""Requests of brokers, and about brokers, over real connections."""

import asyncio
import json
import zlib
from collections.abc import Awaitable
from typing import cast

import pytest

from sprocket.remoting.bodies.route import GetBrokerMemberGroupResponseBody, QueueData, TopicRouteData
from sprocket.remoting.bodies.topic import DataVersion, TopicList
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import GetBrokerMemberGroupRequestHeader
from sprocket.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from sprocket.remoting.routes import RouteTable
from tests.namesrv.reports import CLUSTER, body, header
from tests.namesrv.site import Site

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


@pytest.mark.code(
    RequestCode.REGISTER_BROKER, RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
)
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


@pytest.mark.code(RequestCode.GET_BROKER_CLUSTER_INFO)
async def test_a_cluster_without_brokers_is_described_all_the_same(site: Site) -> None:
    answer = await site.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert json.loads(answer.body) == {"brokerAddrTable": {}, "clusterAddrTable": {}}


async def test_a_slave_hears_where_its_master_is(site: Site) -> None:
    await site.register()
    answer = (await site.register(header(addr=SLAVE, broker_id=1))).header(RegisterBrokerResponseHeader)
    assert (answer.master_addr, answer.ha_server_addr) == (MASTER, MASTER + "2")


async def test_a_connection_that_ends_while_its_registration_is_read_registers_nothing(site: Site) -> None:
    channel = RemotingChannel(RouteTable([]), ChannelCounters())
    code, content = RequestCode.REGISTER_BROKER, body([f"topic-{number}" for number in range(5_000)]).encode(False)
    request = Request(code=code, header=header(), version=450)
    request.body, request.channel = content, channel
    route = site.server.routes.entries[code]
    assert route.handle is not None
    reading = asyncio.ensure_future(cast("Awaitable[Response]", route.handle(request)))
    await asyncio.sleep(0)
    channel.connection_lost(None)
    await reading
    assert not site.server.table.live


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


@pytest.mark.code(RequestCode.QUERY_DATA_VERSION)
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


@pytest.mark.code(RequestCode.UNREGISTER_BROKER)
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


@pytest.mark.code(RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER)
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


@pytest.mark.code(RequestCode.GET_BROKER_MEMBER_GROUP)
async def test_members_of_a_group(site: Site) -> None:
    await site.register()
    request = GetBrokerMemberGroupRequestHeader(cluster_name=CLUSTER, broker_name="broker-a")
    response = await site.ask(RequestCode.GET_BROKER_MEMBER_GROUP, request)
    group = loads(response.body, GetBrokerMemberGroupResponseBody).broker_member_group
    assert group is not None
    assert group.broker_addrs == {0: MASTER}
