"""Send a stream as fast as the cluster takes it, with bounded memory.  Needs a broker: ``sprocket standalone``."""

import asyncio
import sys
import time
from collections.abc import Iterator

from sprocket import Message, Producer

COUNT = 100_000


def messages() -> Iterator[Message]:
    for number in range(COUNT):
        yield Message("Example", b"%0128d" % number, tags="stream")


async def main(namesrv: str) -> None:
    async with Producer(group="example", namesrv=namesrv) as producer:
        begun = time.perf_counter()
        async for _ in producer.send_many(messages(), window=256):
            pass
        print(f"{COUNT / (time.perf_counter() - begun):,.0f} messages/s")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
