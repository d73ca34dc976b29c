"""What a popping consumer must not give twice, or too late."""

import asyncio

from sprocket import ConsumeFrom, Message, PoppedMessage, Producer, SimpleConsumer
from sprocket.testing import Broker


async def _send(broker: Broker, topic: str, *bodies: bytes) -> None:
    async with Producer("g", broker.namesrv) as producer:
        for body in bodies:
            await producer.send(Message(topic, body), queue=(await producer.queues(topic))[0])


async def test_two_that_wait_in_order_are_not_given_the_same(shared_broker: Broker, topic: str) -> None:
    await _send(shared_broker, topic, b"first")
    options = {"consume_from": ConsumeFrom.FIRST, "ordered": True}
    async with SimpleConsumer(f"g-{topic}", [topic], shared_broker.namesrv, **options) as consumer:  # type: ignore[arg-type]
        (first,) = await consumer.receive(wait_s=2.0)
        waiting = [asyncio.create_task(consumer.receive(wait_s=2.0)) for _ in range(2)]
        await asyncio.sleep(0.2)
        await _send(shared_broker, topic, b"second")
        await consumer.ack(first)
        taken = [message.body for messages in await asyncio.gather(*waiting) for message in messages]
        assert taken == [b"second"]


async def test_an_iteration_leaves_out_what_is_somebody_elses_by_now(shared_broker: Broker, topic: str) -> None:
    await _send(shared_broker, topic, b"0", b"1", b"2")
    async with SimpleConsumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        taken: list[PoppedMessage] = []
        async for message in consumer:
            await consumer.ack(message)
            taken.append(message)
            if len(taken) == 1:
                for lost in consumer._ready:
                    lost.invisible_until = 0.0
                await _send(shared_broker, topic, b"3")
            else:
                break
        assert [message.body for message in taken] == [b"0", b"3"]
