"""SQL92 subscriptions over the wire: what is answered, what comes, what wakes a held pull, what is kept."""

import asyncio
import json
from pathlib import Path

import pytest

from broker.server import Broker
from sprocket.remoting.bodies.client import CheckClientRequestBody, ConsumerData, HeartbeatData, SubscriptionData
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.client import HeartbeatRequestHeader, UnregisterClientRequestHeader
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from sprocket.remoting.message.properties import parse
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker
from tests.store.reading import records_of
from tests.waiting import until

SUSPEND, SUBSCRIPTION = 2, 4


def subscription(expression: str, version: int = 5, topic: str = TOPIC) -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version, expression_type="SQL92")


async def subscribe(client: TestClient, *subscriptions: SubscriptionData, **data: object) -> None:
    consumer = ConsumerData(GROUP, subscription_data_set=list(subscriptions))
    body = dumps(HeartbeatData("c1", [], [consumer], **data))  # type: ignore[arg-type]
    await client.ask_well(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), body)


async def pull(client: TestClient, offset: int = 0, sys_flag: int = 0, **fields: object) -> ReceivedResponse:
    values: dict[str, object] = {
        "consumer_group": GROUP, "topic": TOPIC, "queue_id": 0, "queue_offset": offset, "max_msg_nums": 32,
        "sys_flag": sys_flag, "commit_offset": 0, "suspend_timeout_millis": 20_000, "sub_version": 5,
        "expression_type": "SQL92",
    }  # fmt: skip
    return await client.ask(RequestCode.PULL_MESSAGE, PullMessageRequestHeader(**(values | fields)))  # type: ignore[arg-type]


def found(response: ReceivedResponse) -> list[str]:
    assert response.code == ResponseCode.SUCCESS, response.remark
    return [parse(bytes(record.properties).decode())["n"] for record in records_of([memoryview(response.body)])]


async def send(client: TestClient, *numbers: int, topic: str = TOPIC, **properties: str) -> None:
    for number in numbers:
        await client.send(topic=topic, n=str(number), **properties)


async def check(client: TestClient, expression: str, kind: str = "SQL92") -> ReceivedResponse:
    data = SubscriptionData(TOPIC, expression, expression_type=kind)
    return await client.ask(RequestCode.CHECK_CLIENT_CONFIG, body=dumps(CheckClientRequestBody("c1", GROUP, data)))


async def with_topic(client: TestClient) -> None:
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())


async def test_only_matching_messages_come_and_the_offset_moves_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as (_, client):
        await send(client, *range(10))
        await subscribe(client, subscription("n between 3 and 5"))
        response = await pull(client)
        assert found(response) == ["3", "4", "5"]
        assert response.header(PullMessageResponseHeader).next_begin_offset == 10
        in_request = await pull(client, sys_flag=SUBSCRIPTION, subscription="n in ('1', '7')")
        assert found(in_request) == ["1", "7"]
        none = await pull(client, sys_flag=SUBSCRIPTION, subscription="n > 100")
        assert none.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert none.header(PullMessageResponseHeader).next_begin_offset == 10


async def test_a_broker_without_the_feature_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await with_topic(client)
        await subscribe(client, subscription("n > 3"))
        remark = "The broker does not support consumer to filter message by SQL92"
        for response in (
            await pull(client),
            await pull(client, sys_flag=SUBSCRIPTION, subscription="n > 3"),
            await check(client, "n > 3"),
        ):
            assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        broker.config.update(b"enablePropertyFilter=true")
        assert (await pull(client)).code == ResponseCode.PULL_NOT_FOUND
        assert (await check(client, "n > 3")).code == ResponseCode.SUCCESS


async def test_what_is_wrong_with_a_filter_is_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as (_, client):
        await with_topic(client)
        reason = "invalid SQL92 filter, position 5: expected a value, found the end"
        checked = await check(client, "n > ")
        assert (checked.code, checked.remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, reason)
        assert (await check(client, "n > 1", "XPATH")).code == ResponseCode.SYSTEM_ERROR
        for expression in ("", "n > "):
            pulled = await pull(client, sys_flag=SUBSCRIPTION, subscription=expression)
            assert pulled.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        await subscribe(client, subscription("n > "))
        unknown = await pull(client)
        assert unknown.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert unknown.remark == "The broker's consumer filter data is not exist!Your expression may be wrong!"
        await subscribe(client, subscription("n > 1", 6))
        assert (await pull(client, sub_version=7)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert (await pull(client, sub_version=6)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_filter_that_lags_behind_the_subscription_is_not_latest(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as (broker, client):
        await with_topic(client)
        await subscribe(client, subscription("n > 1", 6))
        group = broker.consumers.group(GROUP)
        assert group is not None
        group.subscriptions[TOPIC] = subscription("n > 1", 8)
        answer = await pull(client, sub_version=8)
        assert answer.code == ResponseCode.FILTER_DATA_NOT_LATEST
        assert answer.remark == "the consumer's consumer filter data not latest"


async def test_a_held_pull_wakes_for_a_match_alone(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as (broker, client):
        await with_topic(client)
        await subscribe(client, subscription("n > 5"))
        held = asyncio.create_task(pull(client, sys_flag=SUSPEND))
        await until(lambda: len(broker.held) == 1)
        await send(client, 1, 2, 3)
        assert len(broker.held) == 1
        assert not held.done()
        await send(client, 6)
        assert found(await held) == ["6"]


async def test_retry_topics_are_filtered_by_the_original_topic_if_wanted(tmp_path: Path) -> None:
    retry = f"%RETRY%{GROUP}"
    async with running_broker(tmp_path, enable_property_filter=True) as (broker, client):
        await with_topic(client)
        await subscribe(client, subscription("n > 5"), subscription("n > 0", topic=retry))
        await send(client, 4, 6, topic=retry, RETRY_TOPIC=TOPIC)
        await send(client, 1, topic=retry, RETRY_TOPIC="Unknown")
        assert found(await pull(client, topic=retry)) == ["4", "6", "1"]
        broker.config.update(b"filterSupportRetry=true")
        assert found(await pull(client, topic=retry)) == ["6", "1"]
        in_request = await pull(client, topic=retry, sys_flag=SUBSCRIPTION, subscription="n > 0")
        assert found(in_request) == ["6", "1"]


async def test_filters_outlive_the_broker_and_the_group(tmp_path: Path) -> None:
    def saved() -> dict[str, object]:
        text = (tmp_path / "store" / "config" / "consumerFilter.json").read_bytes()
        data: dict[str, object] = json.loads(text)["filterDataByTopic"][TOPIC]["groupFilterData"][GROUP]
        return data

    async with running_broker(tmp_path, enable_property_filter=True) as (broker, client):
        await send(client, 1, 9)
        await subscribe(client, subscription("n > 5"))
        broker.filters.persist()
        assert (saved()["expression"], saved()["dead"]) == ("n > 5", False)
        header = UnregisterClientRequestHeader(client_id="c1", consumer_group=GROUP)
        await client.ask_well(RequestCode.UNREGISTER_CLIENT, header)
    assert saved()["dead"] is True
    async with running_broker(tmp_path, enable_property_filter=True) as (broker, client):
        assert len(broker.filters) == 1
        await subscribe(client, subscription("n > 5"))
        assert found(await pull(client)) == ["9"]


@pytest.mark.parametrize("expression", ["n > 5", "n >"])
async def test_a_heartbeat_without_subscriptions_changes_no_filter(tmp_path: Path, expression: str) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as (broker, client):
        await with_topic(client)
        await subscribe(client, subscription(expression))
        count = _filters(broker)
        await subscribe(client, heartbeat_fingerprint=7, without_sub=True)
        assert _filters(broker) == count


def _filters(broker: Broker) -> tuple[int, bool]:
    held = broker.filters.find(TOPIC, GROUP)
    return len(broker.filters), held is not None and held.data.dead_time == 0
