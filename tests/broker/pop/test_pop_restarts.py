"""Messages that are in flight when the broker goes, or is started with another configuration."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader
from sprocket.remoting.message.properties import parse
from store.message_store import MessageStore
from store.record.record import PendingMessage
from tests.broker.insides import work_now
from tests.broker.pop.rig import ack, popped, written
from tests.broker.rig import GROUP, TOPIC, running_broker
from tests.waiting import until

ORDER_INFO = "store/config/consumerOrderInfo.json"


async def test_what_was_popped_with_more_revive_queues_can_be_acknowledged(tmp_path: Path) -> None:
    async with running_broker(tmp_path, revive_queue_num=4) as (broker, client):
        for number in range(4):
            await client.send(b"%d" % number)
        messages = [(await popped(client, max_msg_nums=1))[0] for _ in range(4)]
        assert sorted(message.handle.revive_queue_id for message in messages) == [0, 1, 2, 3]
    async with running_broker(tmp_path, revive_queue_num=1) as (broker, client):
        last = max(messages, key=lambda message: message.handle.revive_queue_id)
        response = await ack(client, last)
        assert response.code == ResponseCode.SUCCESS, response.remark
        assert parse(bytes(written(broker)[-1].properties).decode())["REAL_QID"] == "3"


async def test_an_acknowledgement_in_order_does_not_pass_over_what_a_crash_forgot(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(3):
            await client.send(b"%d" % number)
        messages = await popped(client, order=True, queue_id=0)
        assert [message.body for message in messages] == [b"0", b"1", b"2"]
    # It is written every few seconds: a broker that dies has not written its last pops.
    (tmp_path / ORDER_INFO).unlink()
    async with running_broker(tmp_path) as (broker, client):
        assert (await ack(client, messages[2])).code == ResponseCode.SUCCESS
        assert broker.offsets.query(GROUP, TOPIC, 0) == 0
        assert [message.body for message in await popped(client, order=True, queue_id=0)] == [b"0", b"1", b"2"]


async def test_what_was_popped_in_order_is_saved_once_the_log_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path, flush_consumer_offset_interval=60_000) as (broker, client):
        await client.send()
        await popped(client, order=True, queue_id=0)
        asked: list[tuple[int, Any]] = []
        monkeypatch.setattr(MessageStore, "when_flushed", lambda _, offset, callback: asked.append((offset, callback)))
        task = asyncio.ensure_future(work_now("consumer_order_info", broker.pop.periodic()))
        await until(lambda: asked)
        assert asked[0][0] == broker.store.wrote_offset
        assert not (tmp_path / ORDER_INFO).exists()
        asked[0][1](None)
        await task
        assert (tmp_path / ORDER_INFO).exists()


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_a_topic_that_is_made_again_is_popped_from_its_begin(tmp_path: Path, is_ordered: bool) -> None:
    async with running_broker(tmp_path, enable_pop_buffer_merge=True) as (_, client):
        for number in range(3):
            await client.send(b"old%d" % number)
        (*_, last) = await popped(client, order=is_ordered, queue_id=0)
        await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
        for number in range(4):
            await client.send(b"new%d" % number)
        await ack(client, last)
        found = await popped(client, order=is_ordered, queue_id=0)
        assert [message.body for message in found] == [b"new0", b"new1", b"new2", b"new3"]


async def test_redeliveries_under_the_other_kind_of_name_are_popped_too(tmp_path: Path) -> None:
    retry = f"%RETRY%{GROUP}+{TOPIC}"
    async with running_broker(tmp_path, enable_retry_topic_v2=True) as (broker, client):
        await client.send(b"first")
        (message,) = await popped(client)
        broker.topics.update([TopicConfig(retry, read_queue_nums=1, write_queue_nums=1)])
        broker.store.append([PendingMessage(retry, 0, b"again", b"", 0, 0, 0, 0, broker.store.store_host)])
    async with running_broker(tmp_path, enable_retry_topic_v2=False) as (broker, client):
        with patch.object(broker.pop.draws, "peek", lambda: (0, 0)):
            (message,) = await popped(client)
        assert (message.body, message.handle.retry) == (b"again", "2")
        assert (await ack(client, message)).code == ResponseCode.SUCCESS
