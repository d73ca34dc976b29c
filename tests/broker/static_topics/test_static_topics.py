"""Static topics over two brokers: what clients and tools see before, during and after a remapping."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.client import by_queue
from sprocket.remoting.bodies.registration import TopicConfigAndMapping
from sprocket.remoting.bodies.route import TopicRouteData
from sprocket.remoting.bodies.stats import ConsumeStats
from sprocket.remoting.bodies.topic_queue_mapping import TopicConfigAndQueueMapping, TopicQueueMappingDetail
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.admin import (
    DeleteTopicRequestHeader,
    GetConsumeStatsRequestHeader,
    GetTopicConfigRequestHeader,
)
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader
from sprocket.remoting.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from tests.broker.insides import core_of
from tests.broker.rig import GROUP, TOPIC, TestClient, create
from tests.broker.static_topics.rig import A, B, Site, body, item, records, site
from tests.send_headers import send_header
from tests.waiting import until

LOGIC = 10_000


@pytest.fixture(name="two")
async def two_brokers(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await two.created()
        yield two


async def pull(client: TestClient, offset: int, queue_id: int = 0, **changes: Any) -> ReceivedResponse:
    header = PullMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, queue_offset=offset, max_msg_nums=32, sys_flag=4,
        commit_offset=0, suspend_timeout_millis=20_000, subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip
    for name, value in changes.items():
        setattr(header, name, value)
    return await client.ask(RequestCode.PULL_MESSAGE, header)


def offsets_of(response: ReceivedResponse) -> list[tuple[int, bytes]]:
    """The logical offset and the body of each message."""
    delta = response.header(PullMessageResponseHeader).offset_delta or 0
    return [(record.queue_offset + delta, bytes(record.body)) for record in records(response.body)]


async def number(client: TestClient, code: RequestCode, header: Any) -> int:
    fields = (await client.ask_well(code, header)).ext_fields
    return int(fields.get("offset", fields.get("timestamp", "")))


@pytest.mark.code(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)
async def test_a_send_goes_to_the_physical_queue_and_is_answered_with_the_logical_one(two: Site) -> None:
    answer = await two.clients[B].send(b"one", queue_id=1)
    assert (answer.queue_id, answer.queue_offset) == (1, 0)
    assert two.brokers[B].store.max_offset(TOPIC, 0) == 1
    refused = await two.clients[A].ask(RequestCode.SEND_MESSAGE_V2, _send_header(1), b"x")
    assert refused.code == ResponseCode.NOT_LEADER_FOR_QUEUE
    anywhere = await two.clients[B].send(b"two", queue_id=-1)
    assert (anywhere.queue_id, anywhere.queue_offset) == (1, 1)


def _send_header(queue_id: int) -> Any:
    return send_header(TOPIC, queue_id=queue_id, properties="UNIQ_KEY\x010A000001000000000000000000000001\x02")


async def test_a_consumer_reads_on_over_a_remapping(two: Site) -> None:
    for text in (b"0", b"1", b"2"):
        await two.clients[A].send(text)
    await two.remapped(-1)
    assert (await two.clients[B].send(b"new")).queue_offset == -1  # the logical offset is not known yet
    await two.remapped(LOGIC)
    sent = await two.clients[B].send(b"newer")
    assert (sent.queue_id, sent.queue_offset) == (0, LOGIC + 1)
    # Broker b leads, and forwards what is in broker a.
    assert (await pull(two.clients[A], 0)).code == ResponseCode.NOT_LEADER_FOR_QUEUE
    response = await pull(two.clients[B], 1)
    found = response.header(PullMessageResponseHeader)
    assert (response.code, offsets_of(response)) == (ResponseCode.SUCCESS, [(1, b"1"), (2, b"2")])
    assert (found.next_begin_offset, found.min_offset, found.max_offset) == (3, 0, LOGIC)
    response = await pull(two.clients[B], 3)
    found = response.header(PullMessageResponseHeader)
    assert (response.code, found.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, LOGIC)
    response = await pull(two.clients[B], LOGIC)
    assert offsets_of(response) == [(LOGIC, b"new"), (LOGIC + 1, b"newer")]
    found = response.header(PullMessageResponseHeader)
    assert (found.next_begin_offset, found.max_offset) == (LOGIC + 2, LOGIC + 2)


async def test_a_physical_queue_is_read_with_lo_false(two: Site) -> None:
    await two.clients[A].send(b"0")
    await two.remapped(LOGIC)
    response = await pull(two.clients[A], 0, lo=False)
    assert offsets_of(response) == [(0, b"0")]


async def test_a_pull_waits_at_the_end_of_the_leader(two: Site) -> None:
    await two.remapped(LOGIC)
    waiting = asyncio.create_task(pull(two.clients[B], LOGIC, sys_flag=4 | 2))
    while not len(two.brokers[B].held):
        await asyncio.sleep(0.01)
    await two.clients[B].send(b"first")
    assert offsets_of(await waiting) == [(LOGIC, b"first")]


async def test_a_pull_that_waits_is_answered_at_once_when_its_queue_moves(two: Site) -> None:
    waiting = asyncio.create_task(pull(two.clients[A], 0, sys_flag=4 | 2))
    while not len(two.brokers[A].held):
        await asyncio.sleep(0.01)
    await two.remapped(LOGIC)
    assert (await waiting).code == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_a_pull_waits_until_it_is_known_where_the_next_item_begins(two: Site) -> None:
    await two.clients[A].send(b"0")
    await two.remapped(-1)
    waiting = asyncio.create_task(pull(two.clients[B], 1, sys_flag=4 | 2))
    await until(lambda: len(two.brokers[B].held))
    await two.clients[B].send(b"new")
    assert len(two.brokers[B].held) == 1
    await two.remapped(LOGIC)
    response = await waiting
    # The consumer pulls again at once, and then moves on.
    next_begin = response.header(PullMessageResponseHeader).next_begin_offset
    assert (response.code, next_begin) == (ResponseCode.PULL_NOT_FOUND, 1)
    response = await pull(two.clients[B], next_begin)
    assert response.header(PullMessageResponseHeader).next_begin_offset == LOGIC


async def test_a_broker_that_does_not_answer_refuses_the_pull_alone(two: Site) -> None:
    await two.clients[A].send(b"0")
    await two.remapped(LOGIC)
    await two.clients[B].send(b"new")
    await two.brokers[A].stop()
    try:
        refused = await pull(two.clients[B], 0)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "broker-a does not answer" in (refused.remark or "")
        assert two.brokers[B].routes.refusals.by_reason == {Reason.OTHER_BROKER: 1}
        assert offsets_of(await pull(two.clients[B], LOGIC)) == [(LOGIC, b"new")]
    finally:
        await two.brokers[A].start()


async def test_offsets_of_groups_are_kept_where_the_messages_are(two: Site) -> None:
    for text in (b"0", b"1"):
        await two.clients[A].send(text)
    await two.remapped(LOGIC)
    await two.clients[B].send(b"new")
    query = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    await pull(two.clients[B], 0)  # makes the group on both brokers
    await pull(two.clients[B], LOGIC)
    assert (await two.clients[B].ask(RequestCode.QUERY_CONSUMER_OFFSET, query)).code == ResponseCode.QUERY_NOT_FOUND
    for offset, holder, place in ((1, A, (0, 1)), (LOGIC + 1, B, (1, 1))):
        commit = UpdateConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset)
        await two.clients[B].ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        assert two.brokers[holder].offsets.query(GROUP, TOPIC, place[0]) == place[1]
        assert await number(two.clients[B], RequestCode.QUERY_CONSUMER_OFFSET, query) == offset
    refused = await two.clients[A].ask(RequestCode.QUERY_CONSUMER_OFFSET, query)
    assert refused.code == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_a_pull_commits_the_physical_offset(two: Site) -> None:
    await two.remapped(LOGIC)
    await two.clients[B].send(b"new")
    await pull(two.clients[B], LOGIC, sys_flag=4 | 1, commit_offset=LOGIC + 1)
    assert two.brokers[B].offsets.query(GROUP, TOPIC, 1) == 1
    await pull(two.clients[B], LOGIC, sys_flag=4 | 1, commit_offset=5)
    assert two.brokers[B].offsets.query(GROUP, TOPIC, 1) == 1


async def test_progress_says_where_a_group_has_no_offset(two: Site) -> None:
    """Tools look for the newest physical queue with an offset, so 0 would be wrong."""
    await two.clients[A].send(b"0")
    header = GetConsumeStatsRequestHeader(consumer_group=GROUP, topic=TOPIC)
    two.brokers[A].offsets.commit(GROUP, TOPIC, 1, 0)
    response = await two.clients[A].ask_well(RequestCode.GET_CONSUME_STATS, header)
    table = by_queue(loads(response.body, ConsumeStats[str]).offset_table)
    assert {queue.queue_id: progress.consumer_offset for queue, progress in table.items()} == {0: -1, 1: 0}


async def test_ends_and_times_are_those_of_the_whole_queue(two: Site) -> None:
    client, queue = two.clients[B], {"topic": TOPIC, "queue_id": 0}
    await two.clients[A].send(b"0")
    await two.clients[A].send(b"1")
    await two.remapped(-1)
    assert await number(client, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(**queue)) == 2
    await two.remapped(LOGIC)
    assert await number(client, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(**queue)) == LOGIC
    await asyncio.sleep(0.01)  # times have milliseconds
    await client.send(b"new")
    assert await number(client, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(**queue)) == LOGIC + 1
    assert await number(client, RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(**queue)) == 0
    old, new = two.brokers[A].store.earliest_store_time(TOPIC, 0), two.brokers[B].store.earliest_store_time(TOPIC, 1)
    earliest = GetEarliestMsgStoretimeRequestHeader(**queue)
    assert await number(client, RequestCode.GET_EARLIEST_MSG_STORETIME, earliest) == old

    async def search(timestamp: int, boundary: str = "LOWER") -> int:
        header = SearchOffsetRequestHeader(timestamp=timestamp, boundary_type=boundary, **queue)
        return await number(client, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    assert await search(old - 1) == 0
    assert await search(old) == 0
    assert await search(new - 1) == LOGIC
    assert await search(new) == LOGIC
    assert await search(new + 1) == LOGIC + 1
    assert await search(new, "UPPER") == LOGIC
    assert await search(new - 1, "UPPER") == 1


async def test_a_route_and_a_topic_show_the_mapping(two: Site) -> None:
    remoting = two.clients[A].remoting
    header = GetRouteInfoRequestHeader(topic=TOPIC, accept_standard_json_only=True)
    response = await remoting.invoke(two.name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_s=60)
    mappings = loads(response.body, TopicRouteData).topic_queue_mapping_by_broker or {}
    assert {name: info.curr_id_map for name, info in mappings.items()} == {A: {"0": 0}, B: {"1": 0}}
    await two.remapped(LOGIC)
    response = await remoting.invoke(two.name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_s=60)
    mappings = loads(response.body, TopicRouteData).topic_queue_mapping_by_broker or {}
    assert {name: info.curr_id_map for name, info in mappings.items()} == {A: {}, B: {"1": 0, "0": 1}}
    plain = await two.clients[A].ask_well(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=TOPIC))
    assert loads(plain.body, TopicConfigAndQueueMapping).mapping_detail is None
    logical = GetTopicConfigRequestHeader(topic=TOPIC, lo=True)
    shown = loads(
        (await two.clients[A].ask_well(RequestCode.GET_TOPIC_CONFIG, logical)).body, TopicConfigAndQueueMapping
    )
    assert shown.mapping_detail == core_of(two.brokers[A]).mappings.get(TOPIC)
    everything = loads((await two.clients[A].ask_well(RequestCode.GET_ALL_TOPIC_CONFIG)).body, TopicConfigAndMapping)
    detail = loads(bytes(everything.topic_queue_mapping_detail_map[TOPIC]), TopicQueueMappingDetail)
    assert detail == shown.mapping_detail
    assert everything.mapping_data_version == core_of(two.brokers[A]).mappings.data_version


async def test_a_mapping_survives_a_restart_and_leaves_with_its_topic(two: Site) -> None:
    broker, client = two.brokers[A], two.clients[A]
    before = core_of(broker).mappings.get(TOPIC)
    await broker.stop()
    await broker.start()
    client.address = f"127.0.0.1:{broker.port}"
    assert before is not None and core_of(broker).mappings.get(TOPIC) == before
    await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
    assert core_of(broker).mappings.get(TOPIC) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (body(B, {0: [item(0, 0, B, 0)]}), "for broker broker-b"),
        (body(A, {0: [item(0, 0, A, 0)]}, topic="Other"), "that of topic Other"),
        (body(A, {0: [item(0, 2, A, 0)]}), "writeQueueNums = 2"),
        (body(A, {0: [item(0, 0, A, 0)], 1: [item(0, 0, A, 0)]}), "mapped 2 times"),
        (body(A, {2: [item(0, 0, A, 0)]}), "no logical queue 2"),
        (body(A, {0: []}), "has no items"),
        (body(A, {0: [item(0, 0, B, -1), item(1, 0, A, 0)]}), "only the last item"),
        (body(A, {0: [item(0, 0, A, 0)]}, dirty=True), "dirty"),
        (body(A, {0: [item(0, 0, A, 0)]}, epoch=0), "older than the present one"),
        (body(A, {0: [item(0, 1, A, 0)]}), "cannot change"),
        (body(A, {}), "missing"),
        (b"[]", "body"),
        (body(A, {0: [item(0, 0, A, 0)]}).replace(b"{0:", b'{"x":'), "'x' is not the id"),
    ],
)
async def test_a_mapping_that_breaks_a_rule_changes_nothing(two: Site, content: bytes, reason: str) -> None:
    before = core_of(two.brokers[A]).mappings.get(TOPIC)
    response = await two.clients[A].ask(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, create(), content)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert reason in (response.remark or "")
    assert core_of(two.brokers[A]).mappings.get(TOPIC) == before


async def test_force_replaces_and_keeps_what_it_lacks(two: Site) -> None:
    content = body(A, {1: [item(0, 1, A, 0)]}, epoch=0)
    await two.clients[A].ask_well(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, create(force=True), content)
    detail = core_of(two.brokers[A]).mappings.get(TOPIC)
    assert detail is not None
    assert (detail.epoch, set(detail.hosted_queues)) == (0, {"0", "1"})
