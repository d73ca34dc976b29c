"""QUERY_ASSIGNMENT and the modes that operators set, over the wire."""

from pathlib import Path

import pytest

from broker.server import Broker
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.pop import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker

Pair = tuple[Broker, TestClient]


async def ask(
    client: TestClient, client_id: str, topic: str = TOPIC, strategy: str = "AVG", model: str | None = "CLUSTERING"
) -> list[MessageQueueAssignment] | None:
    body = QueryAssignmentRequestBody(topic, GROUP, client_id, strategy, model)
    response = await client.ask_well(RequestCode.QUERY_ASSIGNMENT, body=dumps(body))
    if response.body == b"{}":
        return None
    return loads(response.body, QueryAssignmentResponseBody).message_queue_assignments


async def set_mode(client: TestClient, mode: str, share: int = 0, topic: str = TOPIC) -> ReceivedResponse:
    body = {"topic": topic, "consumerGroup": GROUP, "mode": mode, "popShareQueueNum": share}
    return await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=dumps(body))


def on_a(*queue_ids: int, mode: str = "PULL") -> list[MessageQueueAssignment]:
    return [
        MessageQueueAssignment(MessageQueue(TOPIC, "broker-a", queue_id), "POP" if mode == "POP" else "PULL")
        for queue_id in queue_ids
    ]


async def two_consumers(client: TestClient, other: TestClient, queues: int = 4) -> None:
    header = create(read_queue_nums=queues, write_queue_nums=queues)
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    await client.heartbeat("c1", TOPIC)
    await other.heartbeat("c2", TOPIC)


@pytest.mark.code(RequestCode.QUERY_ASSIGNMENT)
async def test_queues_are_divided_among_the_consumers(pair: Pair) -> None:
    _, client = pair
    other = TestClient(client.address)
    await two_consumers(client, other)
    assert await ask(client, "c1") == on_a(0, 1)
    assert await ask(client, "c2") == on_a(2, 3)
    assert await ask(client, "c1", strategy="AVG_BY_CIRCLE") == on_a(0, 2)
    by_hash = [await ask(client, client_id, strategy="CONSISTENT_HASH") or [] for client_id in ("c1", "c2")]
    assert sorted(one.message_queue.queue_id for part in by_hash for one in part) == [0, 1, 2, 3]
    assert await ask(client, "c3") == []
    assert await ask(client, "c1", model="BROADCASTING") == on_a(0, 1, 2, 3)
    await other.close()


@pytest.mark.code(RequestCode.SET_MESSAGE_REQUEST_MODE)
async def test_a_group_by_pop_takes_from_all_queues_or_shares_them(pair: Pair) -> None:
    _, client = pair
    others = [TestClient(client.address) for _ in range(3)]
    await two_consumers(client, others[0], queues=8)
    assert (await set_mode(client, "POP")).code == ResponseCode.SUCCESS
    assert await ask(client, "c1") == on_a(-1, mode="POP")
    await others[1].heartbeat("c3", TOPIC)
    await others[2].heartbeat("c4", TOPIC)
    await set_mode(client, "POP", share=1)
    assert await ask(client, "c1") == on_a(0, 1, 2, 3, mode="POP")
    assert await ask(client, "c4") == on_a(6, 7, 0, 1, mode="POP")
    await set_mode(client, "PULL")
    assert await ask(client, "c4") == on_a(6, 7)
    for other in others:
        await other.close()


async def test_when_there_is_no_result_the_client_stays_with_what_it_has(pair: Pair) -> None:
    _, client = pair
    await client.send()
    assert await ask(client, "c1") is None, "nobody is connected"
    await client.heartbeat("c1", TOPIC)
    assert await ask(client, "c1", topic="Nobody") is None
    assert await ask(client, "c1", strategy="MACHINE_ROOM") is None
    assert await ask(client, "") is None
    assert await ask(client, "c1", model=None) is None


async def test_a_light_topic_is_one_queue_of_this_broker(pair: Pair) -> None:
    _, client = pair
    await client.heartbeat("c1", TOPIC)
    assert await ask(client, "c1", topic="%LMQ%x") == [
        MessageQueueAssignment(MessageQueue("%LMQ%x", "broker-a", 0), "PULL")
    ]


async def test_without_load_balancing_each_gets_all(tmp_path: Path) -> None:
    async with running_broker(tmp_path, server_load_balancer_enable=False) as (_, client):
        other = TestClient(client.address)
        await two_consumers(client, other)
        assert await ask(client, "c1") == on_a(0, 1, 2, 3)
        await other.close()


async def test_pop_can_be_the_default(tmp_path: Path) -> None:
    async with running_broker(tmp_path, default_message_request_mode="POP") as (_, client):
        await client.send()
        await client.heartbeat("c1", TOPIC, "%RETRY%CG")
        assert await ask(client, "c1") == on_a(-1, mode="POP")


@pytest.mark.parametrize(
    ("topic", "code", "remark"),
    [
        ("%RETRY%CG", ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"),
        ("Nobody", ResponseCode.TOPIC_NOT_EXIST, "topic[Nobody] not exist"),
    ],
)
async def test_modes_that_are_refused(pair: Pair, topic: str, code: int, remark: str) -> None:
    response = await set_mode(pair[1], "POP", topic=topic)
    assert (response.code, response.remark) == (code, remark)


async def test_the_mode_of_an_unknown_group_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_subscription_group=False) as (_, client):
        await client.send()
        response = await set_mode(client, "POP")
        assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert response.remark == "subscription group does not exist"


async def test_an_unknown_mode_is_refused(pair: Pair) -> None:
    _, client = pair
    await client.send()
    assert (await set_mode(client, "PUSH")).code != ResponseCode.SUCCESS


@pytest.mark.code(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
async def test_modes_outlive_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send()
        await set_mode(client, "POP", share=2)
    async with running_broker(tmp_path) as (_, client):
        response = await client.ask_well(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        table = loads(response.body, dict[str, dict[str, dict[str, SetMessageRequestModeRequestBody]]])
        kept = SetMessageRequestModeRequestBody(TOPIC, GROUP, "POP", 2)
        assert table == {"messageRequestModeMap": {TOPIC: {GROUP: kept}}}


async def test_queues_of_all_brokers_are_divided(tmp_path: Path) -> None:
    server = NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1"))
    await server.start()
    try:
        addresses = f"127.0.0.1:{server.port}"
        async with (
            running_broker(tmp_path / "a", namesrv_addr=addresses) as (first, client),
            running_broker(tmp_path / "b", namesrv_addr=addresses, broker_name="broker-b") as (second, other),
        ):
            for broker, one in ((first, client), (second, other)):
                assert await broker.registration.wait_registered(10)
                await one.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
                await one.heartbeat("c1", TOPIC)
            expected = {(broker, queue_id) for broker in ("broker-a", "broker-b") for queue_id in (0, 1)}
            for one in (client, other):
                got = await ask(one, "c1") or []
                queues = [assignment.message_queue for assignment in got]
                assert {(queue.broker_name, queue.queue_id) for queue in queues} == expected
    finally:
        await server.stop()
