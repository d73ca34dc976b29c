"""Keep the messages of each order in sequence, even if one of them fails at first.

``python examples/ordered.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Message, ReceivedMessage, ReconsumeLater

STEPS = ["created", "paid", "shipped"]


async def main(namesrv: str) -> None:
    seen: list[str] = []
    async with sprocket.connect(namesrv) as mq:
        for step in STEPS:
            for order in ("order-1", "order-2", "order-3"):
                await mq.producer().send(Message("OrderSteps", f"{order} {step}".encode()), sharding_key=order)

        consumer = mq.orderly_consumer("steps", "OrderSteps", consume_from=ConsumeFrom.FIRST)

        async def handle(message: ReceivedMessage) -> None:
            step = message.body.decode()
            if step == "order-2 paid" and not message.reconsume_times:
                print("the bank does not answer yet; the queue waits:", step)
                raise ReconsumeLater(delay=0.2)
            print(step)
            seen.append(step)
            if len(seen) == 9:
                consumer.stop()

        await consumer.run(handle)
    for order in ("order-1", "order-2", "order-3"):
        assert [step for step in seen if step.startswith(order)] == [f"{order} {step}" for step in STEPS]
    print("every order's steps came in order")


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
