from broker.server import Broker
from remoting.bodies.client import ConsumerConnection, ProducerConnection
from remoting.codes import RequestCode, ResponseCode
from remoting.fastjson import loads
from remoting.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from tests.broker.rig import GROUP, TOPIC, TestClient

Pair = tuple[Broker, TestClient]


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


async def test_question_is_passed_on_to_the_consumer(pair: Pair) -> None:
    _, client = pair
    operator = TestClient(client.address)
    await client.heartbeat("c1", TOPIC)
    header = GetConsumerRunningInfoRequestHeader(consumer_group=GROUP, client_id="c1")
    response = await operator.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    # This client does not serve the code, and its own answer is what the operator gets.
    assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    await operator.close()
