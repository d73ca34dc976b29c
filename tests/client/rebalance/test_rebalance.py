"""Rebalance while nothing answers: it goes on trying, and says so once."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from sprocket import ConsumeFrom, Consumer, Message, Producer
from sprocket.client.rebalance.allocation import AllocateMessageQueueAveragely
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.testing import Broker


class Strategy(AllocateMessageQueueAveragely):
    """Says when it was asked about `topic` for the first time, and may fail then."""

    def __init__(self, topic: str, *, fails: bool = False) -> None:
        self.topic = topic
        self.fails = fails
        self.asked = asyncio.Event()

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        if queues[0].topic == self.topic and not self.asked.is_set():
            self.asked.set()
            if self.fails:
                raise ValueError("not this time")
        return super().allocate(client_id, queues, client_ids)


async def send(broker: Broker, topic: str) -> None:
    async with Producer("g", broker.namesrv) as producer:
        await producer.send(Message(topic, b"x"))


async def test_a_failure_that_repeats_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sprocket.client.rebalance.rebalance"):
        async with Consumer("g", {"T": "*"}, "127.0.0.1:1") as consumer:
            rounds = consumer._rebalance
            for _ in range(3):
                await rounds.once()
            await asyncio.sleep(0)
    messages = [record.getMessage() for record in caplog.records]
    assert sum("event=server_unreachable" in message for message in messages) == 1


async def test_strategy_that_fails_once_is_asked_again(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic)
    strategy = Strategy(topic, fails=True)
    consumer = Consumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST, strategy=strategy)
    async with consumer:
        assert (await consumer.receive(wait_s=60.0))[0].body == b"x"


async def test_topic_that_is_given_up_while_its_queues_are_begun_stops_nothing(
    shared_broker: Broker, topic: str
) -> None:
    await send(shared_broker, topic)
    strategy = Strategy(topic)
    consumer = Consumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST, strategy=strategy)
    async with consumer:
        await strategy.asked.wait()
        await consumer.unsubscribe(topic)
        assert not any(queue.topic == topic for queue in consumer.assignment)
        await consumer.subscribe(topic)
        assert (await consumer.receive(wait_s=60.0))[0].body == b"x"
