import asyncio
from pathlib import Path

import pytest

from broker.server import Broker
from sprocket.remoting.bodies.client import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    SubscriptionData,
)
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
    UnregisterClientRequestHeader,
)
from tests.broker.rig import GROUP, TOPIC, TestClient, running_broker
from tests.waiting import until

Pair = tuple[Broker, TestClient]


async def member_ids(client: TestClient) -> list[str]:
    header = GetConsumerListByGroupRequestHeader(consumer_group=GROUP)
    response = await client.ask_well(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    return loads(response.body, ConsumerIdList).consumer_id_list


async def test_heartbeat_creates_group_and_retry_topic(pair: Pair) -> None:
    broker, client = pair
    response = await client.heartbeat("c1", TOPIC)
    assert response.ext_fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert GROUP in broker.groups
    assert broker.topics.get("%RETRY%CG") == TopicConfig("%RETRY%CG", 1, 1, 6)
    assert await member_ids(client) == ["c1"]


async def test_retry_topic_of_an_ordered_topic_is_ordered(pair: Pair) -> None:
    broker, client = pair
    broker.topics.update([TopicConfig(TOPIC, order=True)])
    await client.heartbeat("c1", TOPIC)
    assert broker.topics.is_order("%RETRY%CG")


@pytest.mark.code(RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.GET_CONSUMER_LIST_BY_GROUP)
async def test_a_join_and_a_leave_notify_the_other_members(pair: Pair) -> None:
    broker, client = pair
    other = TestClient(client.address)
    await client.heartbeat("c1", TOPIC)
    await until(lambda: len(client.asked) == 1)
    await other.heartbeat("c2", TOPIC)
    await until(lambda: len(client.asked) == 2)
    assert sorted(await member_ids(client)) == ["c1", "c2"]
    await other.close()
    await until(lambda: len(client.asked) == 3)
    assert {int(request.code) for request in client.asked} == {int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)}
    assert await member_ids(client) == ["c1"]
    header = UnregisterClientRequestHeader(client_id="c1", consumer_group=GROUP)
    await client.ask_well(RequestCode.UNREGISTER_CLIENT, header)
    assert broker.consumers.group(GROUP) is None


async def test_a_client_that_leaves_while_its_heartbeat_joins_its_groups_is_out(pair: Pair) -> None:
    broker, client = pair
    body = dumps(HeartbeatData("c1", consumer_data_set=[ConsumerData(f"G{number}") for number in range(20)]))
    leave = {"clientID": "c1", "consumerGroup": "G19"}
    reader, writer = await asyncio.open_connection(*client.address.split(":"))
    # One read of the broker has both.
    writer.write(
        encode_request(RequestCode.HEART_BEAT, 1, {}, len(body)) + body
        + encode_request(RequestCode.UNREGISTER_CLIENT, 2, leave, 0)
    )  # fmt: skip
    for _ in range(2):
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    assert broker.consumers.group("G18") is not None
    assert broker.consumers.group("G19") is None
    writer.close()


async def test_group_that_nobody_is_in(pair: Pair) -> None:
    _, client = pair
    header = GetConsumerListByGroupRequestHeader(consumer_group="Nobody")
    response = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "no consumer for this group, Nobody"


async def test_fingerprint_says_whether_subscriptions_must_be_sent(pair: Pair) -> None:
    _, client = pair

    async def is_change(fingerprint: int, without_sub: bool = False) -> str:
        response = await client.heartbeat("c1", TOPIC, heartbeat_fingerprint=fingerprint, without_sub=without_sub)
        return response.ext_fields["IS_SUB_CHANGE"]

    assert await is_change(11, without_sub=True) == "true", "a broker that has restarted knows nothing"
    assert await is_change(11) == "false"
    assert await is_change(11, without_sub=True) == "false"
    assert await is_change(12) == "true"


async def test_heartbeat_of_a_group_that_may_not_be_created(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_subscription_group=False) as (broker, client):
        await client.heartbeat("c1", TOPIC, producer_group="PG")
        assert broker.consumers.group(GROUP) is None
        assert "%RETRY%CG" not in broker.topics
        assert [member.client_id for member in broker.producers.members("PG")] == ["c1"]


async def test_heartbeat_that_is_no_json_closes_nothing(pair: Pair) -> None:
    _, client = pair
    response = await client.ask(RequestCode.HEART_BEAT, body=b"{")
    assert response.code == ResponseCode.SYSTEM_ERROR
    await client.heartbeat("c1", TOPIC)


@pytest.mark.parametrize(("kind", "code"), [("TAG", ResponseCode.SUCCESS), ("SQL92", ResponseCode.SYSTEM_ERROR)])
@pytest.mark.code(RequestCode.CHECK_CLIENT_CONFIG)
async def test_check_client_config(pair: Pair, kind: str, code: int) -> None:
    _, client = pair
    body = CheckClientRequestBody("c1", GROUP, SubscriptionData(TOPIC, "a > 1", expression_type=kind))
    response = await client.ask(RequestCode.CHECK_CLIENT_CONFIG, body=dumps(body))
    assert response.code == code


@pytest.mark.code(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
async def test_locks(pair: Pair) -> None:
    _, client = pair
    await client.send()
    await client.heartbeat("c1", TOPIC)
    queues = [MessageQueue(TOPIC, "broker-a", queue_id) for queue_id in range(2)]

    async def lock(client_id: str, wanted: list[MessageQueue]) -> list[MessageQueue]:
        body = dumps(LockBatchRequestBody(GROUP, client_id, mq_set=wanted))
        response = await client.ask_well(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), body)
        return loads(response.body, LockBatchResponseBody).lock_ok_mq_set

    assert await lock("c1", queues) == queues
    assert await lock("c2", queues) == []
    absent = [MessageQueue("Unknown", "broker-a", 0), *(MessageQueue(TOPIC, "broker-a", number) for number in (-1, 99))]
    assert await lock("c1", absent) == []
    # One queue, whatever broker the client names.
    assert await lock("c2", [MessageQueue(TOPIC, "another", 0)]) == []
    body = dumps(LockBatchRequestBody(GROUP, "c1", mq_set=queues[:1]))
    await client.ask_well(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), body)
    assert await lock("c2", queues) == queues[:1]
