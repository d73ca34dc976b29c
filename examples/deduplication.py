"""Send a message twice with your own unique key; handle it once.

``python examples/deduplication.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Deduplicator, Message, ReceivedMessage


async def main(namesrv: str) -> None:
    sent = []
    for attempt in (1, 2):  # a program that died before it got the response, and its restart
        async with sprocket.connect(namesrv) as mq:
            result = await mq.producer().send(Message("Invoices", b"invoice 4711", unique_key="invoice-4711"))
            print("attempt", attempt, "sent", result.message_id)
        sent.append(result.message_id)
    assert sent[0] == sent[1]

    deduplicator = Deduplicator()
    async with sprocket.connect(namesrv) as mq:
        consumer = mq.consumer("accounts", "Invoices", consume_from=ConsumeFrom.FIRST)

        async def handle(message: ReceivedMessage) -> None:
            print("handled", message.body.decode())

        handle_once = deduplicator.once(handle)

        async def count(message: ReceivedMessage) -> None:
            await handle_once(message)
            if deduplicator.duplicates:
                consumer.stop()

        await consumer.run(count)
    print("left out", deduplicator.duplicates)


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
