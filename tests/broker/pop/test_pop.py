"""POP_MESSAGE: what is delivered, which records are written, and where the group continues."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.pop.records import PopCheckPoint
from broker.server import Broker
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import ResetOffsetRequestHeader
from sprocket.remoting.headers.pop import PopMessageResponseHeader
from sprocket.remoting.message.properties import encode, parse
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.config.store_config import FlushDiskType
from store.record.record import PendingMessage
from tests.broker.pop.rig import REVIVE_TOPIC, ack, messages_of, peek, pop, popped, written
from tests.broker.rig import GROUP, TOPIC, create, running_broker
from tests.waiting import until

CODE = ResponseCode


@pytest.mark.code(RequestCode.POP_MESSAGE)
async def test_messages_are_delivered_once_with_handles_that_name_them(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for number in range(3):
            await client.send(b"a%d" % number, queue_id=0)
        await client.send(b"b0", queue_id=1)
        response = await pop(client)
        header = response.header(PopMessageResponseHeader)
        messages = messages_of(response)
        assert {(one.body, one.queue_id, one.queue_offset) for one in messages} == {
            (b"a0", 0, 0), (b"a1", 0, 1), (b"a2", 0, 2), (b"b0", 1, 0),
        }  # fmt: skip
        assert response.remark == "FOUND"
        assert (header.invisible_time, header.rest_num, header.order_count_info) == (60_000, 0, None)
        assert all(one.handle.revive_queue_id == header.revive_qid < 8 for one in messages)
        assert (await pop(client)).code == CODE.POLLING_TIMEOUT
        assert broker.offsets.queues(GROUP, TOPIC) == {0: 3, 1: 1}


async def test_a_checkpoint_per_queue_goes_through_the_wheel_a_second_before_it_matters(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(5):
            await client.send(b"%d" % number)
        (first, *_) = await popped(client, queue_id=0, max_msg_nums=2)
        await popped(client, queue_id=0, max_msg_nums=3)
        records = written(broker)
        checkpoints = [loads(bytes(record.body), PopCheckPoint) for record in records]
        assert [(one.so, one.n, one.d, one.bm) for one in checkpoints] == [(0, 2, [0, 1], 0), (2, 3, [0, 1, 2], 0)]
        handle, checkpoint = first.handle, checkpoints[0]
        assert (handle.pop_time_ms, handle.invisible_ms) == (checkpoint.pt, checkpoint.it)
        properties = parse(bytes(records[0].properties).decode())
        del properties["__CRC32#"]
        due = checkpoint.revive_time - 1000
        assert properties == {
            "TAGS": "ck",
            "UNIQ_KEY": f"{TOPIC}@0@0@{GROUP}@{checkpoint.pt}@broker-a@ck",
            "TIMER_DELIVER_MS": str(due),
            "TIMER_OUT_MS": str((due - 1) // 1000 * 1000),
            "REAL_TOPIC": REVIVE_TOPIC,
            "REAL_QID": str(handle.revive_queue_id),
        }
        assert records[0].topic == TIMER_TOPIC
        # The queues of the revive topic take turns.
        second = parse(bytes(records[1].properties).decode())
        assert int(second["REAL_QID"]) == (handle.revive_queue_id + 1) % 8


async def test_a_pop_takes_at_most_what_it_asks_for_and_tells_the_rest(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for number in range(10):
            await client.send(b"%d" % number, queue_id=number % 2)
        response = await pop(client, max_msg_nums=7)
        assert len(messages_of(response)) == 7
        assert response.header(PopMessageResponseHeader).rest_num == 3
        assert len(await popped(client, max_msg_nums=7)) == 3


async def test_a_pop_is_woken_by_what_lies_behind_the_end_of_a_file_of_the_queue(tmp_path: Path) -> None:
    def tagged(tag: str) -> PendingMessage:
        properties = encode({"TAGS": tag}).encode()
        return PendingMessage(TOPIC, 0, tag.encode(), properties, java_hash_code(tag), 0, 0, 0, bytes(8))

    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        entries = broker.config.store.mapped_file_size_consume_queue // 20
        broker.store.append([tagged("A")] * (entries - 1))
        broker.offsets.commit(GROUP, TOPIC, 0, entries - 1)
        answer = asyncio.create_task(popped(client, queue_id=0, exp="B", poll_time=600_000))
        await until(lambda: len(broker.pop.held) == 1)
        broker.store.append([tagged("A"), tagged("B")])
        async with asyncio.timeout(60):
            assert [one.body for one in await answer] == [b"B"]


@pytest.mark.parametrize(("init_mode", "expected"), [(0, [b"0", b"1", b"2"]), (1, [b"0", b"1", b"2"])])
async def test_a_new_group_gets_a_short_queue_whole(tmp_path: Path, init_mode: int, expected: list[bytes]) -> None:
    async with running_broker(tmp_path) as (_, client):
        for number in range(3):
            await client.send(b"%d" % number)
        assert [one.body for one in await popped(client, init_mode=init_mode)] == expected


async def test_a_new_group_begins_with_the_last_message_if_it_wants_the_end(tmp_path: Path) -> None:
    async with running_broker(tmp_path, init_pop_offset_by_check_msg_in_mem=False) as (broker, client):
        for number in range(3):
            await client.send(b"%d" % number)
        assert [one.body for one in await popped(client, init_mode=1)] == [b"2"]
        assert broker.offsets.queues(GROUP, TOPIC)[0] == 3


async def test_a_reset_moves_the_next_pop(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(3):
            await client.send(b"%d" % number)
        await popped(client)
        broker.offsets.reset(GROUP, TOPIC, 0, 1)
        assert [one.body for one in await popped(client)] == [b"1", b"2"]
        assert not broker.offsets.is_reset(GROUP, TOPIC, 0)


async def test_an_offset_behind_the_end_is_corrected(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send(b"only")
        broker.offsets.assign(GROUP, TOPIC, 0, 50)
        assert (await pop(client)).code == CODE.POLLING_TIMEOUT
        await client.send(b"next")
        assert [one.body for one in await popped(client)][-1] == b"next"


@pytest.mark.parametrize(
    ("exp", "exp_type", "expected"),
    [
        ("B", "TAG", [b"1", b"4"]),
        ("A || C", None, [b"0", b"2", b"3", b"5"]),
        ("*", "TAG", [b"0", b"1", b"2", b"3", b"4", b"5"]),
        ("age > 2", "SQL92", [b"3", b"4", b"5"]),
    ],
)
async def test_a_pop_takes_what_its_filter_wants(
    tmp_path: Path, exp: str, exp_type: str | None, expected: list[bytes]
) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(6):
            await client.send(b"%d" % number, TAGS="ABC"[number % 3], age=str(number))
        assert [one.body for one in await popped(client, exp=exp, exp_type=exp_type)] == expected
        (record,) = written(broker)
        checkpoint = loads(bytes(record.body), PopCheckPoint)
        assert [checkpoint.offset_at(index) for index in range(checkpoint.n)] == [int(body) for body in expected]
        subscription = broker.consumers.find_subscription(GROUP, TOPIC)
        assert subscription is not None
        assert subscription.sub_string == exp
        retry = broker.consumers.find_subscription(GROUP, f"%RETRY%{GROUP}_{TOPIC}")
        assert retry is not None
        assert retry.sub_string == "*"


async def test_what_no_filter_wants_is_passed_over(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for _ in range(4):
            await client.send(b"x", TAGS="A")
        assert (await pop(client, exp="B")).code == CODE.POLLING_TIMEOUT
        assert broker.offsets.queues(GROUP, TOPIC)[0] == 4
        assert written(broker) == []


@pytest.mark.parametrize(("exp", "exp_type"), [("||", "TAG"), ("a >", "SQL92"), ("a", "GROOVY"), ("t" * 40_000, "TAG")])
async def test_an_expression_that_is_none_is_refused(tmp_path: Path, exp: str, exp_type: str) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send()
        response = await pop(client, exp=exp, exp_type=exp_type)
        assert response.code == CODE.SUBSCRIPTION_PARSE_FAILED
        assert response.remark.startswith("parse the consumer's subscription failed")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("settings", "changes", "code", "remark"),
    [
        ({}, {"max_msg_nums": 33}, CODE.INVALID_PARAMETER, "pop message's num is greater than 32"),
        ({}, {"invisible_time": 1 << 40}, CODE.INVALID_PARAMETER, "more than timerMaxDelaySec allows"),
        ({}, {"queue_id": 4}, CODE.INVALID_PARAMETER, "queueId[4] is illegal, topic:[Orders]"),
        ({}, {"topic": "None"}, CODE.TOPIC_NOT_EXIST, "topic[None] not exist, apply first please!"),
        ({}, {"consumer_group": "a b"}, CODE.SUBSCRIPTION_GROUP_NOT_EXIST, "[a b] does not exist"),
        ({}, {"born_time": 1}, CODE.POLLING_TIMEOUT, "pop message is timeout too much"),
        ({"broker_permission": 2}, {}, CODE.NO_PERMISSION, "pop message is forbidden"),
        (
            {"store": {"timer_wheel_enable": False}}, {}, CODE.SYSTEM_ERROR,
            "pop message is forbidden because timerWheelEnable is false",
        ),
    ],
)  # fmt: skip
async def test_a_pop_is_refused_as_the_reference_refuses(
    tmp_path: Path, settings: dict[str, Any], changes: dict[str, object], code: int, remark: str
) -> None:
    async with running_broker(tmp_path, **settings) as (_, client):
        await client.send()
        response = await pop(client, **changes)
        assert response.code == code
        assert remark in (response.remark or "")


async def test_a_group_that_may_not_consume_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        await pop(client)
        config = broker.groups.find(GROUP)
        assert config is not None
        config.consume_enable = False
        response = await pop(client)
        assert (response.code, response.remark) == (
            CODE.NO_PERMISSION, f"subscription group no permission, {GROUP}",
        )  # fmt: skip


# Retry topics


def _create(broker: Broker, topic: str) -> None:
    broker.topics.update([TopicConfig(topic, 1, 1)])


@pytest.mark.parametrize(
    ("settings", "version", "kind"),
    [
        ({}, "_", "1"),
        ({"enable_retry_topic_v2": True, "retrieve_message_from_pop_retry_topic_v1": False}, "+", "2"),
    ],
)
async def test_messages_of_a_retry_topic_come_under_the_name_of_their_topic(
    tmp_path: Path, settings: dict[str, Any], version: str, kind: str
) -> None:
    retry = f"%RETRY%{GROUP}{version}{TOPIC}"
    async with running_broker(tmp_path, **settings) as (broker, client):
        await client.send(b"new")
        _create(broker, retry)
        await client.send(b"again", topic=retry, TAGS="T")
        messages = {one.body: one for one in await popped(client)}
        again = messages[b"again"]
        assert (again.topic, again.handle.retry, again.real_topic) == (TOPIC, kind, retry)
        assert again.properties["POP_CK"].split(" ")[-2:] == ["0", "0"]
        assert again.properties["TAGS"] == "T"
        assert "POP_CK" not in messages[b"new"].properties
        assert (await ack(client, again)).code == CODE.SUCCESS


async def test_both_kinds_of_retry_topics_are_looked_into_in_turn(tmp_path: Path) -> None:
    kinds = [f"%RETRY%{GROUP}{version}{TOPIC}" for version in "_+"]
    async with running_broker(tmp_path, enable_retry_topic_v2=True) as (broker, client):
        await client.send(b"new")
        for retry in kinds:
            _create(broker, retry)
            await client.send(retry.encode(), topic=retry)
        seen: set[str] = set()
        for _ in range(200):
            response = await pop(client)
            if response.code == CODE.SUCCESS:
                seen |= {one.handle.retry for one in messages_of(response)}
        assert seen == {"0", "1", "2"}


async def test_the_actual_retry_topic_is_shown_if_so_configured(tmp_path: Path) -> None:
    retry = f"%RETRY%{GROUP}_{TOPIC}"
    async with running_broker(tmp_path, pop_response_return_actual_retry_topic=True) as (broker, client):
        await client.send(b"new")
        await popped(client)
        _create(broker, retry)
        await client.send(b"again", topic=retry)
        (again,) = await popped(client)
        assert (again.topic, again.handle.retry) == (retry, "1")
        assert "POP_CK" not in again.properties


async def test_a_pop_that_fails_half_way_has_taken_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for number in range(4):
            await client.send(b"%d" % number, queue_id=number % 2)
        looked_into = []
        entry = broker.store.max_offset

        def fail(topic: str, queue_id: int) -> int:
            looked_into.append(queue_id)
            if len(looked_into) > 1:
                raise ValueError("a bug")
            return entry(topic, queue_id)

        with monkeypatch.context() as patched:
            patched.setattr(broker.store, "max_offset", fail)
            response = await pop(client)
            assert (response.code, response.remark) == (CODE.SYSTEM_ERROR, "ValueError: a bug")
        assert len(await popped(client)) == 4


# Limits, flush modes, restarts


async def test_no_more_than_the_threshold_is_in_flight(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"enable_pop_message_threshold": True, "pop_inflight_message_threshold": 2}
    async with running_broker(tmp_path, **settings) as (_, client):
        for number in range(5):
            await client.send(b"%d" % number)
        first = await popped(client, max_msg_nums=3)
        response = await pop(client)
        assert response.code == CODE.POLLING_TIMEOUT
        assert response.header(PopMessageResponseHeader).rest_num == 2
        await ack(client, first[0])
        assert [one.body for one in await popped(client)] == [b"3", b"4"]


async def test_a_reset_takes_effect_though_too_much_is_in_flight(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"enable_pop_message_threshold": True, "pop_inflight_message_threshold": 2}
    async with running_broker(tmp_path, **settings) as (_, client):
        for number in range(5):
            await client.send(b"%d" % number)
        await popped(client, max_msg_nums=3)
        header = ResetOffsetRequestHeader(group=GROUP, topic=TOPIC, timestamp=0, is_force=True)
        await client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert [one.body for one in await popped(client, max_msg_nums=2)] == [b"0", b"1"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_pop_is_answered_and_committed_under_sync_flush(tmp_path: Path, is_async: bool) -> None:
    store = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
    async with running_broker(tmp_path, store=store, append_ck_async=is_async, append_ack_async=is_async) as (
        broker,
        client,
    ):
        await client.send(b"0")
        (message,) = await popped(client)
        if not is_async:
            assert broker.store.flushed_offset == broker.store.wrote_offset
            assert broker.offsets.queues(GROUP, TOPIC)[0] == 1
        assert (await ack(client, message)).code == CODE.SUCCESS
        assert (await pop(client)).code == CODE.POLLING_TIMEOUT


async def test_a_stop_keeps_where_the_group_is(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send(b"0")
        await popped(client)
    async with running_broker(tmp_path) as (_, client):
        await client.send(b"1")
        assert [one.body for one in await popped(client)] == [b"1"]


@pytest.mark.code(RequestCode.PEEK_MESSAGE)
async def test_a_peek_takes_nothing(tmp_path: Path) -> None:
    """PEEK_MESSAGE, of any queue and of one."""
    async with running_broker(tmp_path) as (broker, client):
        await client.send(b"0")
        await client.send(b"1")
        for _ in range(2):
            response = await peek(client)
            assert (response.code, response.remark) == (CODE.SUCCESS, "FOUND")
            assert response.ext_fields["restNum"] == "2"
            assert response.body.count(b"Orders") == 2
        assert len(await popped(client)) == 2
        response = await peek(client, queue_id=0)
        assert (response.code, response.remark) == (CODE.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
        assert len(written(broker)) == 1
