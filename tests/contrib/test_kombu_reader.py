"""The reader of a queue, with a consumer in memory."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import cast

import pytest

pytest.importorskip("kombu", reason="kombu is not installed: pip install 'sprocket-mq[celery]'")

from sprocket.client.message import ReceivedMessage
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.common.errors import ClientError
from sprocket.contrib.kombu.bindings import QueueBindings
from sprocket.contrib.kombu.reader import Delivery, QueueReader
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.pop_extra_info import NORMAL, PopHandle
from tests.clock import ManualClock

_TASK = b'{"body": "", "properties": {"delivery_info": {"exchange": "", "routing_key": "q"}}}'


def popped(name: str, body: bytes = _TASK) -> PoppedMessage:
    message = ReceivedMessage(
        topic="T", queue=MessageQueue("T", "b", 0), queue_offset=0, physical_offset=0, body=body,
        raw_properties=names.encode({names.UNIQ_KEY: name}).encode(), flag=0, sys_flag=0, born_timestamp_ms=0,
        born_host=bytes(8), store_timestamp_ms=0, store_host=bytes(8), reconsume_times=0, size_bytes=0,
    )  # fmt: skip
    return PoppedMessage(message, "T", PopHandle(0, 0, 0, 0, NORMAL, "b", 0, 0), 1e9)


class _Consumer:
    """Gives `pops` one after the other; `refuses` lets requests fail."""

    def __init__(self) -> None:
        self.pops: list[list[PoppedMessage]] = []
        self.asked: list[tuple[int, float | None]] = []
        self.acknowledged: list[str] = []
        self.returned: list[str] = []
        self.dead: list[str] = []
        self.refuses = False

    async def receive(self, count: int, wait_s: float | None, renew: bool) -> list[PoppedMessage]:
        self.asked.append((count, wait_s))
        if not self.pops:
            await asyncio.Event().wait()
        return self.pops.pop(0)

    async def dead_letter(self, message: PoppedMessage, reason: str) -> None:
        if self.refuses:
            raise ClientError("no broker took it")
        self.dead.append(message.message_id)

    async def ack_all(self, batch: Iterable[PoppedMessage]) -> None:
        if self.refuses:
            raise ClientError("no broker took it")
        self.acknowledged += [one.message_id for one in batch]

    async def nack(self, message: PoppedMessage, after_s: float) -> None:
        self.returned.append(message.message_id)

    async def close(self) -> None:
        pass


class _Reader:
    """A reader, and what it reads from and for: an application with a prefetch count of `prefetch`."""

    def __init__(self, prefetch: int = 32, pace: int = 0) -> None:
        self.consumer, self.clock = _Consumer(), ManualClock()
        self.waiting: list[Delivery] = []
        self._prefetch, self._pace = prefetch, pace
        self.queue = QueueReader(QueueBindings("q"), cast("SimpleConsumer", self.consumer), self, self.clock)

    def room(self) -> int:
        return self._prefetch - len(self.waiting)

    def ahead(self) -> int:
        return self._pace

    def min_room(self, ahead: int) -> int:
        return 1

    def deliver(self, found: Sequence[Delivery]) -> None:
        self.waiting += found

    def surplus(self, reader: QueueReader) -> Sequence[Delivery]:
        found, self.waiting = self.waiting[self._prefetch :], self.waiting[: self._prefetch]
        return found

    async def taken(self, *pop: PoppedMessage) -> list[str]:
        """Return the ids of what the application gets of a pop."""
        self.consumer.pops.append(list(pop))
        return [one.popped.message_id for one in await self.queue.take(32)]


async def test_a_foreign_message_that_no_broker_takes_leaves_the_others_of_its_pop() -> None:
    reader = _Reader()
    reader.consumer.refuses = True
    assert await reader.taken(popped("a"), popped("foreign", b"x"), popped("b")) == ["a", "b"]
    await reader.queue.close()
    assert sorted(reader.consumer.returned) == ["a", "b", "foreign"]


_INFO = {"exchange": "", "routing_key": "q"}


@pytest.mark.parametrize(
    "changed",
    [
        {"properties": {"delivery_info": {"exchange": "", "routing_key": 7}}},
        {"properties": {"delivery_info": {"exchange": ["e"], "routing_key": "q"}}},
        {"properties": {"delivery_info": ["exchange"]}},
        {"properties": []},
        {"properties": {"delivery_info": _INFO, "body_encoding": "base64"}, "body": "x"},
        {"properties": {"delivery_info": _INFO, "body_encoding": "rot13"}},
        {"body": 7},
        {"body": {"__type__": "decimal", "__value__": "x"}},
        {"headers": []},
        {"content-type": {}},
    ],
)
async def test_a_malformed_message_becomes_a_dead_letter_and_harms_no_other(
    changed: dict[str, object],
) -> None:
    body = json.dumps({"body": "", "properties": {"delivery_info": _INFO}} | changed).encode()
    reader = _Reader()
    assert await reader.taken(popped("a"), popped("malformed", body), popped("b")) == ["a", "b"]
    await reader.queue.close()
    assert reader.consumer.dead == ["malformed"]


async def test_an_expiration_that_is_no_number_expires_nothing() -> None:
    body = json.dumps({"body": "", "properties": {"delivery_info": _INFO, "expiration": float("inf")}}).encode()
    reader = _Reader()
    assert await reader.taken(popped("a", body)) == ["a"]
    await reader.queue.close()


async def test_a_fast_application_gets_messages_ahead_and_they_go_back_when_it_is_stuck() -> None:
    reader = _Reader(prefetch=2, pace=3)
    reader.consumer.pops = [[popped("a"), popped("b")], [popped("c"), popped("d"), popped("e")]]
    reader.queue.start()
    while len(reader.consumer.returned) < 3:
        await asyncio.sleep(0.01)
    # The first pop waits for messages.  It brought all that it asked for, so the second one reads ahead.
    assert reader.consumer.asked == [(2, None), (3, 0.0)]
    assert [one.popped.message_id for one in reader.waiting] == ["a", "b"]
    assert sorted(reader.consumer.returned) == ["c", "d", "e"]
    await reader.queue.close()


async def test_a_message_too_many_for_a_moment_stays_with_an_application_that_goes_on() -> None:
    reader = _Reader(prefetch=2)
    reader.consumer.pops = [[popped("a"), popped("b"), popped("c")]]
    reader.queue.start()
    while len(reader.waiting) < 3:
        await asyncio.sleep(0)
    for _ in range(2):
        reader.waiting.pop(0)
        reader.queue.room_changed()
    while len(reader.consumer.asked) < 2:
        await asyncio.sleep(0)
    assert reader.consumer.asked == [(2, None), (1, None)]
    assert reader.consumer.returned == []
    reader.waiting.clear()
    await reader.queue.close()


async def test_a_pop_that_waits_asks_for_no_more_than_the_prefetch_count() -> None:
    reader = _Reader(prefetch=2, pace=3)
    reader.consumer.pops = [[popped("a")]]
    reader.queue.start()
    while len(reader.consumer.asked) < 2:
        await asyncio.sleep(0)
    assert reader.consumer.asked == [(2, None), (1, None)]
    await reader.queue.close()
