"""Our own client at the proxy's remoting port, with a static topic whose queues move."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sprocket import ConsumeFrom, Consumer, Message, OrderlyConsumer, Producer, ReceivedMessage, SimpleConsumer
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER
from tests.broker.rig import GROUP, TOPIC
from tests.broker.static_topics.rig import A, B, Site, site
from tests.proxy.remoting.test_remoting_clients import address
from tests.proxy.rig import Rig, running
from tests.sprocket_cli.mqadmin.conftest import runner
from tests.waiting import until


@pytest.fixture(name="two")
async def two_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await tool(two, "updateStaticTopic", "-t", TOPIC, "-qn", "4", "-b", f"{A},{B}")
        yield two


@pytest.fixture
async def rig(two: Site) -> AsyncIterator[Rig]:
    broker: Any = SimpleNamespace(namesrv=two.name_server)
    async with running(broker, enable_topic_message_type_check=False) as made:
        yield made


async def tool(two: Site, *arguments: str) -> None:
    await asyncio.to_thread(partial(runner(two.name_server), *arguments))


async def send(producer: Producer, first: int) -> None:
    for number in range(first, first + 10):
        for key in ("k1", "k2", "k3"):
            await producer.send(Message(TOPIC, b"%d" % number, keys=[key]), sharding_key=key)


def in_order(messages: list[ReceivedMessage]) -> bool:
    """Whether the messages of each key are there once, in their order."""
    return all(
        [int(message.body) for message in messages if message.keys == [key]] == list(range(20))
        for key in ("k1", "k2", "k3")
    )


async def test_a_consumer_reads_logical_queues_that_move(two: Site, rig: Rig) -> None:
    received: list[ReceivedMessage] = []
    consumer = Consumer(GROUP, [TOPIC], address(rig), consume_from=ConsumeFrom.FIRST)
    async with asyncio.timeout(60), Producer("PG", address(rig)) as producer, consumer:
        await send(producer, 0)
        await tool(two, "remappingStaticTopic", "-t", TOPIC, "-b", B)
        await send(producer, 10)
        while len(received) < 60:
            received.append(await anext(consumer))
            await consumer.ack(received[-1])
    assert in_order(received)
    assert {message.queue.broker_name for message in received} == {LOGICAL_BROKER}


async def test_an_orderly_consumer_locks_logical_queues_at_their_leaders(two: Site, rig: Rig) -> None:
    received: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        received.append(message)

    consumer = OrderlyConsumer(GROUP, [TOPIC], address(rig), consume_from=ConsumeFrom.FIRST)
    async with Producer("PG", address(rig)) as producer, consumer:
        work = asyncio.create_task(consumer.run(handle))
        await send(producer, 0)
        await tool(two, "remappingStaticTopic", "-t", TOPIC, "-b", B)
        await send(producer, 10)
        await until(lambda: len(received) >= 60)
        await consumer.close()
        await work
    assert in_order(received)


async def test_a_pop_consumer_pops_all_brokers(two: Site, rig: Rig) -> None:
    found: list[bytes] = []
    consumer = SimpleConsumer(GROUP, [TOPIC], address(rig), consume_from=ConsumeFrom.FIRST)
    async with asyncio.timeout(60), Producer("PG", address(rig)) as producer, consumer:
        await send(producer, 0)
        await tool(two, "remappingStaticTopic", "-t", TOPIC, "-b", B)
        await send(producer, 10)
        while len(found) < 60:
            for message in await consumer.receive(16, invisible=60, wait_s=1.0):
                await consumer.ack(message)
                found.append(message.body)
    assert sorted(map(int, found)) == sorted(list(range(20)) * 3)
