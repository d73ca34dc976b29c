"""Request and reply: a request waits for the reply of the consumer that receives it.

``python examples/request_reply.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

from sprocket import ConsumeFrom, Consumer, Message, Producer, ReceivedMessage


async def main(namesrv: str) -> None:
    async with (
        Producer("example", namesrv) as producer,
        Consumer("calculators", ["Sums"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
    ):

        async def add(message: ReceivedMessage) -> None:
            total = sum(map(int, message.body.split(b"+")))
            await consumer.reply(message, b"%d" % total)
            answered.append(message.body)
            if len(answered) == 2:
                all_answered.set()

        answered: list[bytes] = []
        all_answered = asyncio.Event()
        running = asyncio.create_task(consumer.run(add))
        for task in (b"1+2", b"20+22"):
            reply = await producer.request(Message("Sums", task), timeout_s=15)
            print(task.decode(), "=", reply.body.decode())
        await all_answered.wait()
        await consumer.close()
        await running


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
