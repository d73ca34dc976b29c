"""Pop: receive messages on demand, extend the invisible time of one, and have another redelivered.

``python examples/simple_consumer.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Message, PoppedMessage, PopSettings, SimpleConsumer


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        await mq.producer().send_batch([Message("Jobs", b"job %d" % number) for number in range(6)])

        async with mq.simple_consumer("workers", "Jobs", consume_from=ConsumeFrom.FIRST) as consumer:
            first, second, *others = await take(consumer, 6)
            print("took", first.body.decode(), "and five more; nobody else gets them for 30 s")
            await first.extend(60)  # this one takes longer
            await second.nack(delay=1)  # this one is redelivered in 1 s, to any worker
            await consumer.ack_all(others)
            await first.ack()
            (again,) = await take(consumer, 1)
            print("again:", again.body.decode(), "at attempt", again.reconsume_times + 1)
            await again.ack()

        await mq.producer().send(Message("Jobs", b"a long job"))
        async for message in mq.simple_consumer("workers", "Jobs", settings=PopSettings(pop_invisible_time_s=1)):
            async with message.process():
                await asyncio.sleep(2)  # longer than 1 s: the client extends it meanwhile
                print("done after 2 s:", message.body.decode())
            break


async def take(consumer: SimpleConsumer, count: int) -> list[PoppedMessage]:
    taken: list[PoppedMessage] = []
    while len(taken) < count:
        taken += await consumer.receive(count - len(taken), invisible=30)
    return taken


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
