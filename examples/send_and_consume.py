"""Send ten messages and consume them.

``python examples/send_and_consume.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Message


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        for number in range(10):
            result = await mq.producer().send(Message("Example", f"message {number}".encode(), tags="demo"))
            print("sent", result.message_id)

        consumer = mq.consumer("example", "Example", consume_from=ConsumeFrom.FIRST)
        for _ in range(10):
            async with (await anext(consumer)).process() as message:
                print("received", message.body.decode())


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
