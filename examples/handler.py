"""Consume with a handler, several messages at a time.  If the handler raises, the message is redelivered.

``python examples/handler.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

from sprocket import ConsumeFrom, Consumer, Message, Producer, ReceivedMessage, ReconsumeLater


async def main(namesrv: str) -> None:
    async with Producer("example", namesrv) as producer:
        await producer.send_batch([Message("Orders", b"order %d" % number) for number in range(5)])

    done = 0
    async with Consumer("orders", ["Orders"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:

        async def handle(message: ReceivedMessage) -> None:
            nonlocal done
            if message.body == b"order 3" and not message.reconsume_times:
                print("not now:", message.body.decode())
                raise ReconsumeLater(delay_level=1)  # in 1 s
            print("handled", message.body.decode(), "at attempt", message.reconsume_times + 1)
            done += 1
            if done == 5:
                all_done.set()

        all_done = asyncio.Event()
        running = asyncio.create_task(consumer.run(handle, concurrency=20))
        await all_done.wait()
    await running


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
