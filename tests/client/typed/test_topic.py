"""Typed topics against a broker."""

import asyncio
from dataclasses import dataclass

import pytest

import sprocket
from sprocket import BodyUndecodable, ConsumeFrom, IllegalMessage, Message, Undecodable
from sprocket.testing import Broker

FIRST = ConsumeFrom.FIRST


@dataclass(frozen=True)
class Order:
    number: int
    item: str


SHOES, HAT = Order(1, "shoes"), Order(2, "hat")


async def test_values_in_place_of_bodies(shared_broker: Broker, topic: str) -> None:
    async with sprocket.connect(shared_broker.namesrv) as mq:
        orders = mq.topic(topic, Order)
        await orders.send(SHOES, key="order-1", tags="web", sharding_key="a")
        await orders.send(HAT, sharding_key="a")
        async for order in orders.consume(f"loop-{topic}", "web", consume_from=FIRST):
            assert order == SHOES
            break
        async for typed in orders.consume(f"messages-{topic}", consume_from=FIRST).messages():
            async with typed.process() as message:
                assert (typed.value, message.keys, message.tags) == (SHOES, ["order-1"], "web")
            break
        seen = []
        consumer = orders.consume(f"run-{topic}", consume_from=FIRST)

        def handle(order: Order) -> None:
            seen.append(order)

        running = asyncio.create_task(consumer.run(handle))
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        await consumer.close()
        await running
        assert set(seen) == {SHOES, HAT}
        with pytest.raises(IllegalMessage, match="cannot be encoded"):
            await orders.send(object())  # type: ignore[arg-type]


async def test_an_iteration_acknowledges_what_it_has_left_behind(shared_broker: Broker, topic: str) -> None:
    async with sprocket.connect(shared_broker.namesrv) as mq:
        orders = mq.topic(topic, Order)
        await orders.send_all([SHOES, HAT])
        with pytest.raises(LookupError):
            async with orders.consume(f"g-{topic}", consume_from=FIRST) as consumer:
                async for order in consumer:
                    if order == HAT:
                        raise LookupError
        async with orders.consume(f"g-{topic}", consume_from=FIRST) as consumer:
            assert await asyncio.wait_for(anext(consumer), 30) == HAT  # redelivered; SHOES is done
        async with orders.consume(f"g-{topic}", consume_from=FIRST) as consumer:
            assert await consumer.consumer.receive(wait_s=1.5) == []  # the end of the context acknowledged HAT


async def test_a_body_that_does_not_decode(shared_broker: Broker, topic: str) -> None:
    async with sprocket.connect(shared_broker.namesrv) as mq:
        orders = mq.topic(topic, Order)
        await mq.producer().send_batch([Message(topic, b'{"number": "x"}'), orders.message(SHOES)])
        group = f"dead-{topic}"
        assert await anext(orders.consume(group, consume_from=FIRST)) == SHOES
        dead = await asyncio.wait_for(anext(mq.consumer(f"u-{topic}", f"%DLQ%{group}", consume_from=FIRST)), 20)
        assert "Expected `int`, got `str`" in dead.properties["DEAD_LETTER_REASON"]

        skipping = mq.topic(topic, Order, undecodable=Undecodable.SKIP).consume(f"skip-{topic}", consume_from=FIRST)
        assert await anext(skipping) == SHOES

        raising = mq.topic(topic, Order, undecodable=Undecodable.RAISE).consume(f"raise-{topic}", consume_from=FIRST)
        with pytest.raises(BodyUndecodable, match="Expected `int`") as caught:
            await anext(raising)
        assert not caught.value.message.is_settled
        await caught.value.message.ack()
        assert await anext(raising) == SHOES
