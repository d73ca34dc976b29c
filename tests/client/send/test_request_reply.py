"""Request and reply against a real broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sprocket import (
    BrokerRefused,
    Consumer,
    IllegalMessage,
    Message,
    Producer,
    ReceivedMessage,
    ReplyTimeout,
    SendFailed,
    make_reply,
)
from sprocket.remoting.codes import RequestCode
from sprocket.testing import Broker
from tests.waiting import until


@asynccontextmanager
async def responder(broker: Broker, topic: str) -> AsyncIterator[list[ReceivedMessage]]:
    """Answers each message with its body in capitals, but keeps silent on those without letters."""
    taken: list[ReceivedMessage] = []

    async def answer(message: ReceivedMessage) -> None:
        taken.append(message)
        if message.body.upper() != message.body:
            await consumer.reply(message, message.body.upper())

    async with Consumer(f"r-{topic}", [topic], broker.namesrv) as consumer:
        await until(lambda: sum(queue.topic == topic for queue in consumer.assignment) == 4)
        work = asyncio.create_task(consumer.run(answer))
        yield taken
        await consumer.close()
        await work


@pytest.mark.code(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
async def test_each_request_gets_its_own_reply(shared_broker: Broker, topic: str) -> None:
    async with responder(shared_broker, topic), Producer("g", shared_broker.namesrv) as producer:
        bodies = [b"request %d" % number for number in range(60)]
        replies = await asyncio.gather(
            *(producer.request(Message(topic, body, keys="k"), timeout_s=10) for body in bodies)
        )
    assert [reply.body for reply in replies] == [body.upper() for body in bodies]
    reply = replies[0]
    assert reply.properties["MSG_TYPE"] == "reply"
    assert reply.properties["TTL"] == "10000"
    assert int(reply.properties["PUSH_REPLY_TIME"]) <= int(reply.properties["ARRIVE_TIME"])
    assert reply.topic.endswith("_REPLY_TOPIC")
    assert reply.store_host == ("127.0.0.1", int(shared_broker.address.rpartition(":")[2]))


async def test_large_reply_is_compressed_on_its_way(shared_broker: Broker, topic: str) -> None:
    async with responder(shared_broker, topic), Producer("g", shared_broker.namesrv) as producer:
        reply = await producer.request(Message(topic, b"long" * 5000), timeout_s=10)
        assert reply.body == b"LONG" * 5000


async def test_without_a_reply_the_requester_is_told_and_waits_no_more(shared_broker: Broker, topic: str) -> None:
    async with responder(shared_broker, topic) as taken, Producer("g", shared_broker.namesrv) as producer:
        await producer.request(Message(topic, b"warm"), timeout_s=10)
        with pytest.raises(ReplyTimeout, match=r"no reply came within 0\.3 s"):
            await producer.request(Message(topic, b"1"), timeout_s=0.3)
        late = make_reply(taken[-1], b"late")
        await producer.send(late)  # nobody waits for it, but the client is there
        assert (await producer.request(Message(topic, b"again"), timeout_s=10)).body == b"AGAIN"


async def test_responder_learns_that_the_requester_is_gone(shared_broker: Broker, topic: str) -> None:
    async with Consumer(f"r-{topic}", [topic], shared_broker.namesrv) as consumer:
        async with Producer("g", shared_broker.namesrv) as producer:
            await until(lambda: len(consumer.assignment) >= 4)
            asked = asyncio.create_task(producer.request(Message(topic, b"hello"), timeout_s=30))
            message = await anext(consumer)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        with pytest.raises(SendFailed, match=r"channel of <.*> not found") as failed:
            await consumer.reply(message, b"too late")
        assert isinstance(failed.value.__cause__, BrokerRefused)
        await consumer.ack(message)


async def test_message_that_asks_for_no_reply_gets_none(shared_broker: Broker, topic: str) -> None:
    async with (
        Consumer(f"r-{topic}", [topic], shared_broker.namesrv) as consumer,
        Producer("g", shared_broker.namesrv) as producer,
    ):
        await until(lambda: len(consumer.assignment) >= 4)
        await producer.send(Message(topic, b"x"))
        message = await anext(consumer)
        with pytest.raises(IllegalMessage, match="asks for no reply"):
            make_reply(message, b"y")
        with pytest.raises(IllegalMessage, match="reserved"):
            await producer.send(Message(topic, b"x", properties={"REPLY_TO_CLIENT": "someone"}))
        asked = asyncio.create_task(producer.request(Message(topic, b"x"), timeout_s=10))
        reply = make_reply(await anext(consumer), b"y")
        with pytest.raises(IllegalMessage, match="batch"):
            await producer.send_batch([reply])
        reply.tags = "T"
        await producer.send(reply)
        assert (await asked).tags == "T"
