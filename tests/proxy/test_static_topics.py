"""Static topics are refused by name at either port of the proxy."""

from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.route import TopicRouteData
from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import CreateTopicRequestHeader
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader
from tests.proxy.rig import ENDPOINTS, Rig


async def create_static(rig: Rig, client: RemotingClient, topic: str) -> None:
    """Make an existing topic with two queues static."""
    header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
    route = await client.invoke(rig.broker.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    [queues] = loads(route.body, TopicRouteData).queue_datas
    detail = TopicQueueMappingDetail(topic=topic, total_queues=1, bname=queues.broker_name, epoch=1)
    detail.hosted_queues = {"0": [LogicQueueMappingItem(0, 0, queues.broker_name, 0)]}
    create = CreateTopicRequestHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6,
        topic_filter_type="SINGLE_TAG",
    )  # fmt: skip
    body = dumps(detail)
    response = await client.invoke(rig.broker.address, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, create, body)
    assert response.code == ResponseCode.SUCCESS, response.remark


async def test_static_topics_are_refused_by_name(rig: Rig, topic: str) -> None:
    remoting, client = RemotingClient(), rig.client()
    try:
        await create_static(rig, remoting, topic)
        asked = wire.QueryRouteRequest(topic=wire.Resource(name=topic), endpoints=ENDPOINTS)
        refused = await client.call("QueryRoute", asked)
        assert (refused.status.code, "is static" in refused.status.message) == (wire.UNSUPPORTED, True)
        for _ in range(2):  # without a cached route, and with one
            answer = await client.send(topic, "x")
            assert (answer.status.code, "is static" in answer.status.message) == (wire.UNSUPPORTED, True)
        answer, *_ = await client.receive(topic, "group-static", wait_s=0)
        assert answer.status.code == wire.UNSUPPORTED
        address = f"127.0.0.1:{rig.proxy.remoting.listeners[0].port}"
        route = await remoting.invoke(
            address, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
        )
        assert (route.code, "is static" in (route.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    finally:
        await remoting.close()
