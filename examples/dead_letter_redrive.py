"""Redrive dead letters to their topic after the fault is repaired.

``python examples/dead_letter_redrive.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

from sprocket import (
    AdminClient,
    AdminError,
    ConsumeFrom,
    Consumer,
    DeadLetterFilter,
    Message,
    Producer,
    ReceivedMessage,
    ReconsumeLater,
    Redrive,
)


async def main(namesrv: str) -> None:
    async with Producer("example", namesrv) as producer:
        for number in range(4):
            tag = "card" if number % 2 else "cash"
            await producer.send(Message("Charges", b"charge %d" % number, tags=tag))

    repaired = False
    async with Consumer("charging", ["Charges"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:

        async def charge(message: ReceivedMessage) -> None:
            if message.tags == "card" and not repaired:
                print("cannot be charged:", message.body.decode())
                raise ReconsumeLater(delay_level=-1)  # to the dead-letter topic, %DLQ%charging
            print("charged", message.body.decode())
            charged.append(message.body)
            if len(charged) == 4:
                all_charged.set()

        charged: list[bytes] = []
        all_charged = asyncio.Event()
        running = asyncio.create_task(consumer.run(charge))

        async with AdminClient(namesrv) as admin:
            redrive = Redrive(admin, "charging")
            wanted = DeadLetterFilter(tags=frozenset({"card"}))
            print("a dry run finds", await find(redrive, wanted, 2))
            repaired = True
            done = await redrive.run(wanted)
            print("sent back", done.sent, "to", ", ".join(done.targets))
        await all_charged.wait()
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
