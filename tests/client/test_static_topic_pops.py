"""Pop consumers, real brokers and mqadmin: the queues of a static topic move while their messages are popped."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from sprocket import ClientSettings, ConsumeFrom, Message, PoppedMessage, Producer, SimpleConsumer
from tests.broker.rig import GROUP, TOPIC
from tests.broker.static_topics.rig import A, B, Site, site
from tests.sprocket_cli.mqadmin.conftest import runner
from tests.waiting import until

KEYS = ("k1", "k2", "k3")


def consumer_of(two: Site, *, ordered: bool = False) -> SimpleConsumer:
    return SimpleConsumer(GROUP, [TOPIC], two.name_server, consume_from=ConsumeFrom.FIRST, ordered=ordered)


def tool_of(two: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[list[str]]]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return partial(asyncio.to_thread, runner(two.name_server))


async def take(consumer: SimpleConsumer, count: int) -> list[PoppedMessage]:
    """Pop and acknowledge `count` messages; a few more if one pop returns them."""
    taken: list[PoppedMessage] = []
    async with asyncio.timeout(60):
        while len(taken) < count:
            for message in await consumer.receive(4, invisible=60, wait_s=1.0):
                await consumer.ack(message)
                taken.append(message)
    return taken


async def send(producer: Producer, first: int, last: int) -> None:
    """Send the numbers from `first` to `last` for each key."""
    for number in range(first, last + 1):
        for key in KEYS:
            await producer.send(Message(TOPIC, b"%d" % number, keys=[key]), sharding_key=key)


def numbers(messages: list[PoppedMessage], key: str) -> list[int]:
    return [int(message.body) for message in messages if message.keys == [key]]


async def test_each_message_is_acknowledged_once_while_queues_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = tool_of(two, tmp_path, monkeypatch)
        await tool("updateStaticTopic", "-t", TOPIC, "-qn", "4", "-b", f"{A},{B}")
        async with Producer("PG", two.name_server) as producer, consumer_of(two) as consumer:
            await send(producer, 0, 4)
            held = await consumer.receive(3, invisible=60, wait_s=5.0)
            assert held
            await tool("remappingStaticTopic", "-t", TOPIC, "-b", B)
            await send(producer, 5, 9)
            taken = await take(consumer, 15)
            await tool("remappingStaticTopic", "-t", TOPIC, "-b", A)
            await send(producer, 10, 14)
            for message in held:  # at the broker that had popped them
                await consumer.ack(message)
            taken += held
            taken += await take(consumer, 45 - len(taken))
            assert await consumer.receive(4, invisible=60, wait_s=0.1) == []
            for key in KEYS:
                assert sorted(numbers(taken, key)) == list(range(15))


async def test_an_ordered_group_gets_nothing_of_the_new_leader_before_the_old_one_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = tool_of(two, tmp_path, monkeypatch)
        await tool("updateStaticTopic", "-t", TOPIC, "-qn", "1", "-b", A)
        async with Producer("PG", two.name_server) as producer, consumer_of(two, ordered=True) as consumer:
            await producer.send(Message(TOPIC, b"0"))
            [first] = await consumer.receive(4, invisible=60, wait_s=5.0)
            await tool("remappingStaticTopic", "-t", TOPIC, "-b", B)
            await producer.send(Message(TOPIC, b"1"))
            # A member that opens now knows both brokers.  The first one may wait at the old leader.
            async with consumer_of(two, ordered=True) as other:
                # The new leader has asked the old one, again and again.
                assert await other.receive(4, invisible=60, wait_s=1.0) == []
                waiting = asyncio.create_task(other.receive(4, invisible=60, wait_s=60.0))
                await asyncio.sleep(0)
                await consumer.ack(first)
                assert [message.body for message in await waiting] == [b"1"]


async def test_a_consumer_that_waits_at_the_old_leader_gets_the_messages_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = tool_of(two, tmp_path, monkeypatch)
        await tool("updateStaticTopic", "-t", TOPIC, "-qn", "1", "-b", A)
        often = ClientSettings(namesrv=two.name_server, poll_name_server_interval_s=0.5)
        consumer = SimpleConsumer(GROUP, [TOPIC], client=often, consume_from=ConsumeFrom.FIRST)
        async with Producer("PG", two.name_server) as producer, consumer:
            waiting = asyncio.create_task(consumer.receive(4, invisible=60, wait_s=60.0))
            await until(lambda: len(two.brokers[A].pop.held))
            await tool("remappingStaticTopic", "-t", TOPIC, "-b", B)
            await producer.send(Message(TOPIC, b"0"))
            assert [message.body for message in await waiting] == [b"0"]


async def test_an_ordered_group_gets_the_messages_of_a_key_in_their_order_over_two_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = tool_of(two, tmp_path, monkeypatch)
        await tool("updateStaticTopic", "-t", TOPIC, "-qn", "4", "-b", f"{A},{B}")
        async with Producer("PG", two.name_server) as producer:
            await send(producer, 0, 4)
            await tool("remappingStaticTopic", "-t", TOPIC, "-b", B)
            await send(producer, 5, 9)
            await tool("remappingStaticTopic", "-t", TOPIC, "-b", A)
            await send(producer, 10, 14)
        async with consumer_of(two, ordered=True) as consumer:
            taken = await take(consumer, 45)
        for key in KEYS:
            assert numbers(taken, key) == list(range(15))


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_group_that_began_at_the_end_gets_all_of_a_queue_that_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = tool_of(two, tmp_path, monkeypatch)
        await tool("updateStaticTopic", "-t", TOPIC, "-qn", "1", "-b", A)
        consumer = SimpleConsumer(GROUP, [TOPIC], two.name_server, consume_from=ConsumeFrom.LAST, ordered=ordered)
        async with Producer("PG", two.name_server) as producer, consumer:
            assert await consumer.receive(4, invisible=60, wait_s=0.1) == []
            await producer.send(Message(TOPIC, b"0"))
            await tool("remappingStaticTopic", "-t", TOPIC, "-b", B)
            for number in range(1, 10):
                await producer.send(Message(TOPIC, b"%d" % number))
            taken = await take(consumer, 10)
        bodies = [int(message.body) for message in taken]
        assert (bodies if ordered else sorted(bodies)) == list(range(10))
