"""Deliver messages later: after a delay, at a time, or not at all.

``python examples/delayed.py [name server]``: without an address it starts its own broker.  A broker of yours
needs recallMessageEnable=true.
"""

import asyncio
from datetime import UTC, datetime, timedelta

from cluster import name_server

from sprocket import BrokerRefused, ConsumeFrom, Consumer, Message, Producer


async def main(namesrv: str) -> None:
    begun = datetime.now(UTC)
    async with Producer("example", namesrv) as producer:
        await producer.send(Message("Later", b"by a level of the broker: 1 s", delay_level=1))
        await producer.send(Message("Later", b"after 1.5 s", delay=timedelta(seconds=1.5)))
        await producer.send(Message("Later", b"at a time", deliver_at=begun + timedelta(seconds=2)))
        recalled = await producer.send(Message("Later", b"never", delay=timedelta(seconds=2.5)))
        print("recalled", await producer.recall(recalled.recall_handle or ""))
        try:
            await producer.recall("not a handle")
        except Exception as error:
            print("refused:", error)

    async with Consumer("later", ["Later"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        for _ in range(3):
            message = await anext(consumer)
            await consumer.ack(message)
            print(f"{(datetime.now(UTC) - begun).total_seconds():.1f} s:", message.body.decode())
        rest = await consumer.receive(wait_s=1)
        print("nothing more" if not rest else f"unexpected: {rest}")


if __name__ == "__main__":
    with name_server(recallMessageEnable="true") as address:
        try:
            asyncio.run(main(address))
        except BrokerRefused as error:
            raise SystemExit(f"this broker does not recall messages: {error}") from None
