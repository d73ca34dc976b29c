"""Functions against a real broker: outputs, state, windows, joins, dead letters, takeovers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import pytest

import sprocket
from sprocket import ClientSettings, ConsumeFrom
from sprocket.client.admin.redrive import Redrive
from sprocket.functions import Context, Function, Retries, Tumbling, function
from sprocket.functions.deployments import create_topics
from sprocket.functions.host import FunctionHost
from sprocket.testing import Broker
from tests.waiting import until

_numbers = count()
T = TypeVar("T")


@dataclass
class Order:
    customer: str
    amount: int
    at_ms: int = 0


@dataclass
class Total:
    customer: str
    amount: int
    start_ms: int = 0


@asynccontextmanager
async def hosts(broker: Broker, declared: Function, many: int = 1) -> AsyncIterator[list[FunctionHost]]:
    """Instances of a function."""
    failures: list[Exception] = []
    async with sprocket.connect(broker.namesrv) as mq:
        await create_topics(mq.admin, [declared])
    made = [FunctionHost(declared, ClientSettings(namesrv=broker.namesrv), failures.append) for _ in range(many)]
    try:
        for host in made:
            await host.start()
        yield made
    finally:
        for host in made:
            await host.close()
    assert not failures


async def results(mq: sprocket.Connection, topic: str, kind: type[T], many: int) -> list[T]:
    """The first `many` values of a topic."""
    found: list[T] = []
    async with (
        asyncio.timeout(60),
        mq.topic(topic, kind).consume(f"r{next(_numbers)}", consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        async for value in consumer:
            found.append(value)
            if len(found) == many:
                return found
    raise AssertionError


@pytest.fixture
async def mq(functions_broker: Broker) -> AsyncIterator[sprocket.Connection]:
    async with sprocket.connect(functions_broker.namesrv) as connection:
        yield connection


@pytest.fixture
def topics(functions_broker: Broker) -> tuple[str, str, str]:
    """Names of an input, an output and a group."""
    number = next(_numbers)
    for kind in ("In", "Out"):
        functions_broker.create_topic(f"{kind}{number}", 4)
    return f"In{number}", f"Out{number}", f"g{number}"


async def test_a_function_keeps_state_by_key_and_another_instance_takes_it_over(
    functions_broker: Broker, mq: sprocket.Connection, topics: tuple[str, str, str]
) -> None:
    source, target, group = topics

    @function(input=source, output=target, group=group, state=int)
    async def total(order: Order, ctx: Context[int]) -> Total:
        amount = (ctx.state.get(order.customer) or 0) + order.amount
        ctx.state.put(order.customer, amount)
        return Total(order.customer, amount)

    orders = mq.topic(source, Order)
    for number in range(20):
        await orders.send(Order(f"c{number % 5}", 1), sharding_key=f"c{number % 5}")
    async with hosts(functions_broker, total):
        await results(mq, target, Total, 20)
    for number in range(20):
        await orders.send(Order(f"c{number % 5}", 1), sharding_key=f"c{number % 5}")
    async with hosts(functions_broker, total, 2) as (first, second):
        totals = await results(mq, target, Total, 40)
        await until(lambda: first.partitions == second.partitions == 2)
    by_customer = [[one.amount for one in totals if one.customer == f"c{n}"] for n in range(5)]
    assert by_customer == [list(range(1, 9))] * 5
    lag = await mq.admin.consume_stats(group)
    assert (
        sum(one.broker_offset - one.consumer_offset for queue, one in lag.offset_table.items() if queue.topic == source)
        == 0
    )


async def test_windows_close_in_order_of_event_time_and_late_inputs_do_not_count(
    functions_broker: Broker, mq: sprocket.Connection, topics: tuple[str, str, str]
) -> None:
    source, target, group = topics

    @function(
        input=source, output=target, group=group, state=int, time=lambda order: order.at_ms,
        window=Tumbling(1000, grace_ms=500),
    )  # fmt: skip
    async def add(order: Order, ctx: Context[int]) -> None:
        ctx.state.put(order.customer, (ctx.state.get(order.customer) or 0) + order.amount)

    @add.on_expiry
    async def closed(key: str, amount: int, ctx: Context[int]) -> Total:
        assert ctx.window is not None and ctx.state.get(key) == amount
        return Total(key, amount, ctx.window.start_ms)

    orders = mq.topic(source, Order)
    sent = [("a", 1, 100), ("b", 2, 900), ("a", 3, 1400), ("a", 4, 999), ("b", 5, 1500), ("a", 6, 400), ("a", 7, 4000)]
    for customer, amount, at_ms in sent:
        await orders.send(Order(customer, amount, at_ms), sharding_key="one")
    async with hosts(functions_broker, add) as (host,):
        found = await results(mq, target, Total, 4)
        assert host.counts["late_inputs"] == 1
    assert sorted((one.start_ms, one.customer, one.amount) for one in found) == [
        (0, "a", 5), (0, "b", 2), (1000, "a", 3), (1000, "b", 5),
    ]  # fmt: skip


async def test_two_inputs_are_joined_by_key_and_what_has_no_partner_expires(
    functions_broker: Broker, mq: sprocket.Connection, topics: tuple[str, str, str]
) -> None:
    source, target, group = topics
    functions_broker.create_topic(f"{source}-paid", 4)

    @function(input={source: Order, f"{source}-paid": Order}, output=target, group=group, state=Order,
              time=lambda order: order.at_ms)  # fmt: skip
    async def join(order: Order, ctx: Context[Order]) -> Total | None:
        partner = ctx.state.get(order.customer)
        if partner is None:
            ctx.state.put(order.customer, order, expires_at_ms=ctx.time_ms + 1000)
            return None
        ctx.state.delete(order.customer)
        return Total(order.customer, order.amount + partner.amount)

    @join.on_expiry
    async def alone(key: str, order: Order, ctx: Context[Order]) -> Total:
        return Total(key, -order.amount)

    ordered, paid = mq.topic(source, Order), mq.topic(f"{source}-paid", Order)
    for number in range(8):
        await ordered.send(Order(f"c{number}", 10, 0), sharding_key=f"c{number}")
        if number != 3:
            await paid.send(Order(f"c{number}", number, 0), sharding_key=f"c{number}")
    async with hosts(functions_broker, join):
        joined = await results(mq, target, Total, 7)
        assert sorted(one.amount for one in joined) == [10, 11, 12, 14, 15, 16, 17]
        await paid.send(Order("later", 0, 5000), sharding_key="c3")
        assert Total("c3", -10) in await results(mq, target, Total, 8)


async def test_what_a_function_cannot_handle_becomes_a_dead_letter_and_the_next_input_follows(
    functions_broker: Broker, mq: sprocket.Connection, topics: tuple[str, str, str]
) -> None:
    source, target, group = topics

    @function(input=source, output=target, group=group, state=int, retries=Retries(times=2, pause_s=0.01))
    async def divide(order: Order, ctx: Context[int]) -> int:
        ctx.state.put("tries", (ctx.state.get("tries") or 0) + 1)
        ctx.send(target, 0)
        return 100 // order.amount

    orders = mq.topic(source, Order)
    await orders.send(Order("a", 0), sharding_key="one")
    await mq.producer().send(sprocket.Message(source, b"no order"), sharding_key="one")
    await orders.send(Order("a", 5), sharding_key="one")
    async with hosts(functions_broker, divide) as (host,):
        assert await results(mq, target, int, 2) == [0, 20]
        assert (host.counts["failures"], host.counts["dead_letters"]) == (3, 2)
        async with mq.consumer(f"dead{group}", f"%DLQ%{group}", consume_from=ConsumeFrom.FIRST) as dead:
            letters = [await anext(dead) for _ in range(2)]
    assert [one.body for one in letters] == [b'{"customer":"a","amount":0,"at_ms":0}', b"no order"]
    assert {one.properties["RETRY_TOPIC"] for one in letters} == {source}
    assert "ZeroDivisionError" in letters[0].properties["DEAD_LETTER_REASON"]
    assert "cannot be read" in letters[1].properties["DEAD_LETTER_REASON"]
    assert (await Redrive(mq.admin, group).run(dry_run=True)).targets == {source: 2}
