"""Which queues a held pop reads when a message arrives: none that it has read to its end, unless its entries may lie.

Pops that begin in the object store are in `tests/broker/archive/test_archive_reads.py`.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from sprocket.remoting.codes import RequestCode
from tests.broker.pop.rig import Message, popped
from tests.broker.rig import TOPIC, TestClient, create, running_broker
from tests.waiting import until

QUEUES = 8


class Reads:
    """What the store is asked for."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queues: list[int] = []
        self.missed = 0
        store, get, missed = broker.store, broker.store.get, broker.store.kernel_reads.missed

        def counted_get(topic: str, queue_id: int, *args: Any, **kwargs: Any) -> Any:
            assert topic == TOPIC
            self.queues.append(queue_id)
            return get(topic, queue_id, *args, **kwargs)

        def counted_missed(reads: int) -> None:
            self.missed += reads
            missed(reads)

        monkeypatch.setattr(store, "get", counted_get)
        monkeypatch.setattr(store.kernel_reads, "missed", counted_missed)


async def held_pop(broker: Broker, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> tuple[Message, Reads]:
    """Let a pop of all queues, which it has read, be held until queue 3 gets a message."""
    for queue_id in range(QUEUES):
        await client.send(queue_id=queue_id, KEYS=f"old-{queue_id}")
    assert len(await popped(client)) == QUEUES
    held = asyncio.create_task(popped(client, poll_time=600_000))
    await until(lambda: len(broker.pop.held) == 1)
    reads = Reads(broker, monkeypatch)
    await client.send(b"wanted", queue_id=3, KEYS="new")
    (message,) = await held
    return message, reads


async def test_queues_at_their_ends_are_missed_without_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as (broker, client):
        header = create(read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        message, reads = await held_pop(broker, client, monkeypatch)
        assert (message.body, message.queue_id) == (b"wanted", 3)
        assert (reads.queues, reads.missed) == ([3], QUEUES - 1)


async def test_queues_of_a_compacted_topic_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as (broker, client):
        header = create(
            read_queue_nums=QUEUES, write_queue_nums=QUEUES, attributes="+cleanup.policy=COMPACTION"
        )  # fmt: skip
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        message, reads = await held_pop(broker, client, monkeypatch)
        assert (message.body, message.queue_id) == (b"wanted", 3)
        assert (sorted(reads.queues), reads.missed) == ([*range(QUEUES)], 0)
