"""FastStream's router for FastAPI: routes and handlers of one application, through a real broker."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from sprocket import Connection as PlainConnection
from sprocket import ConsumeFrom, IllegalMessage
from sprocket.testing import Broker

pytest.importorskip("faststream", reason="faststream is not installed: pip install 'sprocket-mq[faststream]'")
pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'sprocket-mq[fastapi]'")
pytest.importorskip("httpx", reason="httpx is not installed: pip install httpx")

import httpx  # after the checks
from fastapi import BackgroundTasks, Depends, FastAPI, Header
from pydantic import BaseModel

from sprocket.contrib import faststream
from sprocket.contrib.faststream import TestSprocketBroker
from sprocket.contrib.faststream.fastapi import (
    Connection,
    SprocketBatchMessage,
    SprocketBroker,
    SprocketMessage,
    SprocketRouter,
)

FIRST = ConsumeFrom.FIRST
WAIT_S = 60


class Order(BaseModel):
    number: int


class Bill(BaseModel):
    order: int
    price: int
    note: str = ""


def price() -> int:
    return 10


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    levels = {"messageDelayLevel": " ".join(["1s"] * 18)}
    with Broker(tmp_path_factory.mktemp("fastapi"), properties=levels) as broker:
        yield broker


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Run the application's lifespan; yield a client of its routes."""
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            yield client


def application(router: SprocketRouter) -> FastAPI:
    app = FastAPI(title="Shop")
    app.include_router(router)
    return app


async def test_a_route_publishes_and_a_handler_gets_models_dependencies_and_tasks(servers: Broker) -> None:
    for topic in ("WebOrders", "WebBills"):
        servers.create_topic(topic, 1)
    router = SprocketRouter(servers.namesrv, prefix="/shop")
    notes, bills = asyncio.Queue[str](), asyncio.Queue[Any]()

    @router.subscriber("WebOrders", group="billing", consume_from=FIRST, response_model=Bill)
    @router.publisher("WebBills", tags="bill")
    async def bill(
        order: Order,
        price: Annotated[int, Depends(price)],
        customer: Annotated[str, Header()],
        message: SprocketMessage,
        tasks: BackgroundTasks,
    ) -> dict[str, Any]:
        tasks.add_task(notes.put, f"{customer} {message.raw_message.tags}")
        return {"order": order.number, "price": price, "hidden": True}

    @router.subscriber("WebBills", group="archive", expression="bill", consume_from=FIRST)
    async def archive(bill: Bill, message: SprocketMessage, broker: SprocketBroker, mq: Connection) -> None:
        assert broker is router.broker
        assert isinstance(mq, PlainConnection)
        bills.put_nowait((bill, await message.decode()))

    @router.post("/orders")
    async def order(order: Order) -> dict[str, Any]:
        sent = await router.broker.publish(order, "WebOrders", tags="new", headers={"customer": "anna"})
        return {"offset": sent.queue_offset}

    async with served(application(router)) as client:
        answer = await client.post("/shop/orders", json={"number": 7})
        assert (answer.status_code, answer.json()) == (200, {"offset": 0})
        assert (await client.post("/shop/orders", json={"number": "x"})).status_code == 422
        assert await asyncio.wait_for(notes.get(), WAIT_S) == "anna new"
        got, stored = await asyncio.wait_for(bills.get(), WAIT_S)
    assert got == Bill(order=7, price=10)
    # The response model dropped what it does not name, and added its default.
    assert stored == {"order": 7, "price": 10, "note": ""}
    # The lifespan has stopped the broker.
    assert not await router.broker.ping(1)


async def test_dependencies_can_be_overridden_and_invalid_bodies_are_redelivered(servers: Broker) -> None:
    servers.create_topic("Overridden", 1)
    router = SprocketRouter(servers.namesrv)
    tries = asyncio.Queue[tuple[int, int]]()

    async def count(message: SprocketMessage) -> None:
        tries.put_nowait((message.raw_message.reconsume_times, -1))

    @router.subscriber("Overridden", group="overridden", consume_from=FIRST, dependencies=[Depends(count)])
    async def handle(order: Order, price: Annotated[int, Depends(price)]) -> None:
        tries.put_nowait((order.number, price))

    app = application(router)
    app.dependency_overrides[price] = lambda: 99
    async with served(app):
        await router.broker.publish({"number": 4}, "Overridden")
        assert [await asyncio.wait_for(tries.get(), WAIT_S) for _ in range(2)] == [(0, -1), (4, 99)]
        await router.broker.publish({"number": "many"}, "Overridden")
        assert [await asyncio.wait_for(tries.get(), WAIT_S) for _ in range(2)] == [(0, -1), (1, -1)]


async def test_a_batch_handler_gets_a_list_of_models_and_publishes_a_batch(servers: Broker) -> None:
    for topic in ("WebRows", "WebLoaded"):
        servers.create_topic(topic, 1)
    router = SprocketRouter(servers.namesrv)
    loaded = asyncio.Queue[list[int]]()

    @router.subscriber("WebRows", group="loading", consume_from=FIRST, batch=True, max_records=10)
    @router.publisher("WebLoaded", batch=True)
    async def load(rows: list[Order], message: SprocketBatchMessage) -> list[int]:
        return [row.number for row, _ in zip(rows, message.raw_message, strict=True)]

    @router.subscriber("WebLoaded", group="loaded", consume_from=FIRST, batch=True)
    async def note(numbers: list[int]) -> None:
        loaded.put_nowait(numbers)

    # Stored before the group joins, so that the handler gets one list.
    async with faststream.SprocketBroker(servers.namesrv) as broker:
        await broker.publish_batch(*(Order(number=number) for number in range(3)), topic="WebRows")
    async with served(application(router)):
        assert await asyncio.wait_for(loaded.get(), WAIT_S) == [0, 1, 2]


async def test_a_request_is_answered_by_a_handler(servers: Broker) -> None:
    servers.create_topic("Asked", 1)
    router = SprocketRouter(servers.namesrv)

    @router.subscriber("Asked", group="answering", consume_from=FIRST)
    async def answer(order: Order) -> Bill:
        return Bill(order=order.number, price=1)

    async with served(application(router)):
        reply = await router.broker.request(Order(number=5), "Asked", timeout=WAIT_S)
        assert await reply.decode() == {"order": 5, "price": 1, "note": ""}


async def test_a_router_of_the_broker_is_included_with_the_prefix_of_its_topics() -> None:
    router, inner = SprocketRouter("127.0.0.1:1"), faststream.SprocketRouter("shop-")
    got = []

    @inner.subscriber("Orders", group="billing")
    async def bill(order: Order, price: Annotated[int, Depends(price)]) -> None:
        got.append((order.number, price))

    router.include_router(inner)
    async with TestSprocketBroker(router.broker) as memory:
        await memory.publish({"number": 3}, "shop-Orders")
    assert got == [(3, 10)]


async def test_the_page_of_asyncapi_describes_the_topics_and_tries_handlers_in_memory() -> None:
    router = SprocketRouter("127.0.0.1:1", specification_tags=[{"name": "shop"}])

    @router.subscriber("Orders", group="billing")
    async def bill(order: Order) -> Bill:
        return Bill(order=order.number, price=2)

    app = application(router)
    assert router.docs_router is not None
    app.include_router(router.docs_router)
    # The lifespan does not run: the page needs no server.
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://shop") as client:
        described = (await client.get("/asyncapi.json")).json()
        form = {"channelName": "Orders:Bill", "message": {"message": {"number": 8}}}
        tried = await client.post("/asyncapi/try", json=form)
    [channel] = described["channels"].values()
    assert channel["address"] == "Orders"
    assert described["servers"]["development"]["protocol"] == "rocketmq"
    assert described["servers"]["development"]["tags"] == [{"name": "shop"}]
    assert tried.json() == {"order": 8, "price": 2, "note": ""}


def test_wrong_arguments_are_refused_at_once() -> None:
    router = SprocketRouter("127.0.0.1:1")
    with pytest.raises(IllegalMessage):
        router.subscriber("two words", group="billing")
    with pytest.raises(IllegalMessage):
        router.publisher("two words")
