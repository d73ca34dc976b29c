"""A broker with enableLmq: light topics and groups through its own door."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.failover.handover_push import HandoverPush
from broker.offset.consumer_offsets import ConsumerOffsetTable
from broker.server import Broker
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader, GetTopicConfigRequestHeader
from sprocket.remoting.headers.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from sprocket.remoting.headers.pop import AckMessageRequestHeader, PopMessageResponseHeader
from sprocket.remoting.message.pop_extra_info import PopHandle, parse_msg_offsets, parse_start_offsets, queue_key
from tests.broker.pop.rig import pop
from tests.broker.rig import TOPIC, TestClient, create, running_broker, stored
from tests.waiting import until

LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}
GROUP = "%LMQ%group"


@asynccontextmanager
async def light_broker(root: Path, **store: Any) -> AsyncIterator[tuple[Broker, TestClient]]:
    async with running_broker(root, store=LIGHT | store) as (broker, client):
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        yield broker, client


async def commit(client: TestClient, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
    body = dumps(SubscriptionGroupConfig(group))
    await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
    )
    await client.ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def committed(client: TestClient, group: str, topic: str, queue_id: int = 0) -> str:
    header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=queue_id)
    return (await client.ask_well(RequestCode.QUERY_CONSUMER_OFFSET, header)).ext_fields["offset"]


async def test_a_message_is_pulled_from_each_queue_it_names(tmp_path: Path) -> None:
    async with light_broker(tmp_path) as (broker, client):
        await client.send(b"first", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
        await client.send(b"second", queue_id=1, INNER_MULTI_DISPATCH="%LMQ%b", INNER_MULTI_QUEUE_OFFSET="99")
        await client.send(b"third", topic="%LMQ%b")
        answer = await client.pull("%LMQ%b", group=GROUP)
        assert answer.code == ResponseCode.SUCCESS
        assert answer.ext_fields["nextBeginOffset"] == "3"
        assert all(body in answer.body for body in (b"first", b"second", b"third"))
        assert b"INNER_MULTI_QUEUE_OFFSET\x011\x02" in bytes(stored(broker, TOPIC, 1, 0).properties)
        assert (await client.pull("%LMQ%none", group=GROUP)).code == ResponseCode.PULL_NOT_FOUND
        assert "%LMQ%b" not in broker.topics.by_name
        assert GROUP not in broker.groups.by_name


async def test_a_held_pull_of_a_light_queue_is_woken_by_a_dispatch(tmp_path: Path) -> None:
    async with light_broker(tmp_path) as (broker, client):
        await client.send(b"before", INNER_MULTI_DISPATCH="%LMQ%a")
        answers = []

        async def wait() -> None:
            answers.append(await client.pull("%LMQ%a", offset=1, group=GROUP, sys_flag=6))

        task = asyncio.create_task(wait())
        await until(lambda: len(broker.held))
        await client.send(b"woken", INNER_MULTI_DISPATCH="%LMQ%a")
        await task
        assert b"woken" in answers[0].body


async def test_a_delayed_or_undecided_message_is_in_no_light_queue(tmp_path: Path) -> None:
    async with light_broker(tmp_path) as (broker, client):
        await client.send(b"later", DELAY="3", INNER_MULTI_DISPATCH="%LMQ%a")
        await client.send(b"half", TRAN_MSG="true", PGROUP="PG", INNER_MULTI_DISPATCH="%LMQ%a")
        assert broker.store.max_offset("%LMQ%a", 0) == 0


async def test_without_the_key_light_names_are_like_others(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_subscription_group=False) as (_, client):
        await client.send(b"first", INNER_MULTI_DISPATCH="%LMQ%a")
        assert (await client.pull("%LMQ%a", group=GROUP)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        header = GetTopicConfigRequestHeader(topic="%LMQ%a")
        assert (await client.ask(RequestCode.GET_TOPIC_CONFIG, header)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_what_operators_say_of_light_names_is_taken_and_not_kept(tmp_path: Path) -> None:
    async with light_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("%LMQ%a", read_queue_nums=9))
        body = dumps(SubscriptionGroupConfig(GROUP, retry_max_times=3))
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        answer = await client.ask_well(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="%LMQ%a"))
        assert json.loads(answer.body)["readQueueNums"] == 1
        assert (found := broker.groups.find(GROUP)) is not None
        assert found.retry_max_times == 16
        assert "%LMQ%a" in broker.topics
        assert GROUP in broker.groups
        assert not {"%LMQ%a"} & set(broker.topics.by_name)


async def test_a_deleted_light_queue_starts_again_at_0_and_the_others_stay(tmp_path: Path) -> None:
    async with light_broker(tmp_path) as (broker, client):
        await client.send(b"first", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
        await commit(client, GROUP, "%LMQ%a", 1)
        await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="%LMQ%a"))
        await client.ask_well(RequestCode.CLEAN_UNUSED_TOPIC)
        await client.send(b"second", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
        assert broker.store.max_offset("%LMQ%a", 0) == 1
        assert broker.store.max_offset("%LMQ%b", 0) == 2
        assert broker.offsets.query(GROUP, "%LMQ%a", 0) == -1


async def test_offsets_of_light_groups_are_kept_in_rocketmq_s_file(tmp_path: Path) -> None:
    async with light_broker(tmp_path) as (_, client):
        await client.send(b"first", INNER_MULTI_DISPATCH="%LMQ%a")
        await commit(client, GROUP, "%LMQ%a", 1)
        await commit(client, "plain", TOPIC, 1)
    path = tmp_path / "store" / "config" / "lmqConsumerOffset.json"
    assert f'"lmqOffsetTable":{{\n\t\t"%LMQ%a@{GROUP}":1\n' in path.read_text()
    assert b'"offsetTable":{\n\t\t"Orders@plain":{0:1\n' in path.read_bytes()
    assert not (path.parent / "consumerOffset.json").exists()
    async with light_broker(tmp_path) as (_, client):
        assert await committed(client, GROUP, "%LMQ%a") == "1"
        assert await committed(client, "plain", TOPIC) == "1"


@pytest.mark.parametrize("is_first_time", [True, False])
async def test_turning_the_key_on_loses_no_offset(tmp_path: Path, is_first_time: bool) -> None:
    if not is_first_time:
        async with light_broker(tmp_path) as (_, client):
            await client.send(b"first", INNER_MULTI_DISPATCH="%LMQ%a")
            await commit(client, GROUP, "%LMQ%a", 1)
            await commit(client, "plain", TOPIC, 0)
        path = tmp_path / "store" / "config" / "lmqConsumerOffset.json"
        os.utime(path, (1_000_000_000, 1_000_000_000))
    async with running_broker(tmp_path) as (_, client):
        await client.send(b"second")
        await commit(client, "plain", TOPIC, 1)
    async with light_broker(tmp_path) as (_, client):
        assert await committed(client, "plain", TOPIC) == "1"
        if not is_first_time:
            assert await committed(client, GROUP, "%LMQ%a") == "1"


async def test_puts_are_counted_where_they_were_sent(tmp_path: Path) -> None:
    async with light_broker(tmp_path) as (broker, client):
        await client.send(b"first", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
        assert broker.traffic.puts_by_topic() == {TOPIC: 1}


async def test_a_light_queue_is_popped_by_its_own_offsets(tmp_path: Path) -> None:
    async with light_broker(tmp_path) as (broker, client):
        await client.send(b"elsewhere", INNER_MULTI_DISPATCH="%LMQ%b")
        for number in range(3):
            await client.send(b"%d" % number, INNER_MULTI_DISPATCH="%LMQ%b,%LMQ%a")
        answer = await pop(client, topic="%LMQ%a", consumer_group=GROUP, queue_id=0)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        header = answer.header(PopMessageResponseHeader)
        assert parse_msg_offsets(header.msg_offset_info) == {queue_key("0", 0): [0, 1, 2]}
        assert all(b"INNER_MULTI_QUEUE_OFFSET\x01%d,%d\x02" % (n + 1, n) in answer.body for n in range(3))
        start = parse_start_offsets(header.start_offset_info)[queue_key("0", 0)]
        for offset in range(3):
            handle = PopHandle(
                start, header.pop_time, header.invisible_time, header.revive_qid, "0", "broker-a", 0, offset
            )
            ack = AckMessageRequestHeader(
                consumer_group=GROUP, topic="%LMQ%a", queue_id=0, extra_info=handle.encode(), offset=offset
            )
            await client.ask_well(RequestCode.ACK_MESSAGE, ack)
        assert (await pop(client, topic="%LMQ%a", consumer_group=GROUP)).code == ResponseCode.POLLING_TIMEOUT
        assert broker.offsets.query(GROUP, "%LMQ%a", 0) == 3


@pytest.mark.parametrize("counts_each", [True, False])
async def test_light_groups_have_figures_together_or_each(tmp_path: Path, counts_each: bool) -> None:
    async with running_broker(tmp_path, store=LIGHT, enable_lmq_stats=counts_each) as (broker, client):
        await client.send(b"first", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
        for topic in ("%LMQ%a", "%LMQ%b"):
            await commit(client, GROUP, topic, 1)
        await commit(client, "plain", TOPIC, 1)
        each = {f"%LMQ%a@{GROUP}": 1, f"%LMQ%b@{GROUP}": 1}
        assert broker.offsets.totals() == {"Orders@plain": 1} | (each if counts_each else {"%LMQ%@%LMQ%": 2})


@pytest.mark.parametrize("master_asks", [True, False])
async def test_what_light_groups_have_consumed_goes_back_to_the_master(tmp_path: Path, master_asks: bool) -> None:
    async with light_broker(tmp_path / "a") as (acted, slave), light_broker(tmp_path / "b") as (broker, master):
        for client in (slave, master):
            await client.send(b"first", INNER_MULTI_DISPATCH="%LMQ%a")
            await client.send(b"second", INNER_MULTI_DISPATCH="%LMQ%a")
        await commit(slave, GROUP, "%LMQ%a", 2)
        await commit(master, GROUP, "%LMQ%a", 1)
        await commit(slave, "plain", TOPIC, 1)
        await master.ask_well(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(SubscriptionGroupConfig("plain"))
        )
        if master_asks:
            response = await master.remoting.invoke(slave.address, RequestCode.GET_ALL_CONSUMER_OFFSET, timeout_s=60)
            broker.offsets.catch_up(loads(response.body, ConsumerOffsetTable))
        else:
            await HandoverPush(acted.client, acted.offsets).push(master.address)
        assert await committed(master, GROUP, "%LMQ%a") == "2"
        assert await committed(master, "plain", TOPIC) == "1"
