"""Send a stream as fast as the cluster accepts it, with bounded memory; then send it with auto-batch.

``python examples/stream.py [name server]``: without an address it starts its own broker.
"""

import asyncio
import time
from collections.abc import Iterator

from cluster import name_server

import sprocket
from sprocket import Message, SendSettings

COUNT = 2_000


def messages() -> Iterator[Message]:
    for number in range(COUNT):
        yield Message("Stream", b"%0128d" % number, tags="stream")


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        begun = time.perf_counter()
        async for _ in mq.producer().send_many(messages(), window=256):
            pass
        print(f"one by one: {COUNT / (time.perf_counter() - begun):,.0f} messages/s")

        batching = mq.producer(settings=SendSettings(auto_batch=True))
        begun = time.perf_counter()
        for _ in range(10):
            some = [Message("Stream", b"%0128d" % number) for number in range(COUNT // 10)]
            await asyncio.gather(*map(batching.send, some))
        print(f"auto-batch: {COUNT / (time.perf_counter() - begun):,.0f} messages/s")


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
