"""Handlers of FastStream through a real broker, and through its broker in memory."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from sprocket import ConsumeFrom, IllegalArgument, IllegalMessage, connect
from sprocket.testing import Broker

pytest.importorskip("faststream", reason="faststream is not installed: pip install 'sprocket-mq[faststream]'")

from faststream import AckPolicy, FastStream  # after the check
from faststream.exceptions import (
    IncorrectState,
    NackMessage,
    RejectMessage,
    StopConsume,
    SubscriberNotFound,
)
from faststream.specification.asyncapi import AsyncAPI
from pydantic import BaseModel

from sprocket.contrib.faststream import (
    SprocketBroker,
    SprocketMessage,
    SprocketResponse,
    SprocketRouter,
    TestSprocketBroker,
)

FIRST = ConsumeFrom.FIRST
WAIT_S = 60


class Order(BaseModel):
    number: int


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    # The first redelivery comes after 1 s; by default, after 10 s.
    with Broker(
        tmp_path_factory.mktemp("faststream"), properties={"messageDelayLevel": " ".join(["1s"] * 18)}
    ) as broker:
        yield broker


async def test_a_handler_gets_what_was_published_and_its_result_is_published(servers: Broker) -> None:
    for topic in ("Orders", "Invoices"):
        servers.create_topic(topic, 1)
    broker = SprocketBroker(servers.namesrv)
    results: asyncio.Queue[tuple[int, str, str, list[str], dict[str, str]]] = asyncio.Queue()

    @broker.subscriber("Orders", group="billing", consume_from=FIRST)
    @broker.publisher("Invoices", tags="invoice", headers={"from": "billing"})
    async def bill(order: Order) -> SprocketResponse:
        return SprocketResponse(Order(number=order.number * 2), keys=[f"o{order.number}"])

    @broker.subscriber("Invoices", group="archive", expression="invoice", consume_from=FIRST)
    async def archive(order: Order, message: SprocketMessage) -> None:
        raw = message.raw_message
        results.put_nowait((order.number, raw.tags, message.correlation_id, raw.keys, message.headers))

    await broker.start()
    try:
        sent = await broker.publish(Order(number=21), "Orders", tags="new", correlation_id="abc")
        assert sent.queue.topic == "Orders"
        number, tags, correlation_id, keys, headers = await asyncio.wait_for(results.get(), WAIT_S)
        assert (number, tags, correlation_id, keys) == (42, "invoice", "abc", ["o21"])
        assert headers["from"] == "billing"
        assert await broker.ping(WAIT_S)
    finally:
        await broker.stop()
    assert not await broker.ping()
    with pytest.raises(IncorrectState, match="the broker is not connected; start it"):
        await broker.publish(Order(number=1), "Orders")


async def test_a_restarted_broker_gets_no_acknowledged_message_again(servers: Broker) -> None:
    servers.create_topic("Restart", 1)
    broker = SprocketBroker(servers.namesrv)
    seen: asyncio.Queue[str] = asyncio.Queue()

    @broker.subscriber("Restart", group="restart", consume_from=FIRST)
    async def note(text: str) -> None:
        seen.put_nowait(text)

    for text in ("one", "two"):
        await broker.start()
        await broker.publish(text, "Restart")
        assert await asyncio.wait_for(seen.get(), WAIT_S) == text
        await broker.stop()
    assert seen.empty()


async def test_an_error_redelivers_and_a_rejection_goes_to_the_dead_letters(servers: Broker) -> None:
    servers.create_topic("Faulty", 1)
    broker = SprocketBroker(servers.namesrv)
    tries: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    @broker.subscriber("Faulty", group="faulty", consume_from=FIRST)
    async def fail(text: str, message: SprocketMessage) -> None:
        tries.put_nowait((text, message.raw_message.reconsume_times))
        if text == "hopeless":
            raise RejectMessage(reason="no such order")
        if message.raw_message.reconsume_times == 0:
            raise NackMessage(delay=1)
        if message.raw_message.reconsume_times == 1:
            await message.nack(delay=1)

    async with connect(servers.namesrv) as mq:
        await broker.start()
        try:
            await broker.publish("later", "Faulty")
            assert [await asyncio.wait_for(tries.get(), WAIT_S) for _ in range(3)] == [("later", n) for n in range(3)]
            await broker.publish("hopeless", "Faulty")
            assert await asyncio.wait_for(tries.get(), WAIT_S) == ("hopeless", 0)
            dead = mq.consumer("undertaker", "%DLQ%faulty", consume_from=FIRST)
            [letter] = await dead.receive(wait_s=WAIT_S)
            assert (letter.body, letter.properties["DEAD_LETTER_REASON"]) == (b"hopeless", "no such order")
        finally:
            await broker.stop()


@pytest.mark.parametrize(
    ("policy", "redelivered"),
    [(None, True), (AckPolicy.NACK_ON_ERROR, True), (AckPolicy.ACK, False), (AckPolicy.ACK_FIRST, False)],
)
async def test_the_policy_decides_what_an_error_does(
    servers: Broker, policy: AckPolicy | None, redelivered: bool
) -> None:
    topic = f"Policy-{policy.name if policy else 'default'}"
    servers.create_topic(topic, 1)
    broker = SprocketBroker(servers.namesrv, logger=None)
    tries: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    chosen: dict[str, Any] = {} if policy is None else {"ack_policy": policy}

    @broker.subscriber(topic, group=topic, consume_from=FIRST, **chosen)
    async def fail(text: str, message: SprocketMessage) -> None:
        tries.put_nowait((text, message.raw_message.reconsume_times))
        if text == "bad" and message.raw_message.reconsume_times == 0:
            raise ValueError("bad")

    await broker.start()
    try:
        await broker.publish("bad", topic)
        assert await asyncio.wait_for(tries.get(), WAIT_S) == ("bad", 0)
        if redelivered:
            assert await asyncio.wait_for(tries.get(), WAIT_S) == ("bad", 1)
        else:
            await broker.publish("good", topic, delay=3)  # a redelivery would come before
            assert await asyncio.wait_for(tries.get(), WAIT_S) == ("good", 0)
    finally:
        await broker.stop()


async def test_a_request_gets_the_result_of_its_handler(servers: Broker) -> None:
    for topic in ("Ask", "Answers"):
        servers.create_topic(topic, 1)
    broker = SprocketBroker(servers.namesrv)
    answers: asyncio.Queue[dict[str, int]] = asyncio.Queue()

    @broker.subscriber("Ask", group="answering", consume_from=FIRST)
    async def double(number: int) -> dict[str, int]:
        return {"double": number * 2}

    @broker.subscriber("Answers", group="answers", consume_from=FIRST)
    async def note(answer: dict[str, int]) -> None:
        answers.put_nowait(answer)

    await broker.start()
    try:
        reply = await broker.request(21, "Ask", timeout=WAIT_S, correlation_id="q-1")
        assert await reply.decode() == {"double": 42}
        assert (reply.correlation_id, reply.content_type) == ("q-1", "application/json")
        await reply.ack()  # of a reply: nothing to do
        # The result also goes to a topic, if the message names one.
        await broker.publish(4, "Ask", reply_to="Answers")
        assert await asyncio.wait_for(answers.get(), WAIT_S) == {"double": 8}
    finally:
        await broker.stop()


async def test_workers_handle_side_by_side_and_a_stop_waits_for_them(servers: Broker) -> None:
    servers.create_topic("Wide", 1)
    broker = SprocketBroker(servers.namesrv)
    together = asyncio.Barrier(3)
    started, finished = asyncio.Queue[int](), list[int]()

    @broker.subscriber("Wide", group="wide", consume_from=FIRST, max_workers=3)
    async def handle(number: int) -> None:
        await together.wait()
        started.put_nowait(number)
        await asyncio.sleep(0.3)
        finished.append(number)

    await broker.start()
    for number in range(3):
        await broker.publish(number, "Wide")
    for _ in range(3):
        await asyncio.wait_for(started.get(), WAIT_S)
    await broker.stop()
    assert sorted(finished) == [0, 1, 2]


async def test_stop_consume_ends_a_subscriber_and_keeps_the_message_acknowledged_only_if_handled(
    servers: Broker,
) -> None:
    servers.create_topic("Enough", 1)
    broker = SprocketBroker(servers.namesrv, logger=None)
    seen: asyncio.Queue[int] = asyncio.Queue()

    subscriber = broker.subscriber("Enough", group="enough", consume_from=FIRST, ack_policy=AckPolicy.ACK)

    @subscriber
    async def take_one(number: int) -> None:
        seen.put_nowait(number)
        raise StopConsume

    await broker.start()
    await broker.publish(1, "Enough")
    assert await asyncio.wait_for(seen.get(), WAIT_S) == 1
    while subscriber.running:
        await asyncio.sleep(0.01)
    await broker.stop()
    # The first message was acknowledged, so a new member gets the second one.
    again = SprocketBroker(servers.namesrv)
    reader = again.subscriber("Enough", group="enough", consume_from=FIRST)
    async with again:
        await again.publish(2, "Enough")
        await reader.start()
        message = await reader.get_one(timeout=WAIT_S)
        assert message is not None
        assert await message.decode() == 2
        await message.ack()


async def test_a_subscriber_without_handlers_is_read_by_iteration(servers: Broker) -> None:
    servers.create_topic("Loop", 1)
    broker = SprocketBroker(servers.namesrv)
    reader = broker.subscriber("Loop", group="loop", consume_from=FIRST)
    async with broker:
        for number in range(3):
            await broker.publish(number, "Loop")
        got = []
        async for message in reader:
            got.append(await message.decode())
            await message.ack()
            if len(got) == 3:
                break
        assert got == [0, 1, 2]
        assert await reader.get_one(timeout=0.05) is None
        await reader.stop()


async def test_the_broker_runs_in_an_application(servers: Broker) -> None:
    servers.create_topic("App", 1)
    router = SprocketRouter("Ap")
    broker = SprocketBroker(servers.namesrv, routers=[router])
    app = FastStream(broker)
    seen: asyncio.Queue[int] = asyncio.Queue()

    @router.subscriber("p", group="app", consume_from=FIRST)
    async def handle(number: int) -> None:
        seen.put_nowait(number)

    @app.after_startup
    async def send() -> None:
        await broker.publish(5, "App")

    running = asyncio.create_task(app.run())
    assert await asyncio.wait_for(seen.get(), WAIT_S) == 5
    app.exit()
    with suppress(SystemExit):
        await asyncio.wait_for(running, WAIT_S)


async def test_the_broker_in_memory_delivers_to_one_member_of_each_group() -> None:
    broker = SprocketBroker("127.0.0.1:1")
    asked = broker.publisher("Nowhere")

    @broker.subscriber("Orders", group="billing", expression="new || changed")
    @broker.publisher("Invoices")
    async def bill(order: Order) -> Order:
        return Order(number=order.number + 1)

    shared: list[int] = []
    for _ in range(2):

        @broker.subscriber("Orders", group="counting")
        async def count(order: Order) -> None:
            shared.append(order.number)

    @broker.subscriber("Invoices", group="archive")
    async def archive(order: Order) -> None: ...

    async with TestSprocketBroker(broker) as memory:
        sent = await memory.publish(Order(number=1), "Orders", tags="new")
        assert sent.queue.topic == "Orders"
        bill.mock.assert_called_once_with({"number": 1})
        archive.mock.assert_called_once_with({"number": 2})
        assert shared == [1]
        await asked.publish("text")
        asked.mock.assert_called_once_with("text")


async def test_the_broker_in_memory_answers_requests() -> None:
    broker = SprocketBroker("127.0.0.1:1")

    @broker.subscriber("Ask", group="answering", expression="new || changed")
    async def add(order: Order) -> Order:
        return Order(number=order.number + 1)

    async with TestSprocketBroker(broker) as memory:
        reply = await memory.request(Order(number=5), "Ask", tags="changed")
        assert await reply.decode() == {"number": 6}
        with pytest.raises(SubscriberNotFound):
            await memory.request(Order(number=5), "Ask", tags="old")


async def test_the_broker_in_memory_raises_what_a_handler_raises() -> None:
    broker = SprocketBroker("127.0.0.1:1")

    @broker.subscriber("Orders", group="billing", expression="new")
    async def bill(number: int) -> None:
        raise LookupError("no such order")

    async with TestSprocketBroker(broker) as memory:
        with pytest.raises(LookupError, match="no such order"):
            await memory.publish(1, "Orders", tags="new")
        await memory.publish(1, "Orders", tags="old")  # another tag: nobody gets it


def test_arguments_are_checked_where_they_are_given() -> None:
    broker = SprocketBroker("127.0.0.1:1")
    with pytest.raises(IllegalMessage, match="write '\\*' or 'A \\|\\| B'"):
        broker.subscriber("Orders", group="billing", expression="||")
    with pytest.raises(IllegalArgument, match="max_workers"):
        broker.subscriber("Orders", group="billing", max_workers=0)
    with pytest.raises(TypeError, match="group"):
        broker.subscriber("Orders")  # type: ignore[call-overload]
    with pytest.raises(IllegalArgument, match="max_records"):
        broker.subscriber("Orders", group="billing", batch=True, max_records=0)
    with pytest.raises(IllegalArgument, match="no sharding_key and no delay"):
        broker.publisher("Orders", batch=True, delay=5)
    assert broker.publishers == []
    assert broker.subscribers == []


def test_asyncapi_describes_topics() -> None:
    broker = SprocketBroker("127.0.0.1:1")

    @broker.subscriber("Orders", group="billing", title="New orders")
    @broker.publisher("Invoices")
    async def bill(order: Order) -> Order:
        return order

    document = AsyncAPI(broker).to_specification().to_jsonable()
    assert {channel["address"] for channel in document["channels"].values()} == {"Orders", "Invoices"}
    assert document["servers"]["development"]["protocol"] == "rocketmq"
