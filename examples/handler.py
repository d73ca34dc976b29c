"""Consume with a handler, up to 20 messages at a time; one that raises gives its message back.

Start a broker first: ``sprocket standalone``.  Ctrl-C ends it.
"""

import asyncio
import sys
from contextlib import suppress

from sprocket import Consumer, ReceivedMessage


async def handle(message: ReceivedMessage) -> None:
    if not message.body:
        raise ValueError("an empty order")  # comes again later, and in the end to the dead-letter topic
    print(message.queue.queue_id, message.queue_offset, message.tags, message.body.decode(errors="replace"))


async def main(namesrv: str) -> None:
    async with Consumer("orders", {"Example": "demo || test"}, namesrv) as consumer:
        await consumer.run(handle, concurrency=20)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
