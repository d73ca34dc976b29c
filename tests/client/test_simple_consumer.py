"""The popping consumer against a real broker."""

import asyncio
from collections import Counter

import pytest

from sprocket import (
    BrokerRefused,
    ClientClosed,
    ConsumeFrom,
    IllegalArgument,
    IllegalMessage,
    Message,
    PoppedMessage,
    PopSettings,
    Producer,
    ReconsumeLater,
    SimpleConsumer,
    SqlFilter,
    sync,
)
from sprocket.testing import Broker
from tests.client.fake_cluster import client_tasks
from tests.waiting import until


async def send(broker: Broker, topic: str, count: int, first: int = 0, **fields: str) -> None:
    async with Producer("g", broker.namesrv) as producer:
        for number in range(first, first + count):
            await producer.send(Message(topic, b"%d" % number, **fields))  # type: ignore[arg-type]


def popping(broker: Broker, topic: str, **options: object) -> SimpleConsumer:
    options.setdefault("consume_from", ConsumeFrom.FIRST)
    topics = options.pop("topics", [topic])
    return SimpleConsumer(f"g-{topic}", topics, broker.namesrv, **options)  # type: ignore[arg-type]


async def take(consumer: SimpleConsumer, count: int, invisible_s: float = 60.0) -> list[PoppedMessage]:
    taken: list[PoppedMessage] = []
    while len(taken) < count:
        taken += await consumer.receive(min(count - len(taken), 32), invisible=invisible_s, wait_s=1.0)
    return taken


def numbers(messages: list[PoppedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


async def test_what_is_acknowledged_is_not_redelivered(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 40)
    async with popping(shared_broker, topic) as consumer:
        messages = await take(consumer, 40, invisible_s=2.0)
        assert numbers(messages) == list(range(40))
        assert {message.topic for message in messages} == {topic}
        assert len({message.queue for message in messages}) == 4
        for message in messages[:5]:
            await consumer.ack(message)
        await consumer.ack_all(messages[5:39])
        # The message that is left is redelivered after its invisible time.
        (again,) = await take(consumer, 1)
        assert again.message_id == messages[39].message_id
        assert again.reconsume_times == 1
        assert again.topic == topic
        await consumer.ack(again)
        assert await consumer.receive(wait_s=0.3) == []


async def test_a_member_that_waits_gets_what_comes(shared_broker: Broker, topic: str) -> None:
    async with popping(shared_broker, topic) as consumer:
        assert await consumer.receive(wait_s=0) == []
        waiting = asyncio.create_task(consumer.receive(wait_s=20))
        await asyncio.sleep(0.2)
        await send(shared_broker, topic, 1)
        (message,) = await waiting
        await consumer.ack(message)


async def test_renewed_message_stays_and_returned_one_is_redelivered_soon(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 2)
    async with popping(shared_broker, topic) as consumer:
        first, second = await take(consumer, 2, invisible_s=2.0)
        old = first.handle
        await consumer.extend(first, 60)
        assert first.handle != old
        assert first.handle.invisible_ms == 60_000
        await consumer.nack(second, delay=0.5)
        (again,) = await take(consumer, 1)
        assert (again.body, again.reconsume_times) == (second.body, 1)
        await consumer.ack_all([again, first])


async def test_members_share_and_each_message_comes_to_one(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 60)
    async with popping(shared_broker, topic) as one, popping(shared_broker, topic) as two:
        seen: Counter[bytes] = Counter()

        async def work(consumer: SimpleConsumer) -> None:
            async for message in consumer:
                seen[message.body] += 1
                await consumer.ack(message)
                if len(seen) == 60:
                    all_seen.set()

        all_seen = asyncio.Event()
        workers = [asyncio.create_task(work(consumer)) for consumer in (one, two)]
        await all_seen.wait()
        await one.close()
        await two.close()
        await asyncio.gather(*workers)
    assert set(seen.values()) == {1}


async def test_iteration_keeps_its_message_as_long_as_it_takes(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 1)
    settings = PopSettings(pop_invisible_time_s=1.0, poll_time_s=1.0)
    async with popping(shared_broker, topic, settings=settings) as consumer:
        async for message in consumer:
            await asyncio.sleep(2.5)
            await consumer.ack(message)
            break
        assert message.reconsume_times == 0
        assert await consumer.receive(wait_s=2) == []


async def test_handler_that_raises_gets_its_message_again(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 3)
    seen: list[tuple[int, int]] = []

    async def handler(message: PoppedMessage) -> None:
        seen.append((int(message.body), message.reconsume_times))
        if not message.reconsume_times and message.body == b"1":
            raise ReconsumeLater(suspend_s=0.3)
        if not message.reconsume_times and message.body == b"2":
            raise ValueError("after the invisible time")

    settings = PopSettings(pop_invisible_time_s=1.5, poll_time_s=1.0)
    async with popping(shared_broker, topic, settings=settings) as consumer:
        run = asyncio.create_task(consumer.run(handler))
        await until(lambda: len(seen) == 5)
    await run
    assert sorted(seen) == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]


async def test_tags_and_sql_filters(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 3, tags="A")
    await send(shared_broker, topic, 3, first=10, tags="B")
    async with popping(shared_broker, topic, topics={topic: "B || C"}) as consumer:
        messages = await take(consumer, 3)
        assert numbers(messages) == [10, 11, 12]
        await consumer.ack_all(messages)
        assert await consumer.receive(wait_s=0.3) == []
    sql = SimpleConsumer("sql", {topic: SqlFilter("TAGS = 'A'")}, shared_broker.namesrv, consume_from=ConsumeFrom.FIRST)
    with pytest.raises(BrokerRefused):  # the broker filters by tags only
        async with sql:
            pass


async def test_ordered_queue_waits_for_what_is_not_acknowledged(shared_broker: Broker, topic: str) -> None:
    async with Producer("g", shared_broker.namesrv) as producer:
        for number in range(4):
            await producer.send(Message(topic, b"%d" % number), sharding_key="one")
    async with popping(shared_broker, topic, ordered=True) as consumer:
        first = await consumer.receive(2)
        assert numbers(first) == [0, 1]
        assert await consumer.receive(2, wait_s=0.3) == []
        await consumer.ack_all(first)
        second = await consumer.receive(2)
        assert numbers(second) == [2, 3]
        await consumer.ack_all(second)


async def test_cancelled_receive_loses_nothing(shared_broker: Broker, topic: str) -> None:
    async with popping(shared_broker, topic) as consumer:
        waiting = asyncio.create_task(consumer.receive(wait_s=20))
        await asyncio.sleep(0.3)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await send(shared_broker, topic, 1)
        (message,) = await consumer.receive(wait_s=10)
        await consumer.ack(message)


async def test_what_an_iteration_did_not_show_comes_to_others_at_once(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 12)
    async with popping(shared_broker, topic) as consumer:
        async for message in consumer:
            await consumer.ack(message)
            break
    async with popping(shared_broker, topic) as other:
        assert len(await take(other, 11)) == 11


def test_blocking_form(shared_broker: Broker, topic: str) -> None:
    with sync.Producer("g", shared_broker.namesrv) as producer:
        for number in range(3):
            producer.send(Message(topic, b"%d" % number))
    settings = PopSettings(poll_time_s=1.0)
    with sync.SimpleConsumer(
        f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings
    ) as consumer:
        seen = []
        for message in consumer:
            seen.append(int(message.body))
            if message.body == b"1":
                consumer.nack(message, 0.2)
            else:
                consumer.ack(message)
            if len(seen) == 4:
                break
        assert sorted(seen) == [0, 1, 1, 2]
        assert consumer.receive(wait_s=0.2) == []


async def test_wrong_use(shared_broker: Broker, topic: str) -> None:
    consumer = popping(shared_broker, topic)
    with pytest.raises(ClientClosed):
        await consumer.receive()
    async with consumer:
        with pytest.raises(IllegalArgument, match="1 to 32"):
            await consumer.receive(33)
        with pytest.raises(IllegalArgument, match="invisible is -1 s"):
            await consumer.receive(1, invisible=-1)
    with pytest.raises(IllegalMessage, match="at least one topic"):
        SimpleConsumer("g", [], shared_broker.namesrv)
    with pytest.raises(IllegalArgument, match="1 to 32"):
        PopSettings(pop_batch_nums=33)


async def test_cancellation_inside_a_handler_is_a_failure_of_its_message(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 2)
    seen: list[bytes] = []

    async def handler(popped: PoppedMessage) -> None:
        seen.append(popped.body)
        if len(seen) == 1:
            inner = asyncio.get_running_loop().create_future()
            inner.cancel()
            await inner

    async with popping(shared_broker, topic) as consumer:
        run = asyncio.create_task(consumer.run(handler, concurrency=1))
        await until(lambda: run.done() or len(seen) == 2)
        assert not run.done()
    await run


async def test_closing_that_is_cancelled_leaves_nothing_behind(shared_broker: Broker, topic: str) -> None:
    before = asyncio.all_tasks()
    consumer = popping(shared_broker, topic)
    await consumer.__aenter__()
    await consumer.receive(wait_s=0)  # connects
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert not client_tasks(before)
