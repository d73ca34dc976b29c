"""Send messages that consumers see if, and only if, the application's own transaction succeeds.

``python examples/transaction.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Message, ReceivedMessage, TransactionState

booked: set[str] = set()  # what a database would hold


async def book(message: Message, transaction_id: str) -> TransactionState:
    """Run the application's own transaction."""
    if message.body.startswith(b"overbooked"):
        return TransactionState.ROLLBACK
    booked.add(transaction_id)
    return TransactionState.COMMIT


async def look_up(message: ReceivedMessage) -> TransactionState:
    """Tell the broker the outcome of a transaction if it did not receive one."""
    return TransactionState.COMMIT if message.message_id in booked else TransactionState.ROLLBACK


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        async with mq.transaction_producer("bookings", checker=look_up) as producer:
            for body in (b"seat 12A", b"overbooked seat 12A", b"seat 12B"):
                result = await producer.send_in_transaction(Message("Bookings", body), book)
                print(body.decode(), "->", result.state.name)

        consumer = mq.consumer("bookings-readers", "Bookings", consume_from=ConsumeFrom.FIRST)
        for _ in range(2):
            async with (await anext(consumer)).process() as message:
                print("received", message.body.decode())
        assert not await consumer.receive(wait_s=0.5)
    print("the rolled back message was never seen")


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
