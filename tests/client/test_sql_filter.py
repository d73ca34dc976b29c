"""Consumers that filter by SQL92, against a real broker."""

import asyncio
from collections.abc import Iterator

import pytest

from sprocket import (
    BrokerRefused,
    ConsumeFrom,
    Consumer,
    IllegalMessage,
    Message,
    Producer,
    ReceivedMessage,
    SimpleConsumer,
    SqlFilter,
)
from sprocket.remoting.codes import ResponseCode
from sprocket.testing import Broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("sql"), properties={"enablePropertyFilter": "true"}) as running:
        yield running


async def send(broker: Broker, topic: str, *amounts: int) -> None:
    async with Producer("g", broker.namesrv) as producer:
        for amount in amounts:
            await producer.send(Message(topic, b"%d" % amount, properties={"amount": str(amount), "kind": "order"}))


async def take(consumer: Consumer, count: int) -> list[int]:
    taken: list[ReceivedMessage] = []
    while len(taken) < count:
        taken.append(await anext(consumer))
        await consumer.ack(taken[-1])
    return sorted(int(message.body) for message in taken)


async def test_only_matching_messages_come(broker: Broker) -> None:
    broker.create_topic("Amounts", 1)
    await send(broker, "Amounts", *range(0, 100, 5))
    wanted = {"Amounts": SqlFilter("amount BETWEEN 20 AND 60 AND kind = 'order' AND amount NOT IN ('25', '50')")}
    async with Consumer("amounts", wanted, broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        assert await take(consumer, 7) == [20, 30, 35, 40, 45, 55, 60]
        await send(broker, "Amounts", 10, 99, 21)
        assert await take(consumer, 1) == [21]
        await consumer.subscribe("Amounts", SqlFilter("amount > 90"))
        await send(broker, "Amounts", 30, 97)
        while (await take(consumer, 1)) != [97]:  # the old filter may still bring one
            pass
        with pytest.raises(BrokerRefused, match="position 10: expected a value"):
            await consumer.subscribe("Amounts", SqlFilter("amount > "))
        await send(broker, "Amounts", 98)
        assert await take(consumer, 1) == [98], "the last good filter holds"


async def test_messages_sent_back_are_redelivered(broker: Broker) -> None:
    broker.create_topic("Again", 1)
    await send(broker, "Again", 1, 6)
    wanted = {"Again": SqlFilter("amount > 5")}
    async with Consumer("again", wanted, broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        first = await anext(consumer)
        await consumer.nack(first, delay_level=1)
        assert await take(consumer, 1) == [6]


async def test_a_filter_that_no_broker_takes_is_refused_at_the_start(broker: Broker, shared_broker: Broker) -> None:
    for running, expression, code in (
        (broker, "amount > ", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (shared_broker, "amount > 5", ResponseCode.SYSTEM_ERROR),
    ):
        running.create_topic("Refused", 1)
        consumer = Consumer("refused", {"Refused": SqlFilter(expression)}, running.namesrv)
        with pytest.raises(BrokerRefused) as refused:
            async with consumer:
                pass
        assert refused.value.code == code
    with pytest.raises(IllegalMessage, match="empty"):
        Consumer("refused", {"Refused": SqlFilter("  ")}, broker.namesrv)


async def test_a_topic_that_is_not_there_yet_is_no_obstacle(broker: Broker) -> None:
    wanted = {"Later": SqlFilter("amount > 5")}
    async with Consumer("later", wanted, broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        broker.create_topic("Later", 1)
        await send(broker, "Later", 1, 7)
        async with asyncio.timeout(60):
            assert await take(consumer, 1) == [7]


async def test_popping_consumer_filters_too(broker: Broker) -> None:
    broker.create_topic("PoppedAmounts", 2)
    await send(broker, "PoppedAmounts", *range(0, 100, 5))
    wanted = {"PoppedAmounts": SqlFilter("amount > 80")}
    async with SimpleConsumer("popped", wanted, broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        taken: list[int] = []
        while len(taken) < 3:
            messages = await consumer.receive(wait_s=1)
            taken += [int(message.body) for message in messages]
            await consumer.ack_all(messages)
        assert sorted(taken) == [85, 90, 95]
        assert await consumer.receive(wait_s=0.2) == []
    with pytest.raises(BrokerRefused):
        async with SimpleConsumer("popped", {"PoppedAmounts": SqlFilter("amount >")}, broker.namesrv):
            pass
