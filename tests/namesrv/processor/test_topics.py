"""Routes and lists of topics over real connections."""

import asyncio
import json
from pathlib import Path

import pytest

from sprocket.remoting.bodies.route import QueueData, TopicRouteData
from sprocket.remoting.bodies.topic import TopicList
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    RegisterTopicRequestHeader,
)
from tests.namesrv.reports import CLUSTER, header
from tests.namesrv.site import Site, site_at

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def as_client(version: int, fields: dict[str, str]) -> bytes:
    """Return a route request of a client of any version."""
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


@pytest.mark.code(
    RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.REGISTER_TOPIC_IN_NAMESRV, RequestCode.GET_TOPICS_BY_CLUSTER
)
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


@pytest.mark.code(
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
)
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
