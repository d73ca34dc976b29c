"""Broadcasting: every member gets every message.  After a restart it continues where it stopped.

``python examples/broadcasting.py [name server]``: without an address it starts its own broker.
"""

import asyncio
import tempfile
from pathlib import Path

from cluster import name_server

from sprocket import ClientSettings, ConsumeFrom, Consumer, ConsumeSettings, Message, MessageModel, Producer


def member(namesrv: str, name: str, offsets: Path) -> Consumer:
    """Return a member that stores its offsets under `name`.  Members on one machine need different names."""
    return Consumer(
        "caches",
        "Invalidations",
        model=MessageModel.BROADCASTING,
        consume_from=ConsumeFrom.FIRST,
        settings=ConsumeSettings(local_offset_store_dir=offsets),  # ~/.rocketmq_offsets by default
        client=ClientSettings(namesrv=namesrv, instance_name=name),
    )


async def main(namesrv: str, offsets: Path) -> None:
    async with Producer("example", namesrv) as producer:
        await producer.send(Message("Invalidations", b"prices"))
        for name in ("cache-1", "cache-2"):
            async with member(namesrv, name, offsets) as consumer:
                message = await anext(consumer)
                await consumer.ack(message)
                print(name, "received", message.body.decode())

        await producer.send(Message("Invalidations", b"seats"))
        async with member(namesrv, "cache-1", offsets) as consumer:
            message = await anext(consumer)
            await consumer.ack(message)
            print("cache-1, restarted, received", message.body.decode())


if __name__ == "__main__":
    with name_server() as address, tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(address, Path(directory)))
        for path in sorted(Path(directory).glob("*/caches/offsets.json")):
            print("offsets of", path.parts[-3].partition("@")[2])
