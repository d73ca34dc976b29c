"""enablePopBufferMerge: a pop that is soon acknowledged is never written; the others are, in time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.pop.records import AckMsg, BatchAckMsg, PopCheckPoint
from sprocket.remoting.bodies.pop import BatchAck
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.properties import parse
from tests.broker.pop.rig import ack, ack_batch, change, changed, pop, popped, written
from tests.broker.rig import GROUP, TOPIC, running_broker
from tests.waiting import until

BUFFERED: dict[str, Any] = {"enable_pop_buffer_merge": True}
CODE = ResponseCode


async def test_a_pop_that_is_acknowledged_in_time_is_never_written(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **BUFFERED) as (broker, client):
        for number in range(3):
            await client.send(b"%d" % number)
        messages = await popped(client)
        assert (len(broker.pop.buffer), broker.offsets.queues(GROUP, TOPIC)[0]) == (1, 0)
        for message in messages[:2]:
            assert (await ack(client, message)).code == CODE.SUCCESS
        assert broker.offsets.queues(GROUP, TOPIC)[0] == 0
        handle = messages[0].handle
        rest = BatchAck(
            GROUP, TOPIC, "0", 0, 0, handle.revive_queue_id, handle.pop_time_ms, handle.invisible_ms, b"\x06"
        )  # fmt: skip
        assert (await ack_batch(client, rest)).code == CODE.SUCCESS
        assert (len(broker.pop.buffer), broker.offsets.queues(GROUP, TOPIC)[0]) == (0, 3)
        assert written(broker) == []


async def test_offsets_are_committed_in_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **BUFFERED) as (broker, client):
        for number in range(3):
            await client.send(b"%d" % number)
        first = await popped(client, max_msg_nums=1)
        second = await popped(client, max_msg_nums=1)
        await ack(client, second[0])
        assert broker.offsets.queues(GROUP, TOPIC)[0] == 0
        # Messages that a pop took are still not delivered again.
        assert [one.body for one in await popped(client)] == [b"2"]
        await ack(client, first[0])
        assert broker.offsets.queues(GROUP, TOPIC)[0] == 2


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_stop_writes_what_is_in_memory(tmp_path: Path, is_batch: bool) -> None:
    async with running_broker(tmp_path, enable_pop_batch_ack=is_batch, **BUFFERED) as (_, client):
        for number in range(3):
            await client.send(b"%d" % number)
        messages = await popped(client)
        await ack(client, messages[2])
        await ack(client, messages[0])
    async with running_broker(tmp_path) as (broker, client):
        assert broker.offsets.queues(GROUP, TOPIC)[0] == 3
        checkpoint, *acks = written(broker)
        body = loads(bytes(checkpoint.body), PopCheckPoint)
        assert (body.so, body.n, body.bm) == (0, 3, 0)
        if is_batch:
            assert [loads(bytes(one.body), BatchAckMsg).aol for one in acks] == [[0, 2]]
            assert loads(bytes(acks[0].body), BatchAckMsg).bn == "broker-a"
        else:
            assert [loads(bytes(one.body), AckMsg).ao for one in acks] == [0, 2]
        queues = {parse(bytes(one.properties).decode())["REAL_QID"] for one in (checkpoint, *acks)}
        assert queues == {str(messages[0].handle.revive_queue_id)}


async def test_a_pop_is_written_when_it_has_been_in_memory_long_enough(tmp_path: Path) -> None:
    async with running_broker(tmp_path, pop_ck_stay_buffer_time=1_600, **BUFFERED) as (broker, client):
        await client.send(b"0")
        await client.send(b"1")
        messages = await popped(client)
        await until(lambda: len(written(broker)) == 1)
        assert (len(broker.pop.buffer), broker.offsets.queues(GROUP, TOPIC)[0]) == (0, 2)
        await ack(client, messages[0])
        assert len(written(broker)) == 2


@pytest.mark.parametrize(
    ("settings", "invisible_time"),
    [({}, 4_000), ({"pop_ck_stay_buffer_time": 1_000}, 60_000), ({"pop_ck_offset_max_queue_size": 1}, 60_000)],
)
async def test_what_cannot_stay_long_enough_or_has_no_room_is_written_at_once(
    tmp_path: Path, settings: dict[str, Any], invisible_time: int
) -> None:
    async with running_broker(tmp_path, **BUFFERED, **settings) as (broker, client):
        await client.send(b"0")
        await popped(client, invisible_time=invisible_time)
        if "pop_ck_offset_max_queue_size" in settings:
            await client.send(b"1")
            await popped(client, invisible_time=invisible_time)
        assert len(written(broker)) == 1


async def test_a_changed_invisible_time_is_written_and_its_old_pop_acknowledged_in_memory(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **BUFFERED) as (broker, client):
        await client.send(b"0")
        (message,) = await popped(client)
        response = await change(client, message, 70_000)
        assert response.code == CODE.SUCCESS
        (record,) = written(broker)
        assert loads(bytes(record.body), PopCheckPoint).it == 70_000
        assert (len(broker.pop.buffer), broker.offsets.queues(GROUP, TOPIC)[0]) == (0, 1)
        assert (await ack(client, message, extra_info=changed(message, response).encode())).code == CODE.SUCCESS
        assert len(written(broker)) == 2


async def test_an_acknowledgement_of_what_was_not_popped_changes_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **BUFFERED) as (broker, client):
        for number in range(3):
            await client.send(b"%d" % number)
        (message,) = await popped(client, max_msg_nums=1)
        assert (await ack(client, message, offset=2)).code == CODE.SUCCESS
        assert (len(broker.pop.buffer), written(broker)) == (1, [])
        await asyncio.sleep(0)
        assert (await pop(client, max_msg_nums=1)).code == CODE.SUCCESS
