"""Producer of Sprocket with default settings, for `benchmarks.failover.run`: one message after the other.

    python -m benchmarks.failover.sender NAME_SERVERS TOPIC

Prints SENT or FAILED, the body, and milliseconds since 1970, until its input ends.
"""

import asyncio
import sys
import time

from sprocket import Message, Producer
from sprocket.common.errors import SprocketError

_PAUSE_S = 0.02


async def _send(name_servers: str, topic: str) -> None:
    async with Producer("sprocket-writers", name_servers) as producer:
        number = 0
        while True:
            number += 1
            body = f"s-{number}"
            try:
                await producer.send(Message(topic, body.encode()))
                word = "SENT"
            except SprocketError:
                word = "FAILED"
            print(word, body, time.time_ns() // 1_000_000, sep="\t", flush=True)
            await asyncio.sleep(_PAUSE_S)


if __name__ == "__main__":
    asyncio.run(_send(sys.argv[1], sys.argv[2]))
