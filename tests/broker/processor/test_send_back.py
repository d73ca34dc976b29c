from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from broker.server import Broker
from broker.timer.timer_intake import TIMER_NAMES
from sprocket.client.send.send_request import batched
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from sprocket.remoting.message.properties import parse
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC
from store.record.record import Record
from tests.broker.rig import GROUP, TOPIC, TestClient, running_broker, stored
from tests.send_headers import send_header
from tests.waiting import until

Pair = tuple[Broker, TestClient]


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
async def pair(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    from store.config.store_config import FlushDiskType

    # Level 3 is the first retry; it and the next are due at once.
    changes = {"flush_disk_type": FlushDiskType[request.param], "message_delay_level": "1h 1h 0s 0s 1h"}
    async with running_broker(tmp_path, store=changes) as pair:
        yield pair


async def send_back(client: TestClient, offset: int, delay_level: int = 0, **changes: object) -> ReceivedResponse:
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group=GROUP, delay_level=delay_level)
    header = msgspec.structs.replace(header, **changes)
    return await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


def properties(record: Record) -> dict[str, str]:
    return parse(str(record.properties, "utf-8"))


async def sent(broker: Broker, client: TestClient, topic: str = TOPIC) -> Record:
    answer = await client.send(b"payload", topic, TAGS="TagA")
    await until(lambda: broker.store.max_offset(topic, 0) > answer.queue_offset)
    return stored(broker, topic, 0, answer.queue_offset)


async def arrived(broker: Broker, topic: str, offset: int = 0) -> Record:
    await until(lambda: broker.store.max_offset(topic, 0) > offset)
    return stored(broker, topic, 0, offset)


async def test_message_is_redelivered_from_the_retry_topic(pair: Pair) -> None:
    broker, client = pair
    original = await sent(broker, client)
    response = await send_back(client, original.physical_offset)
    assert response.code == ResponseCode.SUCCESS
    retried = await arrived(broker, "%RETRY%CG")
    assert bytes(retried.body) == b"payload"
    assert retried.reconsume_times == 1
    assert retried.born_timestamp == original.born_timestamp
    assert retried.born_host == original.born_host
    found = properties(retried)
    assert found["RETRY_TOPIC"] == TOPIC
    assert found["TAGS"] == "TagA"
    assert found["DELAY"] == "3"
    own_id = original.store_host.hex().upper() + f"{original.physical_offset:016X}"
    assert found["ORIGIN_MESSAGE_ID"] == own_id


async def test_messages_of_a_batch_keep_their_own_ids(pair: Pair) -> None:
    """Other than RocketMQ's, which have the id of the batch: consumers would take the second for a duplicate."""
    broker, client = pair
    pieces = [batched(b"%d" % number, f"UNIQ_KEY\x01K{number}\x02", 0) for number in range(2)]
    header = send_header(queue_id=0, properties="UNIQ_KEY\x01K\x02", batch=True)
    header.topic = TOPIC
    answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, header, b"".join(pieces))
    assert answer.code == ResponseCode.SUCCESS
    for number in range(2):
        original = await arrived(broker, TOPIC, number)
        await send_back(client, original.physical_offset)
        retried = await arrived(broker, "%RETRY%CG", number)
        assert (bytes(retried.body), properties(retried)["UNIQ_KEY"]) == (b"%d" % number, f"K{number}")


async def test_a_message_with_its_own_time_is_redelivered_after_the_level_s_delay(pair: Pair) -> None:
    broker, client = pair
    now_ms = broker.clock.wall_ms()
    await client.send(b"payload", TIMER_DELIVER_MS=str(now_ms - 1), TIMER_DELAY_MS="-1", TIMER_DELAY_SEC="0")
    original = await arrived(broker, TOPIC)
    assert properties(original).keys() >= {*TIMER_NAMES}
    await send_back(client, original.physical_offset)
    assert not properties(await arrived(broker, "%RETRY%CG")).keys() & {*TIMER_NAMES}
    await send_back(client, original.physical_offset, delay_level=-1)
    assert properties(await arrived(broker, "%DLQ%CG")).keys() >= {*TIMER_NAMES}


async def test_second_retry_waits_a_level_longer_and_remembers_the_first_message(pair: Pair) -> None:
    broker, client = pair
    original = await sent(broker, client)
    await send_back(client, original.physical_offset)
    first = await arrived(broker, "%RETRY%CG")
    await send_back(client, first.physical_offset)
    second = await arrived(broker, "%RETRY%CG", 1)
    assert second.reconsume_times == 2
    assert properties(second)["DELAY"] == "4"
    assert properties(second)["RETRY_TOPIC"] == TOPIC
    assert properties(second)["ORIGIN_MESSAGE_ID"] == properties(first)["ORIGIN_MESSAGE_ID"]


@pytest.mark.parametrize(("asked", "level"), [(1, 1), (2, 2), (99, 5)])
@pytest.mark.code(RequestCode.CONSUMER_SEND_MSG_BACK)
async def test_consumer_may_choose_the_level(pair: Pair, asked: int, level: int) -> None:
    broker, client = pair
    original = await sent(broker, client)
    await send_back(client, original.physical_offset, asked)
    await until(lambda: broker.store.max_offset(SCHEDULE_TOPIC, level - 1) == 1)
    assert properties(stored(broker, SCHEDULE_TOPIC, level - 1, 0))["DELAY"] == str(level)


@pytest.mark.parametrize("how", ["negative level", "client's maximum", "group's maximum"])
async def test_given_up_messages_go_to_the_dead_letter_topic(pair: Pair, how: str) -> None:
    broker, client = pair
    original = await sent(broker, client)
    if how == "negative level":
        await send_back(client, original.physical_offset, -1)
    elif how == "client's maximum":
        await send_back(client, original.physical_offset, max_reconsume_times=0)
    else:
        broker.groups.update([SubscriptionGroupConfig(GROUP, retry_max_times=0)])
        await send_back(client, original.physical_offset)
    dead = await arrived(broker, "%DLQ%CG")
    assert bytes(dead.body) == b"payload"
    assert dead.reconsume_times == 1
    assert properties(dead)["RETRY_TOPIC"] == TOPIC
    assert broker.topics.get("%DLQ%CG") == TopicConfig("%DLQ%CG", 1, 1, 6)


async def test_group_without_retries_drops_the_message(pair: Pair) -> None:
    broker, client = pair
    original = await sent(broker, client)
    broker.groups.update([SubscriptionGroupConfig(GROUP, retry_queue_nums=0)])
    end = broker.store.wrote_offset
    assert (await send_back(client, original.physical_offset)).code == ResponseCode.SUCCESS
    assert broker.store.wrote_offset == end


@pytest.mark.parametrize("offset", [-1, 1, 1 << 40])
async def test_offset_of_no_message(pair: Pair, offset: int) -> None:
    broker, client = pair
    await sent(broker, client)
    response = await send_back(client, offset)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == f"look message by offset failed, {offset}"


async def test_retry_topic_that_may_not_be_written(pair: Pair) -> None:
    broker, client = pair
    original = await sent(broker, client)
    broker.topics.update([TopicConfig("%RETRY%CG", perm=4)])
    response = await send_back(client, original.physical_offset)
    assert response.code == ResponseCode.NO_PERMISSION
    assert response.remark == "the topic[%RETRY%CG] sending message is forbidden"


async def test_unknown_group_where_none_may_be_created(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_subscription_group=False) as (broker, client):
        original = await sent(broker, client)
        response = await send_back(client, original.physical_offset)
        assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
