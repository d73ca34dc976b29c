"""Redrive dead letters to their topic after the fault is repaired.

``python examples/dead_letter_redrive.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

import sprocket
from sprocket import AdminError, ConsumeFrom, DeadLetterFilter, Message, ReceivedMessage, Redrive


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        for number in range(4):
            tag = "card" if number % 2 else "cash"
            await mq.producer().send(Message("Charges", b"charge %d" % number, tags=tag))

        broken_tags = {"card"}
        consumer = mq.consumer("charging", "Charges", consume_from=ConsumeFrom.FIRST)
        charged: list[bytes] = []

        async def charge(message: ReceivedMessage) -> None:
            if message.tags in broken_tags:
                print("cannot be charged:", message.body.decode())
                await message.dead_letter("the card reader is broken")
                return
            print("charged", message.body.decode())
            charged.append(message.body)
            if len(charged) == 4:
                consumer.stop()

        running = asyncio.create_task(consumer.run(charge))
        redrive = Redrive(mq.admin, "charging")
        wanted = DeadLetterFilter(tags=frozenset({"card"}))
        print("a dry run finds", await find(redrive, wanted, 2))
        broken_tags.clear()
        done = await redrive.run(wanted)
        print("sent back", done.sent, "to", ", ".join(done.targets))
        await running


async def find(redrive: Redrive, wanted: DeadLetterFilter, count: int) -> int:
    """Wait until a dry run finds `count` dead letters.  The first one creates the dead-letter topic."""
    while True:
        try:
            found = (await redrive.run(wanted, dry_run=True)).matched
            if found >= count:
                return found
        except AdminError as error:
            print("no dead letters yet:", str(error).splitlines()[0][:60])
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
