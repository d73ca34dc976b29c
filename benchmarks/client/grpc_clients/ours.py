"""Process of our client: it sends and receives as it is told on its standard input, and prints what that cost.

python ours.py PROXY TOPIC GROUP
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

import sprocket
from sprocket import Message

_BODY = bytes(1024)
_WINDOW = 64


async def main(proxy: str, topic: str, group: str) -> None:
    """Answer the parent until it closes our standard input."""
    async with sprocket.connect(f"grpc://{proxy}") as mq:
        producer, consumer = mq.producer(), mq.simple_consumer(group, topic)
        await consumer.receive(1, wait_s=5)  # a group begins at the end of a topic

        async def send(count: int) -> None:
            for _ in range(count):
                await producer.send(Message(topic, _BODY))

        async def send_64(count: int) -> None:
            async for _ in producer.send_many((Message(topic, _BODY) for _ in range(count)), window=_WINDOW):
                pass

        async def receive(count: int) -> None:
            while count > 0:
                for message in await consumer.receive(min(32, count), wait_s=20):
                    await message.ack()
                    count -= 1

        async def receive_together(count: int) -> None:
            while count > 0:
                found = await consumer.receive(min(32, count), wait_s=20)
                await asyncio.gather(*(message.ack() for message in found))
                count -= len(found)

        works: dict[str, Callable[[int], Awaitable[None]]] = {"send": send, "send_64": send_64, "receive": receive}
        works["receive_together"] = receive_together
        print("{}", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, count = line.split()
            cpu, wall = time.process_time(), time.perf_counter()
            await works[what](int(count))
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            print(json.dumps({"cpu_us": cpu / int(count) * 1e6, "rate": int(count) / wall}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:4]))
