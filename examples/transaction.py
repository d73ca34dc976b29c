"""Send messages that consumers see if, and only if, the application's own transaction succeeds.

``python examples/transaction.py [name server]``: without an address it starts its own broker.
"""

import asyncio

from cluster import name_server

from sprocket import ConsumeFrom, Consumer, Message, ReceivedMessage, TransactionProducer, TransactionState

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
    async with TransactionProducer("bookings", namesrv, checker=look_up) as producer:
        for body in (b"seat 12A", b"overbooked seat 12A", b"seat 12B"):
            result = await producer.send_in_transaction(Message("Bookings", body), book)
            print(body.decode(), "->", result.state.name)

    async with Consumer("bookings-readers", ["Bookings"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        for _ in range(2):
            message = await anext(consumer)
            await consumer.ack(message)
            print("received", message.body.decode())
        assert not await consumer.receive(wait_s=0.5)
    print("the rolled back message was never seen")


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
