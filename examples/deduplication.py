"""Send a message twice with your own unique key; handle it once.

``python examples/deduplication.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

from sprocket import ConsumeFrom, Consumer, Deduplicator, Message, Producer, ReceivedMessage


async def main(namesrv: str) -> None:
    for attempt in (1, 2):  # a program that died before it got the response, and its restart
        async with Producer("example", namesrv) as producer:
            result = await producer.send(Message("Invoices", b"invoice 4711", unique_key="invoice-4711"))
            print("attempt", attempt, "sent", result.message_id)
        if attempt == 1:
            first_id = result.message_id
    assert result.message_id == first_id

    deduplicator = Deduplicator()
    async with Consumer("accounts", ["Invoices"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:

        async def handle(message: ReceivedMessage) -> None:
            print("handled", message.body.decode())

        running = asyncio.create_task(consumer.run(deduplicator.once(handle)))
        while not deduplicator.duplicates:  # noqa: ASYNC110 - no event reports skipped duplicates
            await asyncio.sleep(0.05)
    await running
    print("left out", deduplicator.duplicates)


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
