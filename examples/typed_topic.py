"""Send and receive values of one type; a message that is none becomes a dead letter.

``python examples/typed_topic.py [name server]``: without an address it starts its own broker.
"""

import asyncio
from dataclasses import dataclass

from cluster import name_server

import sprocket
from sprocket import ConsumeFrom, Message


@dataclass
class Booking:
    seat: str
    price: float


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        bookings = mq.topic("TypedBookings", Booking)
        # One sharding key: both wait in one queue, in this order.
        await mq.producer().send(Message("TypedBookings", b"no booking"), sharding_key="12A")
        await bookings.send(Booking("12A", 129.5), key="booking-1", sharding_key="12A")

        async with bookings.consume("billing", consume_from=ConsumeFrom.FIRST) as consumer:
            booking = await anext(consumer)
            print("billed", booking.seat, booking.price)

        dead = await anext(mq.consumer("support", "%DLQ%billing", consume_from=ConsumeFrom.FIRST))
        print("dead letter:", dead.body.decode(), "because of", dead.properties["DEAD_LETTER_REASON"])
        await dead.ack()


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
