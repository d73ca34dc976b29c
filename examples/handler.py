"""Consume with a handler, several messages at a time.  If the handler raises, the message is redelivered.

``python examples/handler.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Message, ReceivedMessage, ReconsumeLater


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        await mq.producer().send_batch([Message("Orders", b"order %d" % number) for number in range(5)])
        consumer = mq.consumer("orders", "Orders", consume_from=ConsumeFrom.FIRST)
        done: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            if message.body == b"order 3" and not message.reconsume_times:
                print("not now:", message.body.decode())
                raise ReconsumeLater(delay=1)
            print("handled", message.body.decode(), "at attempt", message.reconsume_times + 1)
            done.append(message.body)
            if len(done) == 5:
                consumer.stop()

        # SIGTERM, Ctrl-C and `stop` end it after the messages in work.
        await consumer.run(handle, concurrency=20)


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
