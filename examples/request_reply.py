"""Request and reply: a request waits for the reply of the consumer that receives it.

``python examples/request_reply.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Message, ReceivedMessage


async def add(message: ReceivedMessage) -> None:
    total = sum(map(int, message.body.split(b"+")))
    await message.reply(b"%d" % total)


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        consumer = mq.consumer("calculators", "Sums", consume_from=ConsumeFrom.FIRST)
        running = asyncio.create_task(consumer.run(add))
        for task in (b"1+2", b"20+22"):
            reply = await mq.producer().request(Message("Sums", task), timeout_s=15)
            print(task.decode(), "=", reply.body.decode())
        consumer.stop()
        await running


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
