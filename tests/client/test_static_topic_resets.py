"""Operators reset groups of a static topic whose queues have moved: mqadmin, the dashboard, and live consumers."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from sprocket import ConsumeFrom, Consumer, Message, Producer, SimpleConsumer
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER
from tests.broker.rig import GROUP, TOPIC
from tests.broker.static_topics.rig import A, B, Site, site
from tests.dashboard.rig import running
from tests.sprocket_cli.mqadmin.conftest import runner

COUNT = 8
Tool = Callable[..., Awaitable[list[str]]]


async def prepare(two: Site) -> Tool:
    """Half of the messages are at broker a, and half at broker b, which leads both logical queues."""
    tool: Tool = partial(asyncio.to_thread, runner(two.name_server))
    await tool("updateStaticTopic", "-t", TOPIC, "-qn", "2", "-b", A)
    async with Producer("PG", two.name_server) as producer:
        for number in range(COUNT):
            if number == COUNT // 2:
                await tool("remappingStaticTopic", "-t", TOPIC, "-b", B)
            await producer.send(Message(TOPIC, b"%d" % number), sharding_key="k")
    return tool


def consumer_of(two: Site, group: str = GROUP) -> Consumer:
    return Consumer(group, [TOPIC], two.name_server, consume_from=ConsumeFrom.FIRST)


async def take(consumer: Consumer, last: int) -> list[int]:
    """Consume until the message `last`."""
    numbers: list[int] = []
    async with asyncio.timeout(90):
        while not numbers or numbers[-1] != last:
            message = await anext(consumer)
            numbers.append(int(message.body))
            await consumer.ack(message)
    return numbers


@pytest.fixture(autouse=True)
def files_of_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


async def test_a_live_consumer_reads_everything_again_in_order(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = await prepare(two)
        async with consumer_of(two) as consumer:
            await take(consumer, COUNT - 1)
            lines = await tool("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
            assert sum("__syslo__global__" in line for line in lines) == 2, lines
            again = await take(consumer, COUNT - 1)
        assert again == list(range(COUNT))


@pytest.mark.parametrize("when", ["-1", "-2", "now"])
async def test_a_group_skips_its_backlog(tmp_path: Path, when: str) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = await prepare(two)
        async with consumer_of(two) as consumer:
            assert await take(consumer, 1) == [0, 1]
        await tool("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", when)
        async with Producer("PG", two.name_server) as producer:
            await producer.send(Message(TOPIC, b"99"), sharding_key="k")
        async with consumer_of(two) as consumer:
            assert await take(consumer, 99) == [99]
        await tool("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
        await tool("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
        progress = await tool("consumerProgress", "-g", GROUP)
        assert any("Diff Total: 0" in line for line in progress), progress


async def test_offsets_are_cloned_in_logical_queues(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = await prepare(two)
        async with consumer_of(two) as consumer:
            await take(consumer, 2)
        async with consumer_of(two, "Copy") as consumer:
            await take(consumer, COUNT - 1)
        await tool("cloneGroupOffset", "-s", GROUP, "-d", "Copy", "-t", TOPIC)
        async with consumer_of(two, "Copy") as consumer:
            assert await take(consumer, COUNT - 1) == list(range(3, COUNT))


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_group_that_pops_gets_everything_again(tmp_path: Path, ordered: bool) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = await prepare(two)
        simple = SimpleConsumer(GROUP, [TOPIC], two.name_server, consume_from=ConsumeFrom.FIRST, ordered=ordered)
        async with simple as consumer:

            async def pops() -> list[int]:
                numbers: list[int] = []
                async with asyncio.timeout(60):
                    while len(set(numbers)) < COUNT:
                        for message in await consumer.receive(4, invisible=60, wait_s=1.0):
                            await consumer.ack(message)
                            numbers.append(int(message.body))
                return numbers

            assert sorted(await pops()) == list(range(COUNT))
            await tool("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
            again = await pops()
            assert sorted(again) == list(range(COUNT))
            assert not ordered or again == sorted(again)


async def test_the_dashboard_resets_a_group_of_a_static_topic(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await prepare(two)
        async with consumer_of(two) as consumer:
            await take(consumer, COUNT - 1)
        async with running(two.name_server) as (_, visitor):
            preview = await visitor.get("/offsets", group=GROUP, topic=TOPIC, to="start")
            assert LOGICAL_BROKER in preview.text, preview.text
            done = await visitor.post("/offsets/reset", group=GROUP, topic=TOPIC, to="start")
            assert done.status == 200 and "queue 1: 0" in done.text, done.text
        async with consumer_of(two) as consumer:
            assert await take(consumer, COUNT - 1) == list(range(COUNT))
