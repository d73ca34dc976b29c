"""Consumer in a process of its own that writes what it does to a log, and kills itself where a test wants it to.

Arguments: name server, topic, group, store, place of the store, log, deadly body, commits until it kills itself.
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from typing import Final

from sprocket import (
    ConsumeFrom,
    Consumer,
    Deduplicator,
    PostgresClaims,
    ReceivedMessage,
    RedisClaims,
    SqliteClaims,
)

STORES: Final = {"sqlite": SqliteClaims, "redis": RedisClaims, "postgres": PostgresClaims}
LEASE_S: Final = 2.0


async def main(namesrv: str, topic: str, group: str, store: str, place: str, log: str, deadly: str, limit: str) -> None:
    into = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    handled: set[bytes] = set()
    commits = 0

    def write(event: str, message: ReceivedMessage) -> None:
        os.write(into, f"{event} {message.body.decode()}\n".encode())

    async with AsyncExitStack() as stack:
        claims = await stack.enter_async_context(STORES[store](place, group=group, lease_s=LEASE_S))

        async def handle(message: ReceivedMessage) -> None:
            handled.add(message.body)
            write("handled", message)
            if message.body.decode() == deadly:
                os.kill(os.getpid(), signal.SIGKILL)  # the effect is there, the commit is not
            await asyncio.sleep(0)

        once = Deduplicator(claims).once(handle)

        async def count(message: ReceivedMessage) -> None:
            nonlocal commits
            await once(message)
            write("committed" if message.body in handled else "duplicate", message)
            commits += 1
            if commits == int(limit):
                os.kill(os.getpid(), signal.SIGKILL)  # committed, but not acknowledged

        consumer = Consumer(group, [topic], namesrv, consume_from=ConsumeFrom.FIRST)
        await stack.enter_async_context(consumer)
        await consumer.run(count)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
