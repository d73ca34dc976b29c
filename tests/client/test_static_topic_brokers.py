"""Our client, real brokers and mqadmin: the queues of a static topic move while messages are sent and consumed."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from sprocket import ConsumeFrom, Consumer, Message, OrderlyConsumer, Producer, ReceivedMessage
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER
from tests.broker.rig import GROUP, TOPIC
from tests.broker.static_topics.rig import A, B, Site, site
from tests.sprocket_cli.mqadmin.conftest import runner
from tests.waiting import until


async def take(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    messages = []
    async with asyncio.timeout(90):
        while len(messages) < count:
            messages.append(await anext(consumer))
            await consumer.ack(messages[-1])
    return messages


def consumer_of(two: Site) -> Consumer:
    return Consumer(GROUP, [TOPIC], two.name_server, consume_from=ConsumeFrom.FIRST)


async def test_a_consumer_gets_each_message_once_while_queues_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = partial(asyncio.to_thread, runner(two.name_server))
        await tool("updateStaticTopic", "-t", TOPIC, "-qn", "4", "-b", f"{A},{B}")
        received: list[ReceivedMessage] = []
        async with Producer("PG", two.name_server) as producer:

            async def send(first: int) -> None:
                for number in range(first, first + 20):
                    await producer.send(Message(TOPIC, b"%d" % number), sharding_key=str(number % 7))

            async with consumer_of(two) as consumer:
                await send(0)
                received += await take(consumer, 20)
                await tool("remappingStaticTopic", "-t", TOPIC, "-b", B)
                await send(20)
                received += await take(consumer, 20)
            await send(40)
            await tool("remappingStaticTopic", "-t", TOPIC, "-b", A)
            await send(60)
            # The next member of the group goes on where the last one acknowledged, over all brokers.
            async with consumer_of(two) as consumer:
                received += await take(consumer, 40)
        assert sorted(int(message.body) for message in received) == list(range(80))
        for key in map(str, range(7)):
            of_key = [message for message in received if int(message.body) % 7 == int(key)]
            assert len({message.queue for message in of_key}) == 1
            assert of_key[0].queue.broker_name == LOGICAL_BROKER
            numbers = [int(message.body) for message in of_key]
            assert numbers == sorted(numbers)
        for queue in {message.queue for message in received}:
            offsets = [message.queue_offset for message in received if message.queue == queue]
            assert offsets == sorted(set(offsets))


async def test_an_orderly_consumer_goes_on_in_order_at_the_new_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    received: list[tuple[str, int]] = []

    async def handle(message: ReceivedMessage) -> None:
        received.append((message.keys[0], int(message.body)))

    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = partial(asyncio.to_thread, runner(two.name_server))
        await tool("updateStaticTopic", "-t", TOPIC, "-qn", "4", "-b", A)
        consumer = OrderlyConsumer(GROUP, [TOPIC], two.name_server, consume_from=ConsumeFrom.FIRST)
        async with Producer("PG", two.name_server) as producer, consumer:
            work = asyncio.create_task(consumer.run(handle))
            for first, target in ((0, B), (10, A), (20, None)):
                for number in range(first, first + 10):
                    for key in ("k1", "k2", "k3"):
                        await producer.send(Message(TOPIC, b"%d" % number, keys=[key]), sharding_key=key)
                if target is not None:
                    await tool("remappingStaticTopic", "-t", TOPIC, "-b", target)
            await until(lambda: len(received) >= 90)
            await consumer.close()
            await work
    for key in ("k1", "k2", "k3"):
        assert [number for each, number in received if each == key] == list(range(30))
