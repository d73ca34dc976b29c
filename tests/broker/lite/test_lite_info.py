"""What operators see of lite topics."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from sprocket.remoting.bodies.lite import (
    ClientGroup,
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
)
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.lite import (
    GetLiteClientInfoRequestHeader,
    GetLiteGroupInfoRequestHeader,
    GetLiteTopicInfoRequestHeader,
    GetParentTopicInfoRequestHeader,
    TriggerLiteDispatchRequestHeader,
)
from sprocket.remoting.message.lite_topics import lite_queue
from tests.broker.lite.rig import GROUP, PARENT, ack, lite_broker, popped, send_lite, subscribe
from tests.broker.rig import TestClient, create


@pytest.fixture
async def busy(tmp_path: Path) -> AsyncIterator[tuple[Broker, TestClient]]:
    """Two lite topics: of `s1` one of three messages is acknowledged, `s2` is not consumed."""
    async with lite_broker(tmp_path, expiration="60") as (broker, client):
        await subscribe(client, "c1", "s1", "s2", "empty")
        for number in range(3):
            await send_lite(client, "s1", b"%d" % number)
        await ack(client, (await popped(client, "c1", max_msg_num=1))[0])
        await send_lite(client, "s2", b"a")
        yield broker, client


@pytest.mark.code(RequestCode.GET_BROKER_LITE_INFO)
async def test_the_broker_tells_the_sizes_of_its_tables(busy: tuple[Broker, TestClient]) -> None:
    _, client = busy
    body = loads((await client.ask_well(RequestCode.GET_BROKER_LITE_INFO)).body, GetBrokerLiteInfoResponseBody)
    assert (body.current_lmq_num, body.lite_subscription_count, body.event_map_size) == (2, 3, 1)
    assert (body.topic_meta, body.group_meta) == ({PARENT: 60}, {PARENT: [GROUP]})
    assert body.max_lmq_num == 20_000


@pytest.mark.code(RequestCode.GET_PARENT_TOPIC_INFO)
async def test_a_parent_tells_its_groups_and_how_many_lite_topics_it_has(busy: tuple[Broker, TestClient]) -> None:
    _, client = busy
    header = GetParentTopicInfoRequestHeader(topic=PARENT)
    response = await client.ask_well(RequestCode.GET_PARENT_TOPIC_INFO, header)
    assert loads(response.body, GetParentTopicInfoResponseBody) == GetParentTopicInfoResponseBody(
        PARENT, 60, [GROUP], 2, 2
    )
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Plain"))
    for topic, code in (("Plain", ResponseCode.INVALID_PARAMETER), ("Unknown", ResponseCode.TOPIC_NOT_EXIST)):
        response = await client.ask(RequestCode.GET_PARENT_TOPIC_INFO, GetParentTopicInfoRequestHeader(topic=topic))
        assert response.code == code


@pytest.mark.code(RequestCode.GET_LITE_TOPIC_INFO)
async def test_a_lite_topic_tells_its_offsets_and_subscribers(busy: tuple[Broker, TestClient]) -> None:
    _, client = busy
    header = GetLiteTopicInfoRequestHeader(parent_topic=PARENT, lite_topic="s1")
    body = loads((await client.ask_well(RequestCode.GET_LITE_TOPIC_INFO, header)).body, GetLiteTopicInfoResponseBody)
    assert body.subscriber == [ClientGroup("c1", GROUP)]
    assert body.topic_offset is not None
    assert (body.topic_offset.min_offset, body.topic_offset.max_offset) == (0, 3)


@pytest.mark.code(RequestCode.GET_LITE_CLIENT_INFO)
async def test_a_client_tells_some_of_its_lite_topics(busy: tuple[Broker, TestClient]) -> None:
    _, client = busy

    async def asked(client_id: str) -> GetLiteClientInfoResponseBody:
        header = GetLiteClientInfoRequestHeader(parent_topic=PARENT, group=GROUP, client_id=client_id, max_count=2)
        response = await client.ask_well(RequestCode.GET_LITE_CLIENT_INFO, header)
        return loads(response.body, GetLiteClientInfoResponseBody)

    known = await asked("c1")
    assert (known.lite_topic_count, known.lite_topic_set) == (3, [lite_queue(PARENT, "s1"), lite_queue(PARENT, "s2")])
    assert known.last_access_time > 0
    assert (await asked("unknown")).lite_topic_count == -1


@pytest.mark.code(RequestCode.GET_LITE_GROUP_INFO)
async def test_a_group_tells_its_lag(busy: tuple[Broker, TestClient]) -> None:
    _, client = busy
    await popped(client, "c1")  # the group has an offset in each lite topic now

    async def asked(**changes: object) -> GetLiteGroupInfoResponseBody:
        header = GetLiteGroupInfoRequestHeader(group=GROUP, **changes)  # type: ignore[arg-type]
        return loads(
            (await client.ask_well(RequestCode.GET_LITE_GROUP_INFO, header)).body, GetLiteGroupInfoResponseBody
        )

    one = await asked(lite_topic="s1")
    assert one.total_lag_count == 2
    assert one.lite_topic_offset_wrapper is not None
    assert (one.lite_topic_offset_wrapper.broker_offset, one.lite_topic_offset_wrapper.consumer_offset) == (3, 1)
    assert (await asked(lite_topic="empty")).total_lag_count == -1
    top = await asked(top_k=1)
    assert top.total_lag_count == 3
    assert [(lag.lite_topic, lag.lag_count) for lag in top.lag_count_top_k or []] == [("s1", 2)]
    assert [lag.lite_topic for lag in top.lag_timestamp_top_k or []] == ["s1"]
    assert top.earliest_unconsumed_timestamp > 0


@pytest.mark.code(RequestCode.TRIGGER_LITE_DISPATCH)
async def test_a_trigger_lets_a_client_look_at_all_its_lite_topics(busy: tuple[Broker, TestClient]) -> None:
    broker, client = busy
    for message in await popped(client, "c1"):
        await ack(client, message)
    broker.offsets.assign(GROUP, lite_queue(PARENT, "s2"), 0, 0)  # moved back, which makes no event
    assert await popped(client, "c1") == []
    await client.ask_well(RequestCode.TRIGGER_LITE_DISPATCH, TriggerLiteDispatchRequestHeader(group=GROUP))
    assert [m.lite for m in await popped(client, "c1")] == ["s2"]
    refused = await client.ask(RequestCode.TRIGGER_LITE_DISPATCH, TriggerLiteDispatchRequestHeader(group="Unknown"))
    assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
