"""Actions of received messages: ack, nack, extend, reply, dead_letter, process."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import sprocket
from sprocket import ClientError, ConsumeFrom, Message, PoppedMessage, ReceivedMessage, ReconsumeLater
from sprocket.testing import Broker

FIRST = ConsumeFrom.FIRST


@pytest.fixture
async def mq(shared_broker: Broker) -> AsyncIterator[sprocket.Connection]:
    async with sprocket.connect(shared_broker.namesrv) as connection:
        yield connection


async def dead_letters(mq: sprocket.Connection, group: str) -> list[ReceivedMessage]:
    consumer = mq.consumer(f"undertaker-{group}", f"%DLQ%{group}", consume_from=FIRST)
    return [await asyncio.wait_for(anext(consumer), 20)]


async def test_ack_and_nack_of_a_pulled_message(mq: sprocket.Connection, topic: str) -> None:
    await mq.producer().send(Message(topic, b"1"))
    consumer = mq.consumer(f"g-{topic}", topic, consume_from=FIRST)
    message = await anext(consumer)
    assert not message.is_settled
    await message.nack(delay=timedelta(milliseconds=200))  # rounded up to the level of 1 s
    assert message.is_settled
    again = await asyncio.wait_for(anext(consumer), 20)
    assert (again.body, again.reconsume_times) == (b"1", 1)
    await again.ack()
    await again.nack()  # has no effect any more
    assert sum(consumer.committed(topic).values()) == 1


async def test_process_acknowledges_or_rejects(mq: sprocket.Connection, topic: str) -> None:
    await mq.producer().send(Message(topic, b"1"))
    consumer = mq.consumer(f"g-{topic}", topic, consume_from=FIRST)
    with pytest.raises(LookupError):
        async with (await anext(consumer)).process(delay=1):
            raise LookupError
    async with (message := await asyncio.wait_for(anext(consumer), 20)).process():
        assert message.reconsume_times == 1
        raise ReconsumeLater(delay=1)
    async with (message := await asyncio.wait_for(anext(consumer), 20)).process() as same:
        assert same is message
        assert message.reconsume_times == 2
    assert message.is_settled


async def test_process_of_a_popped_message(mq: sprocket.Connection, topic: str) -> None:
    await mq.producer().send(Message(topic, b"1"))
    consumer = mq.simple_consumer(f"g-{topic}", topic, consume_from=FIRST)
    (message,) = await consumer.receive(1, invisible=30, wait_s=5)
    assert isinstance(message, PoppedMessage)
    before = message.invisible_until
    await message.extend(timedelta(minutes=2))
    assert message.invisible_until > before + 60
    with pytest.raises(LookupError):
        async with message.process(delay=1):
            raise LookupError
    (message,) = await consumer.receive(1, wait_s=15)
    async with message.process():
        await message.ack()
    assert message.is_settled
    assert await consumer.receive(1, invisible=1, wait_s=0) == []


async def test_a_dead_letter_has_its_reason(mq: sprocket.Connection, topic: str) -> None:
    await mq.producer().send(Message(topic, b"bad", keys=["k"], tags="t"))
    group = f"g-{topic}"
    consumer = mq.consumer(group, topic, consume_from=FIRST)
    await (await anext(consumer)).dead_letter("no valid\x01JSON\nat byte 3")
    (dead,) = await dead_letters(mq, group)
    assert dead.properties["DEAD_LETTER_REASON"] == "no valid JSON at byte 3"
    assert (dead.body, dead.keys, dead.tags) == (b"bad", ["k"], "t")
    popping = mq.simple_consumer(f"pop-{topic}", topic, consume_from=FIRST)
    (popped,) = await popping.receive(1, wait_s=5)
    await popped.dead_letter("worse")
    (dead,) = await dead_letters(mq, f"pop-{topic}")
    assert (dead.body, dead.properties["DEAD_LETTER_REASON"]) == (b"bad", "worse")


@pytest.mark.parametrize("is_popped", [False, True])
async def test_reply(mq: sprocket.Connection, topic: str, is_popped: bool) -> None:
    async def answer() -> None:
        consumer = (mq.simple_consumer if is_popped else mq.consumer)(f"g-{topic}", topic, consume_from=FIRST)
        message: ReceivedMessage | PoppedMessage = await anext(aiter(consumer))
        await message.reply(message.body.upper())
        await message.ack()

    answering = asyncio.create_task(answer())
    reply = await mq.producer("asker").request(Message(topic, b"ping"), timeout_s=20)
    assert reply.body == b"PING"
    await answering
    with pytest.raises(ClientError, match="not given by a consumer"):
        await reply.ack()


async def test_an_extended_message_is_not_redelivered_by_the_timeout(mq: sprocket.Connection, topic: str) -> None:
    await mq.producer().send_batch([Message(topic, b"extended"), Message(topic, b"late")])
    settings = sprocket.ConsumeSettings(consume_timeout_s=1)
    consumer = mq.consumer(f"g-{topic}", topic, consume_from=FIRST, settings=settings)
    first, second = await anext(consumer), await anext(consumer)
    await first.extend(30)
    while not second.is_settled:
        await asyncio.sleep(0.05)
    assert not first.is_settled
    assert "source" not in dir(first)
    await first.ack()


async def test_a_message_has_the_sharding_key_of_its_send(mq: sprocket.Connection, topic: str) -> None:
    await mq.producer().send(Message(topic, b"1"), sharding_key="order-7")
    assert (await anext(mq.consumer(f"g-{topic}", topic, consume_from=FIRST))).sharding_key == "order-7"
