"""What goes wrong in the first hour with a client says so at once, at the call that is wrong."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import sprocket
from sprocket import (
    AdminClient,
    ClientClosed,
    ClientError,
    ConsumeFrom,
    Consumer,
    IllegalArgument,
    IllegalMessage,
    Message,
    OrderlyConsumer,
    Producer,
    SimpleConsumer,
    TraceSettings,
    sync,
)
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.testing import Broker
from tests.waiting import until

FIRST = ConsumeFrom.FIRST


async def traced(broker: Broker, key: str, topic: str) -> bool:
    """Return whether there is a trace of a message with `key`."""
    async with AdminClient(broker.namesrv) as admin:
        try:
            return bool(await MessageLookup(admin).by_key(topic, key))
        except ClientError:
            return False


async def test_producer_with_a_trace_needs_no_async_with(shared_broker: Broker, topic: str) -> None:
    own = TraceSettings(topic=f"{topic}-traces")
    async with sprocket.connect(shared_broker.namesrv) as mq:
        producer = mq.producer("shop", trace=own)
        assert mq.producer("shop", trace=own) is producer
        assert mq.producer("shop") is not producer
        await producer.send(Message(topic, b"x", keys="traced"))
        await mq.producer("shop").send(Message(topic, b"x", keys="untraced"))
    async with asyncio.timeout(60):
        while not await traced(shared_broker, "traced", own.topic):
            await asyncio.sleep(0.05)
    assert not await traced(shared_broker, "untraced", own.topic)


async def test_trace_of_a_connection_holds_for_its_parts(shared_broker: Broker, topic: str) -> None:
    own = TraceSettings(topic=f"{topic}-traces")
    async with sprocket.connect(shared_broker.namesrv, trace=own) as mq:
        words = mq.topic(topic, str)
        await words.send("hello", key="typed")
        async with words.consume(f"g-{topic}", consume_from=FIRST) as consumer:
            assert await anext(consumer) == "hello"
    async with asyncio.timeout(60):
        while not await traced(shared_broker, "typed", own.topic):
            await asyncio.sleep(0.05)


def test_blocking_forms_take_a_trace(shared_broker: Broker, topic: str) -> None:
    own = TraceSettings(topic=f"{topic}-traces")
    with sync.connect(shared_broker.namesrv, trace=own) as mq:
        mq.topic(topic, str, settings=sprocket.SendSettings(), trace=own).send("hello", key="blocking")
        mq.producer(trace=own).send(Message(topic, b"x"))

    async def seen() -> None:
        while not await traced(shared_broker, "blocking", own.topic):
            await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(seen(), 60))


# Another event loop


@pytest.mark.parametrize(
    "use",
    [
        lambda mq, topic: mq.producer().send(Message(topic, b"x")),
        lambda mq, topic: anext(mq.producer().send_many([Message(topic, b"x")])),
        lambda mq, topic: mq.kept.receive(),
        lambda mq, topic: mq.kept.run(print),
        lambda mq, topic: mq.popping.receive(),
        lambda mq, topic: mq.admin.topic_list(),
        lambda mq, topic: mq.consumer("new", topic).receive(),
        lambda mq, topic: mq.close(),
    ],
)
def test_client_in_a_second_event_loop_is_refused(
    shared_broker: Broker, topic: str, use: Callable[[Any, str], Awaitable[object]]
) -> None:
    mq: Any = sprocket.connect(shared_broker.namesrv)

    async def first() -> None:
        await mq.start()
        for _ in range(9):
            await mq.producer().send(Message(topic, b"x"))
        mq.kept = mq.consumer(f"g-{topic}", topic)
        mq.popping = mq.simple_consumer(f"p-{topic}", topic)
        await mq.kept.receive(wait_s=0.01)
        await mq.popping.receive(wait_s=0)
        await mq.admin.topic_list()

    async def second() -> None:
        with pytest.raises(ClientError, match="another event loop"):
            await use(mq, topic)

    loop = asyncio.new_event_loop()  # it stays open, so its tasks do not end
    try:
        loop.run_until_complete(first())
        asyncio.run(second())
    finally:
        loop.run_until_complete(mq.close())
        loop.close()


# Tasks that somebody else cancelled


@pytest.mark.parametrize("kind", [Consumer, OrderlyConsumer, SimpleConsumer])
async def test_consumer_whose_tasks_were_cancelled_says_so(
    shared_broker: Broker, topic: str, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    async with kind(f"g-{topic}", topic, shared_broker.namesrv) as consumer:
        mine = asyncio.all_tasks() - before
        running = asyncio.create_task(consumer.run(print))
        await asyncio.sleep(0.1)
        with caplog.at_level(logging.ERROR):
            for task in mine:
                task.cancel()
            with pytest.raises(ClientClosed, match=r"cancelled by the program or its framework.*make a new one"):
                await running
        with pytest.raises(ClientClosed, match="cancelled"):
            await consumer.run(print)
        if kind is not OrderlyConsumer:
            with pytest.raises(ClientClosed, match="cancelled"):
                await consumer.receive(1, wait_s=30)
    assert caplog.text.count("event=client_lost") == 1


async def test_client_that_closes_is_not_lost(
    shared_broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Consumer(f"g-{topic}", topic, shared_broker.namesrv) as consumer:
        await until(lambda: bool(consumer.assignment))
    assert "client_lost" not in caplog.text


# Two readers of one consumer


@pytest.mark.parametrize("kind", [Consumer, SimpleConsumer])
async def test_run_and_iteration_do_not_compete(shared_broker: Broker, topic: str, kind: Any) -> None:
    async with kind(f"g-{topic}", topic, shared_broker.namesrv) as consumer:
        running = asyncio.create_task(consumer.run(print))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ClientError, match="`run` hands out the messages"):
            await anext(aiter(consumer))
        consumer.stop()
        await running
    async with kind(f"g-{topic}", topic, shared_broker.namesrv) as consumer:
        reading = asyncio.create_task(anext(aiter(consumer)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ClientError, match="either it or `run`"):
            await consumer.run(print)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


# Refusals that say what to do


async def test_refused_sql_filter_names_the_key_of_the_broker(shared_broker: Broker, topic: str) -> None:
    wanted = {topic: sprocket.SqlFilter("a > 1")}
    for kind in (Consumer, SimpleConsumer):
        consumer: Any = kind(f"g-{topic}", wanted, shared_broker.namesrv)
        with pytest.raises(sprocket.BrokerRefused, match="set enablePropertyFilter = true on the broker"):
            await consumer.start()


# Wrong arguments


def none() -> None: ...
def two(first: object, second: object) -> None: ...


@pytest.fixture
async def mq() -> AsyncIterator[sprocket.Connection]:
    async with sprocket.connect("127.0.0.1:1") as connection:
        yield connection


@pytest.mark.parametrize("wrong", [none, two])
async def test_handler_with_wrong_parameters_is_refused_by_run(mq: sprocket.Connection, wrong: Any) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: mq.consumer("g", "T").run(wrong),
        lambda: mq.consumer("g", "T").run_batches(wrong),
        lambda: mq.consumer("g", "T").run(print, by_key=wrong),
        lambda: mq.orderly_consumer("g", "T").run(wrong),
        lambda: mq.simple_consumer("g", "T").run(wrong),
        lambda: mq.topic("T", str).consume("g").run(wrong),
    ]
    for call in calls:
        with pytest.raises(IllegalArgument, match=r"has the parameters \(.*\).*; pass a function that takes a"):
            await call()
    with pytest.raises(IllegalArgument, match="checker has the parameters"):
        mq.transaction_producer("g", checker=wrong)
    with pytest.raises(IllegalArgument, match="has the parameters"):
        sync.Consumer("g", "T", "127.0.0.1:1").run(wrong)
    with pytest.raises(IllegalArgument, match="has the parameters"):
        sync.SimpleConsumer("g", "T", "127.0.0.1:1").run(wrong)


class Handlers:
    def method(self, message: object) -> None: ...

    def __call__(self, message: object, optional: int = 0) -> None: ...


@pytest.mark.parametrize("right", [print, Handlers().method, Handlers(), lambda *messages: None, [].append])
async def test_whatever_takes_a_message_is_a_handler(mq: sprocket.Connection, right: Any) -> None:
    consumer = mq.consumer("g", "T")
    consumer.stop()
    await consumer.run(right)


async def test_topic_and_body_in_place_of_a_message(mq: sprocket.Connection) -> None:
    wrong: Any = mq.producer()
    for send in (wrong.send, Producer("g", "127.0.0.1:1").send):
        with pytest.raises(IllegalMessage, match=r"of type str; pass a Message, such as Message\('T', b'body'\)"):
            await send("T", b"x")  # type: ignore[misc,arg-type]
    with sync.Producer("g", "127.0.0.1:1") as producer:
        blocking: Any = producer
        with pytest.raises(IllegalMessage, match=r"Message\('T', b'body'\)"):
            await asyncio.to_thread(blocking.send, "T", b"x")
