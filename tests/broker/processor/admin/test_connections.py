import asyncio

import msgspec
import pytest

from broker.processor.admin import connections
from broker.server import Broker
from sprocket.remoting.bodies.client import ConsumerConnection, MessageQueue, ProducerConnection, by_queue
from sprocket.remoting.bodies.consumption import CMResult, ConsumeMessageDirectlyResult, GetConsumerStatusBody
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Response
from sprocket.remoting.headers.admin import GetConsumerStatusRequestHeader
from sprocket.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from store.record.record import Record, decode
from tests.broker.rig import GROUP, TOPIC, TestClient

Pair = tuple[Broker, TestClient]


@pytest.mark.code(
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_ALL_PRODUCER_INFO,
)
async def test_connections(pair: Pair) -> None:
    _, client = pair
    await client.heartbeat("c1", TOPIC, producer_group="PG")
    header = GetConsumerConnectionListRequestHeader(consumer_group=GROUP)
    response = await client.ask_well(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    found = loads(response.body, ConsumerConnection)
    assert [(one.client_id, one.language) for one in found.connection_set] == [("c1", "PYTHON")]
    assert found.message_model == "CLUSTERING"
    assert set(found.subscription_table) == {TOPIC}
    producers = GetProducerConnectionListRequestHeader(producer_group="PG")
    response = await client.ask_well(RequestCode.GET_PRODUCER_CONNECTION_LIST, producers)
    assert len(loads(response.body, ProducerConnection).connection_set) == 1
    response = await client.ask_well(RequestCode.GET_ALL_PRODUCER_INFO)
    assert b'"data":{"PG":[{"clientId":"c1","remoteIP":"127.0.0.1"' in response.body


async def test_nobody_is_connected(pair: Pair) -> None:
    _, client = pair
    header = GetConsumerConnectionListRequestHeader(consumer_group="Nobody")
    assert (await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)).code == ResponseCode.CONSUMER_NOT_ONLINE
    running = GetConsumerRunningInfoRequestHeader(consumer_group="Nobody", client_id="c1")
    response = await client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running)
    assert response.remark == "The Consumer <Nobody> <c1> not online"


@pytest.mark.code(RequestCode.GET_CONSUMER_RUNNING_INFO)
async def test_question_is_passed_on_to_the_consumer(pair: Pair) -> None:
    _, client = pair
    operator = TestClient(client.address)
    await client.heartbeat("c1", TOPIC)
    header = GetConsumerRunningInfoRequestHeader(consumer_group=GROUP, client_id="c1")
    response = await operator.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    # This client does not serve the code, and its own answer is what the operator gets.
    assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    await operator.close()


@pytest.mark.code(RequestCode.CONSUME_MESSAGE_DIRECTLY)
async def test_a_consumer_consumes_one_message_again(pair: Pair) -> None:
    _, client = pair
    sent = await client.send(b"again", tag="x")
    result = dumps(ConsumeMessageDirectlyResult(consume_result=CMResult.SUCCESS, spent_time_mills=3))
    consumer = TestClient(client.address, answers={RequestCode.CONSUME_MESSAGE_DIRECTLY: Response(body=result)})
    await consumer.heartbeat("c1", TOPIC)
    header = ConsumeMessageDirectlyRequestHeader(consumer_group=GROUP, client_id="c1", msg_id=sent.msg_id, topic=TOPIC)
    response = await client.ask_well(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    assert response.body == result
    (asked,) = [each for each in consumer.asked if each.code == RequestCode.CONSUME_MESSAGE_DIRECTLY]
    record = decode(memoryview(asked.body))
    assert isinstance(record, Record)
    assert (bytes(record.body), record.queue_offset) == (b"again", 0)
    await consumer.close()


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"msg_id": "nonsense"}, "message nonsense is not on this broker"),
        ({"client_id": "c2"}, f"The Consumer <{GROUP}> <c2> not online"),
        ({"consumer_group": "Nobody"}, "The Consumer <Nobody> <c1> not online"),
    ],
)
async def test_what_cannot_be_consumed_again(pair: Pair, changes: dict[str, str], remark: str) -> None:
    _, client = pair
    sent = await client.send()
    await client.heartbeat("c1", TOPIC)
    header = ConsumeMessageDirectlyRequestHeader(consumer_group=GROUP, client_id="c1", msg_id=sent.msg_id, topic=TOPIC)
    header = msgspec.structs.replace(header, **changes)
    response = await client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, remark)


async def test_a_consumer_that_does_not_answer_holds_up_nobody(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    _, client = pair
    monkeypatch.setattr(connections, "_CALL_TIMEOUT_S", 0.05)
    silent = TestClient(client.address, answers={RequestCode.GET_CONSUMER_RUNNING_INFO: None})
    await silent.heartbeat("c1", TOPIC)
    header = GetConsumerRunningInfoRequestHeader(consumer_group=GROUP, client_id="c1")
    asking = asyncio.ensure_future(client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
    await client.send()
    response = await asking
    assert response.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert (response.remark or "").startswith(f"consumer <{GROUP}> <c1> Timeout: ")
    await silent.close()


async def test_a_consumer_that_is_too_old_is_not_asked(pair: Pair) -> None:
    broker, client = pair
    await client.heartbeat("c1", TOPIC)
    group = broker.consumers.group(GROUP)
    assert group is not None
    for member in group.members.values():
        member.version = 61
    header = GetConsumerRunningInfoRequestHeader(consumer_group=GROUP, client_id="c1")
    response = await client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "too low to finish, please upgrade it to V3_1_8_SNAPSHOT" in (response.remark or "")


@pytest.mark.code(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
async def test_where_each_member_of_a_group_is(pair: Pair) -> None:
    """GET_CONSUMER_STATUS_FROM_CLIENT, to each member or to one; a member that does not respond is omitted."""
    _, client = pair
    code, queue = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, MessageQueue(TOPIC, "broker-a", 0)
    members = []
    for client_id, answer in (
        ("c1", Response(body=dumps(GetConsumerStatusBody[MessageQueue](message_queue_table={queue: 7})))),
        ("c2", Response(body=b"[1")),
        ("c3", Response(ResponseCode.SYSTEM_ERROR, "not now")),
    ):
        members.append(TestClient(client.address, answers={code: answer}))
        await members[-1].heartbeat(client_id, TOPIC)

    async def status(client_addr: str | None) -> dict[str, dict[MessageQueue, int]]:
        header = GetConsumerStatusRequestHeader(topic=TOPIC, group=GROUP, client_addr=client_addr)
        response = await client.ask_well(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        found = loads(response.body, GetConsumerStatusBody[str]).consumer_table
        return {client_id: by_queue(table) for client_id, table in found.items()}

    assert await status(None) == {"c1": {queue: 7}}
    assert await status("c1") == {"c1": {queue: 7}}
    assert await status("c2") == {}
    asked = [sum(each.code == code for each in member.asked) for member in members]
    assert asked == [2, 2, 1]
    for member in members:
        await member.close()


async def test_status_of_a_group_that_is_not_there(pair: Pair) -> None:
    _, client = pair
    header = GetConsumerStatusRequestHeader(topic=TOPIC, group=GROUP)
    response = await client.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
    assert response.remark == f"No Any Consumer online in the consumer group: [{GROUP}]"
