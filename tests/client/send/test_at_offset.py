"""Batches that are stored only at the end of the queue that their sender knows."""

from pathlib import Path

import pytest

from sprocket import BrokerRefused, IllegalArgument, Message, MessageQueue, Producer, SendFailed, SendSettings
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.message.properties import EXPECTED_OFFSET, encode
from tests.broker.rig import TOPIC as ORDERS
from tests.broker.rig import create, records, running_broker
from tests.client.send.test_idempotent_producer import TOPIC, count, cut_cluster
from tests.send_headers import send_header

QUEUE = MessageQueue(TOPIC, "broker-a", 1)
TWO = [Message(TOPIC, b"1"), Message(TOPIC, b"2")]


async def test_of_two_senders_that_know_the_same_end_one_stores_its_batch(tmp_path: Path) -> None:
    async with cut_cluster(tmp_path) as (name_server, cut, broker), Producer("g", name_server.address) as producer:
        assert (await producer.send_batch(TWO, queue=QUEUE, at_offset=0)).queue_offset == 0
        for offset in (0, 1, 3):
            with pytest.raises(BrokerRefused, match="ends at offset 2") as refused:
                await producer.send_batch(TWO, queue=QUEUE, at_offset=offset)
            assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
        await producer.send(Message(TOPIC, b"3"), queue=QUEUE)
        assert (await producer.send_batch(TWO, queue=QUEUE, at_offset=3)).queue_offset == 3
        assert count(broker) == 5
        assert all(EXPECTED_OFFSET.encode() not in record.properties for record in records(broker, TOPIC))
        cut.cuts = 1
        with pytest.raises(SendFailed):
            await producer.send_batch(TWO, queue=QUEUE, at_offset=5)
        with pytest.raises(BrokerRefused, match="ends at offset 7"):  # the attempt whose answer was lost was stored
            await producer.send_batch(TWO, queue=QUEUE, at_offset=5)


async def test_a_condition_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    async with cut_cluster(tmp_path) as (name_server, _, broker):
        async with Producer("g", name_server.address) as producer:
            with pytest.raises(IllegalArgument, match="needs a queue"):
                await producer.send_batch(TWO, at_offset=0)
        settings = SendSettings(idempotent=True)
        async with Producer("g", name_server.address, settings=settings) as producer:
            with pytest.raises(IllegalArgument, match="not idempotent"):
                await producer.send_batch(TWO, queue=QUEUE, at_offset=0)
        assert count(broker) == 0
    async with running_broker(tmp_path) as (_, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        condition = {EXPECTED_OFFSET: "0"}
        alone = await client.ask(RequestCode.SEND_MESSAGE_V2, send_header(ORDERS, properties=encode(condition)), b"x")
        assert alone.code == ResponseCode.MESSAGE_ILLEGAL and "for batches" in (alone.remark or "")
