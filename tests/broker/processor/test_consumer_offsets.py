from pathlib import Path

import msgspec
import pytest

from broker.server import Broker
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker
from tests.clock import ManualClock
from tests.store.insides import queues_of

Pair = tuple[Broker, TestClient]


def query(**changes: object) -> QueryConsumerOffsetRequestHeader:
    header = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    return msgspec.structs.replace(header, **changes)


def commit(offset: int, **changes: object) -> UpdateConsumerOffsetRequestHeader:
    header = UpdateConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset)
    return msgspec.structs.replace(header, **changes)


@pytest.mark.code(RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET)
async def test_commit_is_answered_again(pair: Pair) -> None:
    broker, client = pair
    await client.send()
    broker.groups.find(GROUP)
    await client.ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, commit(1))
    response = await client.ask_well(RequestCode.QUERY_CONSUMER_OFFSET, query())
    assert response.header(QueryConsumerOffsetResponseHeader).offset == 1


async def test_group_without_an_offset_starts_at_zero_while_all_is_in_memory(pair: Pair) -> None:
    _, client = pair
    response = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query())
    assert response.code == ResponseCode.QUERY_NOT_FOUND, "there is no topic yet"
    await client.send()
    response = await client.ask_well(RequestCode.QUERY_CONSUMER_OFFSET, query())
    assert response.header(QueryConsumerOffsetResponseHeader).offset == 0
    response = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query(set_zero_if_not_found=False))
    assert response.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_new_group_starts_at_zero_in_a_queue_that_never_had_a_message(pair: Pair) -> None:
    """Were it told "not found", it would lose what arrives before it asks where the queue ends."""
    broker, client = pair
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
    response = await client.ask_well(RequestCode.QUERY_CONSUMER_OFFSET, query())
    assert response.header(QueryConsumerOffsetResponseHeader).offset == 0
    assert broker.offsets.query(GROUP, TOPIC, 0) == -1, "asking commits nothing"
    response = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query(set_zero_if_not_found=False))
    assert response.code == ResponseCode.QUERY_NOT_FOUND
    for queue_id in (2, -1):  # none of the topic's
        response = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query(queue_id=queue_id))
        assert response.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_queue_whose_messages_have_all_expired_is_no_new_one(pair: Pair) -> None:
    broker, client = pair
    await client.send()
    queue = queues_of(broker.store).by_key[TOPIC, 0]
    queue.min_offset = queue.max_offset
    response = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query())
    assert response.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"consumer_group": "Nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "Nothing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_refused_commits(pair: Pair, changes: dict[str, object], code: int) -> None:
    broker, client = pair
    await client.send()
    broker.groups.find(GROUP)
    response = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit(1, **changes))
    assert response.code == code
    assert broker.offsets.topics_of(GROUP) == set()


async def test_queue_of_a_topic_that_shrank_still_takes_commits(pair: Pair) -> None:
    broker, client = pair
    await client.send(queue_id=3)
    broker.groups.find(GROUP)
    config = broker.topics.by_name[TOPIC]
    broker.topics.by_name[TOPIC] = type(config)(TOPIC, 1, 1)
    await client.ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, commit(1, queue_id=3))


async def test_commits_wait_while_a_reset_does(pair: Pair) -> None:
    broker, client = pair
    await client.send()
    broker.groups.find(GROUP)
    broker.offsets.reset(GROUP, TOPIC, 0, 0)
    response = await client.ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, commit(1))
    assert response.remark == "Offset has been previously reset"
    assert broker.offsets.query(GROUP, TOPIC, 0) == 0


@pytest.mark.code(
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
)
async def test_extent_of_a_queue(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (_, client):
        started = clock.wall_ms()
        for _ in range(3):
            await client.send()
            clock.advance(10)
        response = await client.ask_well(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=0))
        assert response.header(GetMaxOffsetResponseHeader).offset == 3
        response = await client.ask_well(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=TOPIC, queue_id=0))
        assert response.header(GetMinOffsetResponseHeader).offset == 0
        header = GetEarliestMsgStoretimeRequestHeader(topic=TOPIC, queue_id=0)
        response = await client.ask_well(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        assert response.header(GetEarliestMsgStoretimeResponseHeader).timestamp == started
        for boundary, offset in ((None, 2), ("LOWER", 2), ("UPPER", 1)):
            search = SearchOffsetRequestHeader(
                topic=TOPIC, queue_id=0, timestamp=started + 15_000, boundary_type=boundary
            )
            response = await client.ask_well(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
            assert response.header(SearchOffsetResponseHeader).offset == offset


async def test_unknown_queue_is_empty(pair: Pair) -> None:
    _, client = pair
    response = await client.ask_well(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="Nothing", queue_id=9))
    assert response.header(GetMaxOffsetResponseHeader).offset == 0
