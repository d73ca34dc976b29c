"""Sends: what is stored, what is answered, what is refused."""

import asyncio
import re
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sprocket.common.errors import DiskFailed, DiskFull, RequestError, StoreError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC
from tests.broker.hot_path import STORE_HOST, TOPIC, FlushDiskType, HotPath, hot_path, properties, property_map
from tests.send_headers import client_batch, send_frame

ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
KEY = "0A000001000000000000000000000001"


def header_of(response: ReceivedResponse) -> SendMessageResponseHeader:
    assert response.code == ResponseCode.SUCCESS, response.remark
    return response.header(SendMessageResponseHeader)


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
async def test_a_send_is_stored_as_it_came_with_what_the_broker_adds(tmp_path: Path, serialization: int) -> None:
    async with hot_path(tmp_path, serialization=serialization) as path:
        response = await path.send(b"hello", queue_id=2)
        header = header_of(response)
        assert (header.queue_id, header.queue_offset, header.transaction_id) == (2, 0, KEY)
        assert response.ext_fields["MSG_REGION"] == "DefaultRegion"
        assert response.ext_fields["TRACE_ON"] == "true"
        record = path.record(TOPIC, 2, 0)
        assert bytes(record.body) == b"hello"
        assert header.msg_id == STORE_HOST.hex().upper() + f"{record.physical_offset:016X}"
        assert (record.flag, record.born_timestamp, record.queue_id) == (7, 1_700_000_000_000, 2)
        assert record.born_host[:4] == bytes((127, 0, 0, 1))
        assert property_map(record) == {"UNIQ_KEY": KEY, "TAGS": "TagA"} | ADDED
        entry = path.store.entry(TOPIC, 2, 0)
        assert entry is not None and entry[2] == java_hash_code("TagA")


@pytest.mark.code(RequestCode.SEND_MESSAGE)
async def test_the_first_version_of_the_header_is_served_too(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        header = SendMessageRequestHeader(
            producer_group="PG", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4, queue_id=1,
            sys_flag=0, born_timestamp=5, flag=0, properties="TAGS\x01X",
        )  # fmt: skip
        response = await path.client.invoke(path.address, RequestCode.SEND_MESSAGE, header, b"old")
        assert header_of(response).queue_id == 1
        # The client left the last separator and the key out.
        stored = property_map(path.record(TOPIC, 1, 0))
        assert stored.pop("UNIQ_KEY") == response.ext_fields["transactionId"]
        assert stored == {"TAGS": "X"} | ADDED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (properties(KEYS="a b", CLUSTER="Other", MSG_REGION="Elsewhere", TRACE_ON="false"), {"KEYS": "a b"}),
        (properties(POP_CK="1 2 3"), {}),
        (properties(XTAGS="no", UNIQ_KEY2="no"), {"XTAGS": "no", "UNIQ_KEY2": "no"}),
        (properties(note="the DELIVERY\x03"), {"note": "the DELIVERY\x03"}),
        (properties(name="Zürich 東京 😀"), {"name": "Zürich 東京 😀"}),
    ],
)
async def test_properties_that_need_a_closer_look(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    async with hot_path(tmp_path) as path:
        header_of(await path.send(properties=text))
        assert property_map(path.record(TOPIC, 0, 0)) == {"UNIQ_KEY": KEY} | expected | ADDED


@pytest.mark.parametrize("key", ['a"b\\c', "short", "x" * 5000, "naïve", "0-1.2"])
@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
async def test_any_unique_key_comes_back_whole(tmp_path: Path, key: str, serialization: int) -> None:
    async with hot_path(tmp_path, serialization=serialization) as path:
        text = f"TAGS\x01T\x02UNIQ_KEY\x01{key}\x02KEYS\x01abcdefghijklmnopqrstuvwxyz\x02"
        assert header_of(await path.send(properties=text)).transaction_id == key
        assert property_map(path.record(TOPIC, 0, 0))["UNIQ_KEY"] == key


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
@pytest.mark.parametrize(
    "key", ['abc\x03x","evil":"9', "abc\x03djEg", "\x03", 'a"b', "a\\", "a\nb", "a\x7f", "a\x00b", "%s%d%n", "é" * 17]
)
async def test_a_unique_key_adds_no_field_to_the_answer(tmp_path: Path, serialization: int, key: str) -> None:
    async with hot_path(tmp_path, serialization=serialization) as path:
        for timer in ({}, {"TIMER_DELAY_SEC": "60"}):
            text = names.encode({"UNIQ_KEY": key} | timer)
            response = await path.send(properties=text)
            fields = dict(response.ext_fields)
            handle = fields.pop("recallHandle", None)
            assert set(fields) == {"msgId", "queueId", "queueOffset", "transactionId", "MSG_REGION", "TRACE_ON"}
            assert fields["transactionId"] == key
            assert (handle is not None) is bool(timer)
            if handle is not None:
                assert re.fullmatch("[A-Za-z0-9_=-]+", handle)


@pytest.mark.parametrize("tags", ["TagA", "Zürich", "😀", "", "a\x01b"])
async def test_the_tags_code_is_javas_hash_of_the_tag(tmp_path: Path, tags: str) -> None:
    async with hot_path(tmp_path) as path:
        for number in range(2):
            header_of(await path.send(properties=f"XTAGS\x01other\x02UNIQ_KEY\x01{KEY}\x02TAGS\x01{tags}\x02"))
            entry = path.store.entry(TOPIC, 0, number)
            assert entry is not None and entry[2] == java_hash_code(tags)


async def test_the_sends_of_one_read_are_one_append_in_their_order(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        runs: list[int] = []
        append = path.store.append
        path.store.append = lambda messages: runs.append(len(messages)) or append(messages)  # type: ignore[method-assign, func-returns-value]
        frames = [send_frame(n, path.send_header(queue_id=n % 4), b"%d" % (n % 10)) for n in range(50)]
        answers = await exchange(path, b"".join(frames), 50)
        assert runs == [50]
        assert [answer["opaque"] for answer in answers] == list(range(50))
        assert [bytes(path.record(TOPIC, 1, n).body) for n in range(12)] == [
            b"%d" % ((4 * n + 1) % 10) for n in range(12)
        ]


async def test_a_bad_send_does_not_hurt_its_neighbours(tmp_path: Path) -> None:
    async with hot_path(tmp_path, store={"max_message_size": 100}) as path:
        headers = [
            (path.send_header(), 10, ResponseCode.SUCCESS),
            (path.send_header(queue_id=99), 10, ResponseCode.INVALID_PARAMETER),
            (path.send_header(), 101, ResponseCode.MESSAGE_ILLEGAL),
            (path.send_header(topic="no such", default_topic="x"), 10, ResponseCode.INVALID_PARAMETER),
            (path.send_header(topic=SCHEDULE_TOPIC), 10, ResponseCode.NO_PERMISSION),
            (path.send_header(properties=properties(long="x" * 32768)), 10, ResponseCode.MESSAGE_ILLEGAL),
            (path.send_header(properties=properties(long="x" * 32690)), 10, ResponseCode.MESSAGE_ILLEGAL),
            (path.send_header(), 100, ResponseCode.SUCCESS),
        ]
        frames = [send_frame(number, header, bytes(size)) for number, (header, size, _) in enumerate(headers)]
        answers = await exchange(path, b"".join(frames), len(frames))
        codes = {answer["opaque"]: answer["code"] for answer in answers}
        assert codes == {number: code for number, (_, _, code) in enumerate(headers)}
        assert path.store.max_offset(TOPIC, 0) == 2


async def test_what_the_store_refuses_is_told_to_the_one_who_sent_it(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        append = path.store.append

        def picky(messages: list[object]) -> object:
            if any(message.body == b"bad" for message in messages):  # type: ignore[attr-defined]
                raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "bad")
            return append(messages)  # type: ignore[arg-type]

        path.store.append = picky  # type: ignore[method-assign, assignment]
        frames = [send_frame(n, path.send_header(), b"bad" if n == 1 else b"yes") for n in range(3)]
        answers = await exchange(path, b"".join(frames), 3)
        assert {answer["opaque"]: answer["code"] for answer in answers} == {0: 0, 1: ResponseCode.MESSAGE_ILLEGAL, 2: 0}


async def test_an_unexpected_error_of_one_send_does_not_hurt_the_others_of_its_read(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        uncommon = path.send_processor._uncommon

        def broken(*arguments: Any) -> Any:
            if arguments[0].body == b"bad":
                raise ZeroDivisionError("a bug")
            return uncommon(*arguments)

        path.send_processor._uncommon = broken  # type: ignore[method-assign]
        slow = properties(TIMER_DELAY_SEC="0", note="x")
        batch = client_batch((0, b"in a batch", b""))
        frames = [send_frame(n, path.send_header(properties=slow), b"yes") for n in range(2)]
        frames.append(send_frame(2, path.send_header(batch=True), batch))
        frames += [send_frame(n, path.send_header(properties=slow), b"bad" if n == 4 else b"yes") for n in range(3, 7)]
        answers = await exchange(path, b"".join(frames), 7)
        codes = {answer["opaque"]: answer["code"] for answer in answers}
        assert codes == {n: ResponseCode.SYSTEM_ERROR if n == 4 else ResponseCode.SUCCESS for n in range(7)}
        assert path.store.max_offset(TOPIC, 0) == 6


async def test_an_unexpected_error_of_the_store_is_one_answer_each(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        append = path.store.append

        def broken(messages: list[Any]) -> Any:
            if any(bytes(message.body) == b"bad" for message in messages):
                raise MemoryError
            return append(messages)

        def broken_records(records: Any) -> Any:
            raise MemoryError

        path.store.append = broken  # type: ignore[method-assign]
        path.store.append_encoded = broken_records  # type: ignore[method-assign]
        batch = client_batch((0, b"in a batch", b"INNER_SCHEDULE\x01for the handler\x02"))
        frames = [send_frame(0, path.send_header(), b"yes")]
        frames.append(send_frame(1, path.send_header(batch=True), batch))
        frames += [send_frame(n, path.send_header(), b"bad") for n in (2, 3)]
        frames.append(send_frame(4, path.send_header(), b"bad", oneway=True))
        frames.append(send_frame(5, path.send_header(batch=True), batch))
        answers = await exchange(path, b"".join(frames), 5)
        codes = sorted((answer["opaque"], answer["code"]) for answer in answers)
        assert codes == [(0, 0), (1, 0), (2, 1), (3, 1), (5, 0)]
        # No unasked response follows.
        del path.store.append_encoded
        again = await exchange(path, send_frame(9, path.send_header(), b"yes"), 1)
        assert [answer["opaque"] for answer in again] == [9]


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (DiskFull("no space on /x"), ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now"),
        (DiskFailed("EIO on /x"), ResponseCode.SYSTEM_ERROR, "EIO on /x"),
    ],
)
async def test_a_store_that_cannot_write_says_why(
    tmp_path: Path, error: StoreError, code: ResponseCode, remark: str
) -> None:
    async with hot_path(tmp_path) as path:

        def refuse(*messages: object) -> object:
            raise error

        path.store.append = path.store.append_encoded = refuse  # type: ignore[method-assign, assignment]
        for batch in (False, True):
            response = await path.send(client_batch((0, b"x", b"")) if batch else b"x", batch=batch)
            assert response.code == code
            assert remark in (response.remark or "") and str(error) in (response.remark or "")


async def test_a_oneway_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        oneway = send_frame(1, path.send_header(), b"one", oneway=True)
        batch = client_batch((0, b"two", b""))
        oneway_batch = send_frame(2, path.send_header(batch=True), batch, oneway=True)
        bad = send_frame(3, path.send_header(queue_id=99), b"bad", oneway=True)
        answered = send_frame(4, path.send_header(), b"three")
        (answer,) = await exchange(path, oneway + oneway_batch + bad + answered, 1)
        assert answer["opaque"] == 4
        assert [bytes(path.record(TOPIC, 0, n).body) for n in range(3)] == [b"one", b"two", b"three"]


# Topics


async def test_an_unknown_topic_is_made_after_the_default_topic(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        header_of(await path.send(topic="New", default_topic_queue_nums=3, queue_id=2))
        created = path.topics.get("New")
        assert created is not None
        assert (created.write_queue_nums, created.read_queue_nums, created.perm) == (3, 3, 6)


async def test_an_unknown_topic_is_refused_when_it_may_not_be_made(tmp_path: Path) -> None:
    async with hot_path(tmp_path, broker={"auto_create_topic_enable": False}) as path:
        response = await path.send(topic="New")
        assert response.code == ResponseCode.TOPIC_NOT_EXIST
        assert (response.remark or "").startswith("topic[New] not exist, apply first please!")
        assert response.ext_fields["MSG_REGION"] == "DefaultRegion"
        assert path.topics.get("New") is None


async def test_permissions(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        path.topics.update([TopicConfig("ReadOnly", 1, 1, perm=4), TopicConfig("Ordered", 1, 1, order=True)])
        assert (await path.send(topic="ReadOnly")).code == ResponseCode.NO_PERMISSION
        assert (await path.send(topic="Ordered")).code == ResponseCode.SUCCESS
        path.config.update(b"brokerPermission=4")
        refused = await path.send(topic="Ordered")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.remark == "the broker[10.1.2.3] sending message is forbidden"
        # A broker that is being drained still takes what clients with an old route send.
        assert (await path.send()).code == ResponseCode.SUCCESS


async def test_a_change_of_a_topic_holds_for_the_next_send(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        assert (await path.send(queue_id=3)).code == ResponseCode.SUCCESS
        path.topics.update([TopicConfig(TOPIC, 2, 2)])
        assert (await path.send(queue_id=3)).code == ResponseCode.INVALID_PARAMETER
        path.topics.update([TopicConfig(TOPIC, 2, 2, perm=4)])
        assert (await path.send(queue_id=1)).code == ResponseCode.NO_PERMISSION
        path.topics.delete(TOPIC)
        assert (await path.send(default_topic="none")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_negative_queue_is_any_queue(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        chosen = {header_of(await path.send(queue_id=-1)).queue_id for _ in range(40)}
        assert chosen == {0, 1, 2, 3}


async def test_sends_before_the_opening_time_are_refused(tmp_path: Path) -> None:
    async with hot_path(tmp_path, broker={"start_accept_send_request_time_stamp": 1_700_000_010_000}) as path:
        response = await path.send()
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert (response.remark or "").startswith("broker unable to service, until ")
        path.clock.advance(10)
        assert (await path.send()).code == ResponseCode.SUCCESS


async def test_a_topic_with_many_tags_marks_its_messages(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        path.topics.update([TopicConfig("Many", 1, 1, topic_filter_type="MULTI_TAG")])
        await path.send(topic="Many")
        assert path.record("Many", 0, 0).sys_flag == SysFlag.MULTI_TAGS


async def test_changed_configuration_shows_in_what_is_stored(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        await path.send()
        path.config.update(b"traceOn=false")
        response = await path.send()
        assert response.ext_fields["TRACE_ON"] == "false"
        assert property_map(path.record(TOPIC, 0, 1))["TRACE_ON"] == "false"
        path.store.store_host = bytes((10, 9, 8, 7)) + STORE_HOST[4:]
        path.config.plan_version.rise()
        assert header_of(await path.send()).msg_id.startswith("0A090807")


# Delays, retries, transactions


async def test_a_delayed_message_goes_to_its_levels_queue(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        header = header_of(await path.send(queue_id=3, properties=properties(DELAY="3", TIMER_DELAY_SEC="9")))
        assert (header.queue_id, header.queue_offset) == (3, 0)
        record = path.record(SCHEDULE_TOPIC, 2, 0)
        stored = property_map(record)
        assert (stored["REAL_TOPIC"], stored["REAL_QID"], stored["DELAY"]) == (TOPIC, "3", "3")
        assert "TIMER_DELAY_SEC" not in stored
        entry = path.store.entry(SCHEDULE_TOPIC, 2, 0)
        assert entry is not None and entry[2] == record.store_timestamp + 10_000
        assert path.store.max_offset(TOPIC, 3) == 0


async def test_a_level_beyond_the_last_is_the_last(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        await path.send(properties=properties(DELAY="99"))
        assert property_map(path.record(SCHEDULE_TOPIC, 17, 0))["DELAY"] == "18"
        assert (await path.send(properties=properties(DELAY="soon"))).code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
async def test_a_timer_message_is_refused_by_name_without_a_wheel(tmp_path: Path, name: str) -> None:
    async with hot_path(tmp_path, store={"timer_wheel_enable": False}) as path:
        response = await path.send(properties=properties(**{name: "5000"}))
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert response.remark == "accurate timer message is not enabled, timerWheelEnable is false"


async def test_a_half_message_is_stored_where_no_consumer_sees_it(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        flags = int(SysFlag.TRANSACTION_PREPARED)
        response = await path.send(queue_id=1, properties=properties(TRAN_MSG="true", PGROUP="PG"), sys_flag=flags)
        header = header_of(response)
        assert (header.queue_id, header.queue_offset, header.transaction_id) == (1, 0, KEY)
        assert path.store.max_offset(TOPIC, 1) == 0
        record = path.record("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
        stored = property_map(record)
        assert (stored["REAL_TOPIC"], stored["REAL_QID"], stored["TRAN_MSG"]) == (TOPIC, "1", "true")
        assert (stored["PGROUP"], stored["__transactionId__"], record.sys_flag) == ("PG", KEY, 0)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sys_flag": int(SysFlag.TRANSACTION_PREPARED)}, ResponseCode.MESSAGE_ILLEGAL),
        ({"properties": properties(TRAN_MSG="true", DELAY="1")}, ResponseCode.MESSAGE_ILLEGAL),
        ({"properties": properties(TRAN_MSG="true", TIMER_DELAY_SEC="1")}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_half_messages_that_could_never_be_ended_are_refused(
    tmp_path: Path, changes: dict[str, object], code: ResponseCode
) -> None:
    async with hot_path(tmp_path) as path:
        assert (await path.send(**changes)).code == code
        assert (await path.send(properties=properties(TRAN_MSG="false"))).code == ResponseCode.SUCCESS
        assert path.store.max_offset(TOPIC, 0) == 1


async def test_a_broker_may_refuse_transactions(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        path.config.update(b"rejectTransactionMessage=true")
        response = await path.send(properties=properties(TRAN_MSG="true"))
        assert response.code == ResponseCode.NO_PERMISSION
        assert response.remark == "the broker[10.1.2.3] sending transaction message is forbidden"


async def test_an_inner_batch_is_refused(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        for changes in ({"properties": properties(INNER_NUM="2")}, {"sys_flag": int(SysFlag.INNER_BATCH)}):
            assert (await path.send(**changes)).code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("reconsume_times", "max_reconsume_times", "topic"),
    [(1, None, "%RETRY%CG"), (16, None, "%RETRY%CG"), (17, None, "%DLQ%CG"), (3, 2, "%DLQ%CG"), (2, 2, "%RETRY%CG")],
)
async def test_a_retry_that_was_tried_too_often_is_a_dead_letter(
    tmp_path: Path, reconsume_times: int, max_reconsume_times: int | None, topic: str
) -> None:
    async with hot_path(tmp_path) as path:
        path.groups.update([SubscriptionGroupConfig("CG")])
        response = await path.send(
            topic="%RETRY%CG", reconsume_times=reconsume_times, max_reconsume_times=max_reconsume_times
        )
        header_of(response)
        record = path.record(topic, 0, 0)
        assert record.reconsume_times == reconsume_times
        config = path.topics.get(topic)
        assert config is not None
        if topic.startswith("%DLQ%"):
            assert (config.write_queue_nums, config.perm) == (1, 6)


async def test_a_retry_of_a_group_that_holds_locks_is_a_dead_letter(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        path.groups.update([SubscriptionGroupConfig("CG")])
        path.locks.lock("CG", [MessageQueue(TOPIC, "b", 0)], "client")
        await path.send(topic="%RETRY%CG", reconsume_times=1)
        assert bytes(path.record("%DLQ%CG", 0, 0).body) == b"body"


async def test_a_retry_needs_its_group(tmp_path: Path) -> None:
    async with hot_path(tmp_path, broker={"auto_create_subscription_group": False}) as path:
        response = await path.send(topic="%RETRY%Nobody")
        assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


# A client's batch


@pytest.mark.parametrize("code", [RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@pytest.mark.code(RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
async def test_a_batch_is_stored_as_its_messages(tmp_path: Path, code: RequestCode) -> None:
    async with hot_path(tmp_path) as path:
        await path.send(b"before", queue_id=1)
        content = client_batch((1, b"first", b"UNIQ_KEY\x01K1\x02TAGS\x01A"), (2, b"second", b"UNIQ_KEY\x01K2\x02"))
        header = header_of(await path.send(content, code=code, batch=True, queue_id=1, properties="WAIT\x01true\x02"))
        assert (header.queue_id, header.queue_offset) == (1, 1)
        first, second = path.record(TOPIC, 1, 1), path.record(TOPIC, 1, 2)
        assert [bytes(first.body), bytes(second.body)] == [b"first", b"second"]
        assert [first.flag, second.flag] == [1, 2]
        assert property_map(first) == {"UNIQ_KEY": "K1", "TAGS": "A", "WAIT": "true"} | ADDED
        assert property_map(second) == {"UNIQ_KEY": "K2", "WAIT": "true"} | ADDED
        host = STORE_HOST.hex().upper()
        assert header.msg_id == f"{host}{first.physical_offset:016X},{host}{second.physical_offset:016X}"
        entry = path.store.entry(TOPIC, 1, 1)
        assert entry is not None and entry[2] == java_hash_code("A")


@pytest.mark.code(RequestCode.SEND_BATCH_MESSAGE)
async def test_a_tag_of_a_batch_counts_before_that_of_its_message(tmp_path: Path) -> None:
    """As consumers decode it; `MessageExtEncoder.encode` of RocketMQ 5.3.3 appends the batch's properties too."""
    async with hot_path(tmp_path) as path:
        content = client_batch((0, b"first", b"UNIQ_KEY\x01K1\x02TAGS\x01A"), (0, b"second", b"TAGS\x01A\x02"))
        text = "UNIQ_KEY\x01K\x02TAGS\x01B\x02"
        header_of(await path.send(content, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties=text))
        for number in range(2):
            decoded = names.parse(str(path.record(TOPIC, 0, number).properties, "utf-8"))
            assert (decoded["UNIQ_KEY"], decoded["TAGS"]) == ("K", "B")
            entry = path.store.entry(TOPIC, 0, number)
            assert entry is not None and entry[2] == java_hash_code("B")


@pytest.mark.parametrize(
    ("text", "key", "tag"),
    [
        ("UNIQ_KEY\x01A\x02TAGS\x01A\x02UNIQ_KEY\x01B\x02TAGS\x01B\x02", "B", "B"),
        ("UNIQ_KEY\x01A\x02TAGS\x01A\x02UNIQ_KEY\x01\x02TAGS\x01\x02", "A", "A"),
        ("UNIQ_KEY\x01A\x02TAGS\x01A\x02TAGS\x01\x02", "A", "A"),
    ],
)
async def test_of_two_keys_or_tags_the_last_with_a_value_counts(tmp_path: Path, text: str, key: str, tag: str) -> None:
    async with hot_path(tmp_path) as path:
        for number in range(2):
            assert header_of(await path.send(properties=text)).transaction_id == key
            decoded = names.parse(str(path.record(TOPIC, 0, number).properties, "utf-8"))
            assert (decoded["UNIQ_KEY"], decoded["TAGS"]) == (key, tag)
            entry = path.store.entry(TOPIC, 0, number)
            assert entry is not None and entry[2] == java_hash_code(tag)


GOOD = client_batch((0, b"body", b"A\x01b\x02"))


@pytest.mark.parametrize(
    ("content", "changes"),
    [
        (b"", {}),
        (GOOD[:19], {}),
        (GOOD[:-1], {}),
        (GOOD + b"\x00", {}),
        (GOOD[:16] + struct.pack(">i", -1) + GOOD[20:], {}),
        (GOOD[:16] + struct.pack(">i", 2**31 - 1) + GOOD[20:], {}),
        (GOOD[:24] + struct.pack(">h", -4) + GOOD[26:], {}),
        (GOOD, {"topic": "%RETRY%CG"}),
        (GOOD, {"properties": properties(DELAY="3")}),
        (GOOD, {"sys_flag": int(SysFlag.TRANSACTION_PREPARED)}),
        (client_batch((0, b"x" * 5000, b"")), {}),
        (client_batch((0, b"x", b"A\x01" + b"x" * 32700)), {}),
    ],
)
async def test_a_batch_that_cannot_be_stored_whole_is_refused_whole(
    tmp_path: Path, content: bytes, changes: dict[str, object]
) -> None:
    # The last case's properties fit by themselves, and no more with what the broker adds.
    async with hot_path(tmp_path, store={"max_message_size": 40_000 if len(content) > 6000 else 4000}) as path:
        path.groups.update([SubscriptionGroupConfig("CG")])
        response = await path.send(content, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, **changes)
        assert response.code == ResponseCode.MESSAGE_ILLEGAL
        assert path.store.wrote_offset == 0


def common_of(size_bytes: int) -> str:
    return "a\x01" + "x" * (size_bytes - 3) + "\x02"


@pytest.mark.parametrize(
    ("content", "common", "why"),
    [
        # 430 KB, which became 450 MB of log and took 1.07 GiB of memory.
        (client_batch((0, b"x", b"")) * 15_000, 30_000, "send several batches"),
        # Not one more than is allowed.
        (client_batch((0, b"", b"")) * 16_385, 10, "The batch has more than 16384 messages"),
        (client_batch((0, b"", b"")) * 190_000, 10, "The batch has more than 16384 messages"),
        (client_batch((0, bytes(900), b"")) * 4_500, 1_000, "send several batches"),
    ],
)
async def test_a_batch_that_would_grow_is_refused_before_anything_is_made_of_it(
    tmp_path: Path, content: bytes, common: int, why: str
) -> None:
    async with hot_path(tmp_path) as path:
        header = path.send_header(batch=True, properties=common_of(common))
        tracemalloc.start()
        try:
            response = await path.client.invoke(path.address, 320, header, content)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert response.code == ResponseCode.MESSAGE_ILLEGAL
        assert why in (response.remark or "")
        assert path.store.wrote_offset == 0
        # The request itself at both ends, what is held while it is sent and received, and where its members lie.
        assert peak_bytes < 6 * len(content) + (4 << 20)


async def test_the_largest_batches_of_real_clients_are_stored(tmp_path: Path) -> None:
    sizes = {"mapped_file_size_commit_log": 32 << 20, "mapped_file_size_consume_queue": 20 * 300_000}
    own = b"TAGS\x01Tag\x02KEYS\x01OrderID188\x02WAIT\x01true\x02UNIQ_KEY\x01" + KEY.encode() + b"\x02"
    async with hot_path(tmp_path, store=sizes) as path:
        # RocketMQ's example SplitBatchProducer fills batches up to 1,000,000 bytes by a count of its own.
        example = client_batch((0, b"Hello world 12345", own)) * 13_000
        for content, count in ((example, 13_000), (client_batch((0, b"", b"")) * 16_384, 16_384)):
            response = await path.send(content, batch=True, properties=properties(WAIT="true"))
            ids = header_of(response).msg_id.split(",")
            assert len(set(ids)) == len(ids) == count
        assert path.store.max_offset(TOPIC, 0) == 29_384


async def test_a_batch_enters_a_bounded_number_of_light_queues(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        queues = ",".join(["%LMQ%a", "%LMQ%b"] * 500)
        content = client_batch((0, b"x", b"")) * 17
        response = await path.send(content, batch=True, properties=properties(INNER_MULTI_DISPATCH=queues))
        assert response.code == ResponseCode.MESSAGE_ILLEGAL
        assert "enters more than 16384 light queues" in (response.remark or "")
        assert path.store.wrote_offset == 0
        header_of(
            await path.send(client_batch((0, b"x", b"")), batch=True, properties="INNER_MULTI_DISPATCH\x01%LMQ%a\x02")
        )


# SYNC_FLUSH


async def test_sync_flush_answers_when_the_log_is_on_the_disk(tmp_path: Path) -> None:
    async with hot_path(tmp_path, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}) as path:
        responses = await asyncio.gather(*(path.send(queue_id=n % 4) for n in range(20)))
        assert {response.code for response in responses} == {ResponseCode.SUCCESS}
        assert path.store.flushed_offset == path.store.wrote_offset
        header_of(await path.send(client_batch((0, b"a", b""), (0, b"b", b"")), batch=True))
        assert path.store.flushed_offset == path.store.wrote_offset
        assert len(path.waits) == 0


async def test_a_flush_that_takes_too_long_is_said_so(tmp_path: Path) -> None:
    sync = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "sync_flush_timeout": 50}
    async with hot_path(tmp_path, store=sync) as path:
        path.store.confirmation.when_stored = lambda offset, callback: None  # type: ignore[method-assign, assignment]
        response = await path.send()
        assert response.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert response.header(SendMessageResponseHeader).queue_offset == 0
        batch = await path.send(client_batch((0, b"a", b"")), batch=True)
        assert batch.code == ResponseCode.FLUSH_DISK_TIMEOUT


async def test_a_send_that_does_not_want_to_wait_is_answered_at_once(tmp_path: Path) -> None:
    async with hot_path(tmp_path, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}) as path:
        waiting: list[int] = []
        path.store.confirmation.when_stored = lambda offset, callback: waiting.append(offset)  # type: ignore[method-assign, assignment]
        hasty = send_frame(1, path.send_header(properties=properties(WAIT="false")), b"x")
        patient = send_frame(2, path.send_header(properties=properties(WAIT="true")), b"x")
        (answer,) = await exchange(path, patient + hasty, 1)
        assert (answer["opaque"], answer["code"]) == (1, 0)
        assert waiting == [path.store.wrote_offset]


async def test_a_failed_flush_acknowledges_nothing(tmp_path: Path) -> None:
    async with hot_path(tmp_path, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}) as path:
        confirmation = path.store.confirmation
        confirmation.when_stored = lambda offset, callback: callback(DiskFailed("EIO"), False)  # type: ignore[method-assign, assignment]
        response = await path.send()
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "EIO" in (response.remark or "")


async def test_every_code_of_sending_is_routed(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        routes = path.send_processor.routes()
    assert {route.code for route in routes} == {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
    }


async def exchange(path: HotPath, content: bytes, answers: int) -> list[dict[str, object]]:
    """Write `content` at once; the JSON headers of the next `answers` frames."""
    reader, writer = await asyncio.open_connection("127.0.0.1", path.server.port)
    writer.write(content)
    headers = []
    for _ in range(answers):
        async with asyncio.timeout(60):
            (length, header_bytes) = struct.unpack(">ii", await reader.readexactly(8))
            frame = await reader.readexactly(length - 4)
        headers.append(msgspec.json.decode(frame[:header_bytes]))
    writer.close()
    return headers
