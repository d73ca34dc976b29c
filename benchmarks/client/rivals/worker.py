"""Process of one client: it sends and consumes as it is told on its standard input, and prints what that cost.

    python -m benchmarks.client.rivals.worker sprocket|sprocket-batch|nats|kafka ADDRESS

Every send is acknowledged by the server, with 256 outstanding.  Every consumer begins with the oldest message and
acknowledges in its client's usual way.
"""

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

_BODY = b"x" * 128
_TOPIC = "Rivals"
_WINDOW = 256
Begun = Callable[[], None]


class Client(Protocol):
    """One library with its server."""

    async def open(self, address: str) -> None: ...

    async def close(self) -> None: ...

    async def send(self, count: int) -> None:
        """Send `count` messages and wait for all acknowledgements."""
        ...

    async def consume(self, count: int, group: str, begun: Begun) -> None:
        """Consume and acknowledge `count` messages in a new `group`; `begun` is called at the first."""
        ...


class Sprocket:
    """Our client: one request for each message."""

    async def open(self, address: str) -> None:
        import sprocket

        self._mq = await sprocket.connect(address).__aenter__()
        self._message = lambda: sprocket.Message(_TOPIC, _BODY)
        self._first = sprocket.ConsumeFrom.FIRST

    async def close(self) -> None:
        await self._mq.close()

    async def send(self, count: int) -> None:
        messages = (self._message() for _ in range(count))
        async for _ in self._mq.producer().send_many(messages, window=_WINDOW):
            pass

    async def consume(self, count: int, group: str, begun: Begun) -> None:
        consumer = self._mq.consumer(group, _TOPIC, consume_from=self._first)
        left = count
        async for message in consumer:
            if left == count:
                begun()
            await message.ack()
            left -= 1
            if not left:
                break
        await consumer.close()


class SprocketBatch(Sprocket):
    """Our client with `auto_batch`: messages that are sent at about the same time share a request."""

    async def send(self, count: int) -> None:
        from sprocket import SendSettings

        producer = self._mq.producer("batching", settings=SendSettings(auto_batch=True))
        await _windowed(count, lambda: asyncio.ensure_future(producer.send(self._message())))


class Nats:
    """nats-py: a stream of JetStream in files, and a durable pull consumer."""

    async def open(self, address: str) -> None:
        import nats

        self._connection = await nats.connect(address)
        self._stream = self._connection.jetstream(publish_async_max_pending=_WINDOW)
        await self._stream.add_stream(name=_TOPIC, subjects=[_TOPIC])

    async def close(self) -> None:
        await self._connection.close()

    async def send(self, count: int) -> None:
        waiting: deque[Any] = deque()
        for _ in range(count):
            if len(waiting) == _WINDOW:
                await waiting.popleft()
            waiting.append(await self._stream.publish_async(_TOPIC, _BODY))
        for future in waiting:
            await future

    async def consume(self, count: int, group: str, begun: Begun) -> None:
        consumer = await self._stream.pull_subscribe(_TOPIC, durable=group)
        left = count
        while left:
            for message in await consumer.fetch(min(_WINDOW, left)):
                if left == count:
                    begun()
                await message.ack()
                left -= 1
        await self._connection.flush()
        await consumer.unsubscribe()


class Kafka:
    """aiokafka with acks=1, in its own batches, and with a commit at the end of a consumer."""

    async def open(self, address: str) -> None:
        from aiokafka import AIOKafkaProducer
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        self._address = address
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        await admin.create_topics([NewTopic(_TOPIC, 4, 1)])
        await admin.close()
        self._producer = AIOKafkaProducer(bootstrap_servers=address, acks=1)
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.stop()

    async def send(self, count: int) -> None:
        waiting: deque[Awaitable[Any]] = deque()
        for _ in range(count):
            if len(waiting) == _WINDOW:
                await waiting.popleft()
            waiting.append(await self._producer.send(_TOPIC, _BODY))
        for future in waiting:
            await future

    async def consume(self, count: int, group: str, begun: Begun) -> None:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            _TOPIC, bootstrap_servers=self._address, group_id=group, auto_offset_reset="earliest"
        )
        await consumer.start()
        left = count
        async for _ in consumer:
            if left == count:
                begun()
            left -= 1
            if not left:
                break
        await consumer.commit()
        await consumer.stop()


async def _windowed(count: int, send: Callable[[], Awaitable[object]]) -> None:
    waiting: deque[Awaitable[object]] = deque()
    for _ in range(count):
        if len(waiting) == _WINDOW:
            await waiting.popleft()
        waiting.append(send())
    for future in waiting:
        await future


CLIENTS: dict[str, type[Client]] = {"sprocket": Sprocket, "sprocket-batch": SprocketBatch, "nats": Nats, "kafka": Kafka}


async def measured(client: Client, what: str, count: int, number: int) -> dict[str, float]:
    """Return CPU us of this process for one message, and messages per second."""
    marks = [time.process_time(), time.perf_counter()]

    def begun() -> None:
        marks[:] = time.process_time(), time.perf_counter()

    if what == "send":
        await client.send(count)
    else:
        await client.consume(count, f"group-{number}-{time.time_ns()}", begun)
    cpu_s, wall_s = time.process_time() - marks[0], time.perf_counter() - marks[1]
    return {"cpu_us": cpu_s / count * 1e6, "rate": count / wall_s}


async def lines() -> AsyncIterator[str]:
    """Yield what the parent asks for."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


async def main(name: str, address: str) -> None:
    """Answer the parent until it closes our standard input."""
    client = CLIENTS[name]()
    await client.open(address)
    print("{}", flush=True)
    number = 0
    async for line in lines():
        what, count = line.split()
        number += 1
        print(json.dumps(await measured(client, what, int(count), number)), flush=True)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
