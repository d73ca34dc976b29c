"""Send ten messages and consume them.

``python examples/send_and_consume.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

from sprocket import ConsumeFrom, Consumer, Message, Producer


async def main(namesrv: str) -> None:
    async with Producer(group="example", namesrv=namesrv) as producer:
        for number in range(10):
            result = await producer.send(Message("Example", f"message {number}".encode(), tags="demo"))
            print("sent", result.message_id)

    async with Consumer("example", {"Example": "*"}, namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        for _ in range(10):
            message = await anext(consumer)
            print("received", message.body.decode())
            await consumer.ack(message)


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
