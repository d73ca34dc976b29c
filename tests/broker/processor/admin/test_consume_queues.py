"""QUERY_CONSUME_QUEUE."""

import pytest

from broker.server import Broker
from sprocket.remoting.bodies.consumption import ConsumeQueueData, QueryConsumeQueueResponseBody
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import QueryConsumeQueueRequestHeader
from tests.broker.rig import GROUP, TOPIC, TestClient, create, stored

Pair = tuple[Broker, TestClient]


async def query(
    client: TestClient, index: int, count: int, queue_id: int = 0, group: str | None = None
) -> QueryConsumeQueueResponseBody:
    header = QueryConsumeQueueRequestHeader(
        topic=TOPIC, queue_id=queue_id, index=index, count=count, consumer_group=group
    )
    response = await client.ask_well(RequestCode.QUERY_CONSUME_QUEUE, header)
    return loads(response.body, QueryConsumeQueueResponseBody)


@pytest.mark.code(RequestCode.QUERY_CONSUME_QUEUE)
async def test_entries_as_they_are(pair: Pair) -> None:
    broker, client = pair
    for tag in ("a", "b", "c"):
        await client.send(TAGS=tag)
    body = await query(client, 1, 10)
    assert (body.min_queue_index, body.max_queue_index, body.filter_data) == (0, 3, None)
    expected = []
    for offset, tag in ((1, "b"), (2, "c")):
        record = stored(broker, TOPIC, 0, offset)
        expected.append(
            ConsumeQueueData(
                physic_offset=record.physical_offset, physic_size=record.size_bytes, tags_code=java_hash_code(tag)
            )
        )
    assert body.queue_data == expected
    assert (await query(client, 1, 1)).queue_data == expected[:1]
    assert (await query(client, 3, 1)).queue_data == []
    assert (await query(client, 0, -5)).queue_data == []
    assert (await query(client, 0, 5, queue_id=1)).max_queue_index == 0, "a queue that nothing was sent to"


async def test_what_a_group_wants(pair: Pair) -> None:
    _, client = pair
    await client.send()
    assert (await query(client, 0, 1, group=GROUP)).filter_data == f"{GROUP}@{TOPIC} is not online!"
    await client.heartbeat("c1", TOPIC)
    body = await query(client, 0, 1, group=GROUP)
    assert body.subscription_data is not None
    assert (body.subscription_data.topic, body.filter_data) == (TOPIC, "null")


async def test_queues_and_places_that_are_not_there(pair: Pair) -> None:
    _, client = pair
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    header = QueryConsumeQueueRequestHeader(topic=TOPIC, queue_id=9, index=0, count=1)
    response = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, header)
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, f"9@{TOPIC} is not exist!")
    for index in (-1, 1):
        header = QueryConsumeQueueRequestHeader(topic=TOPIC, queue_id=0, index=index, count=1)
        response = await client.ask_well(RequestCode.QUERY_CONSUME_QUEUE, header)
        assert (response.remark, response.body) == (f"Index {index} of 0@{TOPIC} is not exist!", b"")
