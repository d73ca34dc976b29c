"""Consumers that say in their heartbeats that they pop."""

from pathlib import Path

from sprocket.remoting.bodies.client import (
    ConsumerConnection,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    SubscriptionData,
)
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    HeartbeatRequestHeader,
    UnregisterClientRequestHeader,
)
from tests.broker.pop.rig import ack, popped
from tests.broker.rig import GROUP, TOPIC, TestClient, running_broker
from tests.waiting import until


async def beat(client: TestClient, client_id: str) -> None:
    data = ConsumerData(GROUP, consume_type="CONSUME_POP", subscription_data_set=[SubscriptionData(TOPIC)])
    await client.ask_well(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), dumps(HeartbeatData(client_id, [], [data])))


async def members(client: TestClient) -> list[str]:
    header = GetConsumerListByGroupRequestHeader(consumer_group=GROUP)
    response = await client.ask_well(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    return sorted(loads(response.body, ConsumerIdList).consumer_id_list)


async def test_they_are_members_of_their_group_like_others(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        other = TestClient(client.address)
        await client.send()
        await beat(client, "c1")
        await other.heartbeat("c2", TOPIC)
        await beat(other, "c2")
        assert await members(client) == ["c1", "c2"]
        header = GetConsumerConnectionListRequestHeader(consumer_group=GROUP)
        response = await client.ask_well(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        connection = loads(response.body, ConsumerConnection)
        assert connection.consume_type == "CONSUME_POP"
        assert connection.message_model == "CLUSTERING"
        assert {one.client_id for one in connection.connection_set} == {"c1", "c2"}
        await until(lambda: any(one.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for one in client.asked))
        [message] = await popped(client)
        assert (await ack(client, message)).code == ResponseCode.SUCCESS
        leave = UnregisterClientRequestHeader(client_id="c2", consumer_group=GROUP)
        await other.ask_well(RequestCode.UNREGISTER_CLIENT, leave)
        assert await members(client) == ["c1"]
        await other.close()
