"""The reader of a queue, with a consumer in memory."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import cast

import pytest

pytest.importorskip("kombu", reason="kombu is not installed: pip install 'sprocket-mq[celery]'")

from sprocket.client.message import ReceivedMessage
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.common.errors import ClientError
from sprocket.contrib.kombu.bindings import QueueBindings
from sprocket.contrib.kombu.reader import Delivery, Limits, QueueReader
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.pop_extra_info import NORMAL, PopHandle
from tests.clock import ManualClock

_TASK = b'{"body": "", "properties": {"delivery_info": {"exchange": "", "routing_key": "q"}}}'
_INVISIBLE_S = 60.0


def popped(name: str, body: bytes = _TASK) -> PoppedMessage:
    message = ReceivedMessage(
        topic="T", queue=MessageQueue("T", "b", 0), queue_offset=0, physical_offset=0, body=body,
        raw_properties=names.encode({names.UNIQ_KEY: name}).encode(), flag=0, sys_flag=0, born_timestamp_ms=0,
        born_host=bytes(8), store_timestamp_ms=0, store_host=bytes(8), reconsume_times=0, size_bytes=0,
    )  # fmt: skip
    return PoppedMessage(message, "T", PopHandle(0, 0, 0, 0, NORMAL, "b", 0, 0), 1e9)


class _Consumer:
    """Gives `pops` one after the other; `refuses` lets requests fail, `blocks` lets dead letters wait."""

    def __init__(self) -> None:
        self.pops: list[list[PoppedMessage]] = []
        self.acknowledged: list[str] = []
        self.returned: list[str] = []
        self.refuses = False
        self.blocks = False

    async def receive(self, count: int, invisible: float, wait_s: float | None) -> list[PoppedMessage]:
        return self.pops.pop(0)

    async def dead_letter(self, message: PoppedMessage, reason: str) -> None:
        if self.blocks:
            await asyncio.Event().wait()
        if self.refuses:
            raise ClientError("no broker took it")

    async def ack_all(self, batch: Iterable[PoppedMessage]) -> None:
        if self.refuses:
            raise ClientError("no broker took it")
        self.acknowledged += [one.message_id for one in batch]

    async def nack(self, message: PoppedMessage, after_s: float) -> None:
        self.returned.append(message.message_id)

    async def close(self) -> None:
        pass


class _Reader:
    """A reader, and what it reads from."""

    def __init__(self) -> None:
        self.consumer, self.clock = _Consumer(), ManualClock()
        limits = Limits(lambda: 32, lambda: 1, _INVISIBLE_S, None)
        self.queue = QueueReader(
            QueueBindings("q"), cast("SimpleConsumer", self.consumer), limits, self.deliver, self.clock
        )

    def deliver(self, found: Sequence[Delivery]) -> Sequence[Delivery]:
        return ()

    async def taken(self, *pop: PoppedMessage) -> list[str]:
        """Return the ids of what the application gets of a pop."""
        self.consumer.pops.append(list(pop))
        return [one.popped.message_id for one in await self.queue.take(32)]

    async def acknowledge(self, message: PoppedMessage) -> None:
        self.queue.ack(message)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_a_foreign_message_that_no_broker_takes_leaves_the_others_of_its_pop() -> None:
    reader = _Reader()
    reader.consumer.refuses = True
    assert await reader.taken(popped("a"), popped("foreign", b"x"), popped("b")) == ["a", "b"]
    await reader.queue.close()
    assert sorted(reader.consumer.returned) == ["a", "b"]


async def test_a_reader_that_is_stopped_before_it_delivers_holds_nothing() -> None:
    reader = _Reader()
    reader.consumer.blocks = True
    reader.consumer.pops = [[popped("a"), popped("foreign", b"x")]]
    reader.queue.start()
    while reader.consumer.pops:
        await asyncio.sleep(0)
    await reader.queue.stop()
    assert await reader.taken(popped("a")) == ["a"]
    await reader.queue.close()


async def test_a_message_whose_acknowledgement_was_lost_is_not_delivered_again() -> None:
    reader = _Reader()
    one = popped("a")
    assert await reader.taken(one) == ["a"]
    reader.consumer.refuses = True
    await reader.acknowledge(one)
    reader.consumer.refuses = False
    reader.clock.advance(100 * _INVISIBLE_S)
    assert await reader.taken(popped("a")) == []
    await reader.queue.close()
    assert reader.consumer.acknowledged == ["a"]


async def test_an_acknowledged_message_is_delivered_again_after_a_later_reset_of_offsets() -> None:
    reader = _Reader()
    one = popped("a")
    assert await reader.taken(one) == ["a"]
    await reader.acknowledge(one)
    assert await reader.taken(popped("a")) == []
    await asyncio.sleep(0)
    reader.clock.advance(4 * _INVISIBLE_S)
    assert await reader.taken(popped("a")) == ["a"]
    await reader.queue.close()
