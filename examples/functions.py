"""A function in the application's own process: it keeps a total by customer, survives a restart, and sends invoices.

On machines of their own, functions run with `sprocket function deploy` and `sprocket function run`: docs/functions.md.
"""

import asyncio
import logging
import sys
from dataclasses import dataclass

import sprocket
from sprocket import ClientSettings, ConsumeFrom
from sprocket.functions import Context, FunctionHost, Retries, create_topics, function
from sprocket.remoting.bodies.topic import TopicConfig


@dataclass
class Order:
    customer: str
    amount: int


@dataclass
class Invoice:
    customer: str
    total: int


@function(input="FnOrders", output="FnInvoices", group="fn-billing", state=int, retries=Retries(times=1, pause_s=0.1))
async def bill(order: Order, ctx: Context[int]) -> Invoice:
    if order.amount < 0:
        raise ValueError("no negative amounts")
    total = (ctx.state.get(order.customer) or 0) + order.amount
    ctx.state.put(order.customer, total)
    return Invoice(order.customer, total)


async def main(namesrv: str) -> None:
    async with sprocket.connect(namesrv) as mq:
        for broker in await mq.admin.masters(None):
            for topic in ("FnOrders", "FnInvoices"):
                await mq.admin.create_topic(broker, TopicConfig(topic, 4, 4))
        await create_topics(mq.admin, [bill])
        orders = mq.topic("FnOrders", Order)
        invoices = mq.topic("FnInvoices", Invoice).consume("fn-reader", consume_from=ConsumeFrom.FIRST)
        async with invoices:
            for amounts in ([10, 20], [-1, 5]):
                for amount in amounts:
                    await orders.send(Order("ada", amount), sharding_key="ada")
                host = FunctionHost(bill, ClientSettings(namesrv=namesrv), failed=print)
                await host.start()
                for _ in [amount for amount in amounts if amount > 0]:
                    invoice = await anext(invoices)
                    print(f"{invoice.customer} owes {invoice.total}")
                await host.close()
                print(f"dead letters: {host.counts['dead_letters']}")


logging.getLogger("sprocket.functions").setLevel(logging.CRITICAL)  # the failure of an order is expected here
asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
