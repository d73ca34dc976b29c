"""A table: the last value of each key of a compacted topic, in memory and always current.

``python examples/table.py [name server]``: without an address it starts its own broker.
"""

import asyncio
from dataclasses import dataclass

from cluster import name_server

import sprocket


@dataclass
class Price:
    amount: int
    currency: str = "USD"


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        await mq.admin.create_table_topic("Prices")
        async with mq.table("Prices", Price) as prices:
            await prices.put("JFK-LAX", Price(420))
            await prices.put("JFK-SFO", Price(510))
            result = await prices.put("JFK-LAX", Price(399))
            await prices.at_least(result)  # the table may be a moment behind
            print("now", prices["JFK-LAX"].amount)

        # Another program, or this one after a restart, has the same.
        async with mq.table("Prices", Price) as prices:
            print("again", {key: price.amount for key, price in sorted(prices.items())})
            changes = prices.watch()
            await prices.delete("JFK-SFO")
            async for key, price in changes:
                print("changed", key, price)
                break


if __name__ == "__main__":
    with name_server() as address:
        asyncio.run(main(address))
