"""Receive only messages with certain properties; the broker filters them.

``python examples/sql_filter.py [name server]``: without an address it starts its own broker.  A broker of yours
needs enablePropertyFilter=true.
"""

import asyncio

from cluster import name_server

import sprocket
from sprocket import BrokerRefused, ConsumeFrom, Message, SqlFilter


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        for amount, region in ((50, "eu"), (150, "eu"), (500, "us"), (900, "asia")):
            properties = {"amount": str(amount), "region": region}
            await mq.producer().send(Message("Payments", f"{amount} {region}".encode(), properties=properties))

        wanted = SqlFilter("amount > 100 AND region IN ('eu', 'us')")
        consumer = mq.consumer("large", {"Payments": wanted}, consume_from=ConsumeFrom.FIRST)
        for _ in range(2):
            async with (await anext(consumer)).process() as message:
                print("received", message.body.decode())
        assert not await consumer.receive(wait_s=0.5)
        print("the others stayed on the broker")
        try:
            await consumer.subscribe("Payments", SqlFilter("amount >"))
        except BrokerRefused as error:
            print("refused:", error)


if __name__ == "__main__":
    with name_server(enablePropertyFilter="true") as address:
        asyncio.run(main(address))
