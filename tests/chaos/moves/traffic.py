"""Ordered messages of several keys while queues move: none is lost, none is late within its key."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sprocket import ClientSettings, ConsumeFrom, Consumer, Message, Producer, SendStatus
from sprocket.client.errors import ClientError

KEYS: Final = tuple(f"key-{number}" for number in range(12))
_LIMIT_S: Final = 60.0
_STALL_S: Final = 0.3


class OrderedTraffic:
    """Producers that send the numbers of each key one after the other, and consumers of one group.

    A number may come twice: a send whose response was lost is repeated, and so are messages whose offset was lost.
    The first time it comes, all smaller numbers of its key have come.
    """

    def __init__(self, topic: str, namesrv: str) -> None:
        self.topic = topic
        self.acknowledged = dict.fromkeys(KEYS, -1)
        self.next_numbers = dict.fromkeys(KEYS, 0)
        self.problems: list[str] = []
        self.places: set[tuple[str, int]] = set()  # queues that messages came from, by broker and id
        self._settings = ClientSettings(
            namesrv=namesrv, poll_name_server_interval_s=0.5, heartbeat_broker_interval_s=1.0,
            persist_consumer_offset_interval_s=0.2,
        )  # fmt: skip
        self._is_over = False

    @asynccontextmanager
    async def running(self, producers: int = 2, consumers: int = 2) -> AsyncIterator[None]:
        """Send and consume meanwhile; at the end, wait until everything has come."""
        async with asyncio.TaskGroup() as group:
            senders = [
                group.create_task(self._send_all([key for at, key in enumerate(KEYS) if at % producers == number]))
                for number in range(producers)
            ]
            readers = [group.create_task(self._consume(number)) for number in range(consumers)]
            yield
            self._is_over = True
            await asyncio.gather(*senders)
            await self._until(lambda: not self._missing())
            for reader in readers:
                reader.cancel()

    async def progress(self, count: int) -> None:
        """Wait until `count` more messages of each key are acknowledged, and have come."""
        goals = {key: number + count for key, number in self.acknowledged.items()}
        await self._until(lambda: all(self.next_numbers[key] > goal for key, goal in goals.items()))

    async def _until(self, condition: object) -> None:
        assert callable(condition)
        try:
            async with asyncio.timeout(_LIMIT_S):
                while not condition():
                    assert not self.problems, self.problems[:5]
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"nothing comes any more: {self._missing()}, {self.acknowledged}") from None

    def _missing(self) -> dict[str, tuple[int, int]]:
        return {
            key: (self.next_numbers[key], number)
            for key, number in self.acknowledged.items()
            if self.next_numbers[key] <= number
        }

    async def _send_all(self, keys: list[str]) -> None:
        async with Producer("movers", client=self._settings) as producer, asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(self._send(producer, key))

    async def _send(self, producer: Producer, key: str) -> None:
        number = 0
        while not self._is_over:
            message = Message(self.topic, b"%d" % number, keys=[key])
            try:
                sent = await producer.send(message, sharding_key=key, timeout_s=5)
            except ClientError:
                await asyncio.sleep(0.02)
                continue
            if sent.status is not SendStatus.SEND_OK:
                continue  # too few replicas have it
            self.acknowledged[key] = number
            number += 1
            await asyncio.sleep(0.005)

    async def _consume(self, number_of_consumer: int) -> None:
        clock = asyncio.get_running_loop().time
        async with Consumer("readers", [self.topic], client=self._settings, consume_from=ConsumeFrom.FIRST) as consumer:
            async for message in consumer:
                if not number_of_consumer and clock() % (2 * _STALL_S) < _STALL_S:
                    await asyncio.sleep(_STALL_S)  # it lags again and again, so that others could overtake it
                (key,), number = message.keys, int(message.body)
                expected = self.next_numbers[key]
                if number > expected:
                    self.problems.append(f"{key}: {number} came before {expected}, in queue {message.queue}")
                self.next_numbers[key] = max(expected, number + 1)
                self.places.add((message.queue.broker_name, message.queue.queue_id))
                await consumer.ack(message)
