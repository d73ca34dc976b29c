"""Our own client at the proxy's remoting port, where it also finds its routes: everything passes through the proxy."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sprocket import (
    ConsumeFrom,
    Consumer,
    Message,
    OrderlyConsumer,
    OrderlySettings,
    Producer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from sprocket.testing import Broker
from tests.proxy.rig import Rig, create_topic, running
from tests.waiting import until

COMMIT, UNKNOWN = TransactionState.COMMIT, TransactionState.UNKNOWN


def address(rig: Rig) -> str:
    return f"127.0.0.1:{rig.proxy.remoting.listeners[0].port}"


async def read(rig: Rig, topic: str, group: str, count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(30), Consumer(group, [topic], address(rig), consume_from=ConsumeFrom.FIRST) as consumer:
        async for message in consumer:
            found.append(message.body.decode())
            await consumer.ack(message)
            if len(found) == count:
                break
    return sorted(found)


async def test_sends_and_pulls_pass_through_the_proxy(rig: Rig, topic: str) -> None:
    async with Producer("senders", address(rig)) as producer:
        for number in range(20):
            sent = await producer.send(Message(topic, f"{number:02}".encode()))
            assert sent.queue.broker_name
    assert await read(rig, topic, "readers", 20) == [f"{number:02}" for number in range(20)]
    # Offsets are at the broker: what was read is not read again.
    async with Producer("senders", address(rig)) as producer:
        await producer.send(Message(topic, b"later"))
    assert await read(rig, topic, "readers", 1) == ["later"]


async def test_long_poll_ends_with_the_message(rig: Rig, topic: str) -> None:
    reading = asyncio.ensure_future(read(rig, topic, "waiters", 1))
    await until(lambda: rig.proxy.consumers.group("waiters") is not None)
    await asyncio.sleep(1)
    async with Producer("senders", address(rig)) as producer:
        await producer.send(Message(topic, b"now"))
    assert await asyncio.wait_for(reading, 5) == ["now"]


async def test_two_consumers_divide_the_queues(rig: Rig, topic: str) -> None:
    taken: dict[str, set[int]] = {"a": set(), "b": set()}

    async def consume(name: str) -> None:
        async with Consumer("pair", [topic], address(rig), consume_from=ConsumeFrom.FIRST) as consumer:
            async for message in consumer:
                taken[name].add(message.queue.queue_id)
                await consumer.ack(message)

    tasks = [asyncio.ensure_future(consume(name)) for name in taken]

    def is_complete() -> bool:
        group = rig.proxy.consumers.group("pair")
        return group is not None and len(group.client_ids) == 2

    await until(is_complete)
    async with Producer("senders", address(rig)) as producer:
        for _ in range(200):
            await producer.send(Message(topic, b"x"))
            if all(taken.values()):
                break
            await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(taken.values())
    await until(lambda: rig.proxy.consumers.group("pair") is None)


async def test_message_that_is_sent_back_is_redelivered(rig: Rig, topic: str) -> None:
    async with Producer("senders", address(rig)) as producer:
        await producer.send(Message(topic, b"again"))
    times: list[int] = []
    async with (
        asyncio.timeout(40),
        Consumer("backers", [topic], address(rig), consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        async for message in consumer:
            times.append(message.reconsume_times)
            if len(times) == 1:
                await consumer.nack(message)
            else:
                await consumer.ack(message)
                break
    assert times == [0, 1]


async def test_orderly_consumer_locks_its_queues(rig: Rig, topic: str) -> None:
    async with Producer("senders", address(rig)) as producer:
        for number in range(10):
            await producer.send(Message(topic, f"{number}".encode()))
    seen: list[str] = []
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())
        if len(seen) == 10:
            done.set()

    async with OrderlyConsumer("orderly", [topic], address(rig), consume_from=ConsumeFrom.FIRST) as consumer:
        running = asyncio.ensure_future(consumer.run(handle))
        await asyncio.wait_for(done.wait(), 30)
        running.cancel()
    assert sorted(seen) == [str(number) for number in range(10)]


async def test_poison_message_of_an_orderly_consumer_does_not_stop_its_queue(tmp_path: Path) -> None:
    settings = OrderlySettings(max_reconsume_times=1, suspend_current_queue_time_s=0.05)
    properties = {"autoCreateTopicEnable": "false"}  # nothing but the group's heartbeat can create its retry topic
    with Broker(tmp_path, properties=properties) as broker:
        topic = await create_topic(broker, queues=1)
        async with running(broker) as rig:
            async with Producer("senders", address(rig)) as producer:
                for body in (b"poison", b"later"):
                    await producer.send(Message(topic, body))
            done = asyncio.Event()

            async def handle(message: ReceivedMessage) -> None:
                if message.body == b"poison":
                    raise ValueError("never")
                done.set()

            async with OrderlyConsumer(
                "poisoned", [topic], address(rig), consume_from=ConsumeFrom.FIRST, settings=settings
            ) as consumer:
                consuming = asyncio.ensure_future(consumer.run(handle))
                await asyncio.wait_for(done.wait(), 30)
                consuming.cancel()


async def test_pops_are_held_and_acknowledged(rig: Rig, topic: str) -> None:
    async with SimpleConsumer("poppers", [topic], address(rig), consume_from=ConsumeFrom.FIRST) as consumer:
        async with Producer("senders", address(rig)) as producer:
            await producer.send(Message(topic, b"popped"))
        async with asyncio.timeout(20):
            found: Any = []
            while not found:
                found = await consumer.receive(16, invisible=20)
        assert [message.body for message in found] == [b"popped"]
        await consumer.ack(found[0])
        assert await consumer.receive(16, invisible=20, wait_s=1) == []


async def test_broker_asks_a_producer_through_the_proxy(rig: Rig, broker: Broker) -> None:
    topic = await create_topic(broker, "TRANSACTION")
    asked = asyncio.Event()

    async def checker(message: ReceivedMessage) -> TransactionState:
        asked.set()
        return COMMIT

    async with TransactionProducer("payers", address(rig), checker=checker) as producer:
        await producer.send_in_transaction(Message(topic, b"kept"), lambda message, _: COMMIT)
        await producer.send_in_transaction(Message(topic, b"asked"), lambda message, _: UNKNOWN)
        await asyncio.wait_for(asked.wait(), 30)
        assert await read(rig, topic, "accounts", 2) == ["asked", "kept"]


async def test_auto_created_topic(rig: Rig) -> None:
    async with Producer("senders", address(rig)) as producer:
        sent = await producer.send(Message("CreatedThroughTheProxy", b"first"))
    assert sent.offset_message_id


@pytest.mark.parametrize("kind", ["FIFO", "DELAY", "TRANSACTION"])
async def test_message_of_another_type_is_refused(rig: Rig, broker: Broker, kind: str) -> None:
    topic = await create_topic(broker, kind)
    async with Producer("senders", address(rig)) as producer:
        with pytest.raises(Exception, match=f"expected type is {kind}"):
            await producer.send(Message(topic, b"plain"))
