"""Tables: the last value of each key, current, and complete after a restart and through compactions."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import sprocket
import sprocket.sync
from sprocket import IllegalArgument, IllegalMessage, Message, SendResult, TopicNotFound
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.typed.rows import Row, Rows
from sprocket.client.typed.serializers import serializer_of
from sprocket.client.typed.table import Table
from sprocket.testing import Broker


@dataclass(frozen=True)
class Price:
    amount: int


@pytest.fixture
async def prices(shared_broker: Broker, topic: str) -> AsyncIterator[tuple[sprocket.Connection, str]]:
    """A connection, and the name of a compacted topic."""
    async with sprocket.connect(shared_broker.namesrv) as mq:
        name = f"Prices-{topic}"
        await mq.admin.create_table_topic(name, queues=4)
        yield mq, name


async def test_a_table_has_the_last_value_of_each_key(prices: tuple[sprocket.Connection, str]) -> None:
    mq, name = prices
    topic = mq.topic(name, Price)
    for key, amount in [("a", 1), ("b", 2), ("a", 3), ("c", 4)]:
        await topic.send(Price(amount), key=key, sharding_key=key)
    async with mq.table(name, Price) as table:
        assert dict(table) == {"a": Price(3), "b": Price(2), "c": Price(4)}
        assert (table["a"], table.get("z"), len(table), "b" in table) == (Price(3), None, 3, True)
        await table.put("b", Price(5))
        await table.at_least(await table.delete("c"), timeout_s=30)
        await table.at_least(await table.put("b", Price(6)), timeout_s=30)
        assert dict(table) == {"a": Price(3), "b": Price(6)}
        async with mq.table(name, Price) as other:
            assert dict(other) == dict(table)
    with pytest.raises(sprocket.ClientClosed):
        nowhere = sprocket.MessageQueue(name, "nobody", 0)
        await table.at_least(SendResult(sprocket.SendStatus.SEND_OK, "", "", nowhere, 7), timeout_s=30)


async def test_a_second_start_returns_no_earlier_than_the_table_is_read(
    prices: tuple[sprocket.Connection, str],
) -> None:
    mq, name = prices
    await mq.topic(name, Price).send(Price(1), key="a", sharding_key="a")
    table = mq.table(name, Price)

    async def seen() -> dict[str, Price]:
        await table.start()
        return dict(table)

    first = asyncio.ensure_future(table.start())
    others = []
    while not first.done():
        others.append(asyncio.ensure_future(seen()))
        await asyncio.sleep(0.001)
    assert all(found == {"a": Price(1)} for found in await asyncio.gather(*others))
    await first
    await table.close()


async def test_a_key_that_moved_is_deleted_in_all_its_queues(prices: tuple[sprocket.Connection, str]) -> None:
    mq, name = prices
    async with mq.table(name, Price) as table:
        there = (await table.put("a", Price(1))).queue
        earlier = sprocket.MessageQueue(name, there.broker_name, (there.queue_id + 1) % 4)
        moved = await mq.producer().send(Message(name, b'{"amount": 2}', keys="a"), queue=earlier)
        await table.at_least(moved, timeout_s=30)
        await table.put("a", Price(3))
        await table.at_least(await table.delete("a"), timeout_s=30)
        assert "a" not in table
    ends = (await mq.admin.topic_stats(name)).offset_table
    assert (ends[earlier].max_offset, ends[there].max_offset) == (2, 3)


async def test_a_watch_gives_each_change_once_with_the_last_value(prices: tuple[sprocket.Connection, str]) -> None:
    mq, name = prices
    async with mq.table(name, Price) as table:
        await table.at_least(await table.put("a", Price(1)))
        changes = table.watch()
        await table.put("a", Price(2))
        assert await anext(changes) == ("a", Price(2))
        for amount in range(3, 9):
            result = await table.put("a", Price(amount))
        await table.at_least(result)
        await table.at_least(await table.delete("a"))
        assert await anext(changes) == ("a", None)
        ended = asyncio.ensure_future(anext(changes, "ended"))
        await asyncio.sleep(0)
        await table.close()
        assert await ended == "ended"


class _Recorder:
    """A producer that notes the queue of each send."""

    def __init__(self, producer: sprocket.Producer) -> None:
        self._producer = producer
        self.queues: list[int] = []

    async def send(self, message: Message, **place: Any) -> SendResult:
        result = await self._producer.send(message, **place)
        self.queues.append(result.queue.queue_id)
        return result


@pytest.mark.parametrize(("knows_growth", "queues"), [(True, [0, 1]), (False, [1, 0, 1])])
async def test_a_key_that_has_moved_is_deleted_in_its_own_queue_last(
    shared_broker: Broker, topic: str, knows_growth: bool, queues: list[int]
) -> None:
    name, client = f"Moved-{topic}", ClientSettings(namesrv=shared_broker.namesrv)
    async with sprocket.connect(shared_broker.namesrv) as old, sprocket.connect(shared_broker.namesrv) as new:
        await old.admin.create_table_topic(name, queues=1)
        await old.topic(name, Price).send(Price(1), key="a", sharding_key="a")
        recorder = _Recorder(new.producer())
        table = Table(name, serializer_of(Price), lambda: recorder, client=client)  # type: ignore[arg-type,return-value]
        if not knows_growth:
            await table.start()
        await old.admin.create_table_topic(name, queues=4)
        while (await new.admin.topic_route(name)).queue_datas[0].write_queue_nums < 4:
            await asyncio.sleep(0.02)
        async with table:
            assert dict(table) == {"a": Price(1)}
            assert (await table.delete("a")).queue.queue_id == 1
            assert recorder.queues == queues


async def test_values_that_do_not_decode_and_messages_without_a_key_are_left_out(
    shared_broker: Broker, topic: str
) -> None:
    async with sprocket.connect(shared_broker.namesrv) as mq:
        producer = mq.producer()
        await producer.send(Message(topic, b"{}", keys="a"))
        await producer.send(Message(topic, b'{"amount": 1}'))
        await producer.send(Message(topic, b'{"amount": 2}', keys="b"))
        async with mq.table(topic, Price) as table:
            assert dict(table) == {"b": Price(2)}


async def test_what_is_refused(prices: tuple[sprocket.Connection, str], topic: str) -> None:
    mq, name = prices
    with pytest.raises(TopicNotFound):
        await mq.table("Nowhere", Price).start()
    table = mq.table(name, bytes)
    with pytest.raises(IllegalMessage, match="call delete"):
        await table.put("a", b"")
    with pytest.raises(IllegalMessage, match="key is empty"):
        await table.delete("")
    with pytest.raises(IllegalArgument, match="grpc:// has no tables"):
        sprocket.connect("grpc://127.0.0.1:1").table(name, Price)
    with pytest.raises(sprocket.BrokerRefused, match="no body"):
        await mq.producer().send(Message(topic, b"", keys="a"))
    with pytest.raises(IllegalMessage, match="body is empty"):
        await mq.producer().send(Message(topic, b""))


def test_a_blocking_table(shared_broker: Broker, topic: str) -> None:
    with sprocket.sync.connect(shared_broker.namesrv) as mq:
        name = f"Sync-{topic}"
        mq.admin.create_table_topic(name)
        with mq.table(name, Price) as table:
            table.at_least(table.put("a", Price(1)), timeout_s=30)
            assert (dict(table), table["a"], len(table), "a" in table) == ({"a": Price(1)}, Price(1), 1, True)
            table.delete("b")
            table.at_least(table.put("c", Price(3)))
            assert {"a", "c"} == set(table)


async def test_a_table_is_complete_after_compactions_and_a_restart_of_its_broker(tmp_path: Path) -> None:
    chance, model = random.Random(3), dict[str, Price]()
    properties = {
        "mappedFileSizeCommitLog": "32768",
        "compactionScheduleInternal": "100",
        "compactionDeleteRetention": "0",
    }
    with Broker(tmp_path, properties=properties) as broker:
        async with sprocket.connect(broker.namesrv) as mq:
            await mq.admin.create_table_topic("Prices", queues=4)
            async with mq.table("Prices", Price) as table:
                for number in range(400):
                    key = f"k{chance.randrange(40)}"
                    if chance.random() < 0.2:
                        result = await table.delete(key)
                        model.pop(key, None)
                    else:
                        result = await table.put(key, Price(number))
                        model[key] = Price(number)
                await table.at_least(result)
                while dict(table) != model:
                    await asyncio.sleep(0.01)
            compacted = broker.store / "compacted" / "Prices"
            while not list(compacted.rglob("manifest")):
                await asyncio.sleep(0.05)
        broker.kill()
        broker.start()
        async with sprocket.connect(broker.namesrv) as mq, mq.table("Prices", Price) as table:
            assert dict(table) == model


# Rows


def row(value: int, queue: int, stored_ms: int) -> Row[int]:
    return Row(value, ("broker-a", queue), 0, stored_ms)


def test_the_latest_store_time_decides_between_queues() -> None:
    changed: list[str] = []
    rows: Rows[int] = Rows(changed.append)
    rows.put("a", row(1, queue=0, stored_ms=20))
    rows.put("a", row(2, queue=1, stored_ms=10))
    assert rows.by_key["a"].value == 1
    rows.put("a", row(3, queue=0, stored_ms=5))  # of one queue the order decides, whatever a clock said
    assert rows.by_key["a"].value == 3
    assert changed == ["a", "a"]


def test_a_deletion_holds_against_an_older_value_that_is_read_later() -> None:
    rows: Rows[int] = Rows(lambda key: None)
    rows.delete("a", Row(None, ("broker-a", 0), 5, 20))
    rows.put("a", row(1, queue=1, stored_ms=10))
    assert not rows.by_key
    rows.put("a", row(2, queue=1, stored_ms=30))
    assert rows.by_key["a"].value == 2


def test_queues_with_a_value_of_a_key_are_known_whatever_the_order_of_reading() -> None:
    old, new, gone = row(1, queue=0, stored_ms=10), row(2, queue=1, stored_ms=20), Row(None, ("broker-a", 1), 5, 30)
    for steps in ((old, new, gone), (new, old, gone), (new, gone, old)):
        rows: Rows[int] = Rows(lambda key: None)
        for step in steps:
            if step.value is None:
                rows.delete("a", Row(None, *step[1:]))
            else:
                rows.put("a", Row(step.value, *step[1:]))
        assert not rows.by_key
        assert rows.queues_of("a") == {("broker-a", 0)}
        rows.delete("a", Row(None, ("broker-a", 0), 6, 25))
        assert not rows.queues_of("a")
        rows.put("a", row(3, queue=0, stored_ms=40))
        assert rows.queues_of("a") == {("broker-a", 0)}


def test_what_came_from_a_queue_is_forgotten_when_it_is_read_again() -> None:
    rows: Rows[int] = Rows(lambda key: None)
    rows.put("a", row(1, queue=0, stored_ms=1))
    rows.put("b", row(2, queue=1, stored_ms=1))
    rows.forget(("broker-a", 0))
    assert set(rows.by_key) == {"b"}
