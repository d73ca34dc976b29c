"""A small business on a broker: orders, a group that consumes them, one that lags, and dead letters."""

import asyncio
import json
from dataclasses import dataclass

from sprocket import ConsumeFrom, Consumer, Message, Producer
from sprocket.client.trace.recorder import TraceSettings
from sprocket.remoting.message.topic_names import dlq_topic
from sprocket.testing import Broker
from tests.dashboard.rig import kill_messages


@dataclass(frozen=True)
class Scene:
    """`message_id` is an order that the group shipping has consumed, with its trace."""

    message_id: str

    async def work(self, broker: Broker, *, rounds: int) -> None:
        """Send and consume for some seconds, so that charts have points."""
        async with (
            Producer("shop", broker.namesrv) as producer,
            Consumer("shipping", ["Orders"], broker.namesrv) as consumer,
        ):
            for number in range(rounds):
                for n in range(20 + number % 5 * 8):
                    await producer.send(order(n))
                for _ in range(20):
                    await consumer.ack(await anext(consumer))
                await asyncio.sleep(0.5)


def order(number: int) -> Message:
    body = json.dumps({"order": number, "item": "sprocket", "price": 12.5}).encode()
    return Message("Orders", body, tags="paid", keys=[f"order-{number}"])


def scene(broker: Broker) -> Scene:
    for topic in ("Orders", "Invoices", "Shipments", dlq_topic("billing")):
        broker.create_topic(topic, 4)

    async def play() -> str:
        async with Producer("shop", broker.namesrv, trace=TraceSettings()) as producer:
            sent = [await producer.send(order(n)) for n in range(12)]
            await producer.send(Message("Invoices", b"\x00\x01 binary"))
        for group, count in (("shipping", 12), ("billing", 3)):
            async with Consumer(
                group, ["Orders"], broker.namesrv, consume_from=ConsumeFrom.FIRST, trace=TraceSettings()
            ) as consumer:
                for _ in range(count):
                    await consumer.ack(await anext(consumer))
        await kill_messages(broker, "billing", "Orders", 4)
        return sent[0].message_id

    return Scene(asyncio.run(play()))
