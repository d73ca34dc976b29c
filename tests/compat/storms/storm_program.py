"""The program of a storm with the project's own client: orders and lines are those of Java's `compat.storm.Storm`.

``python -m tests.compat.storms.storm_program <name servers> <run> <period ms> <kind>...``
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from sprocket import (
    ConsumeFrom,
    Consumer,
    Message,
    MessageModel,
    MessageQueue,
    OrderlyConsumer,
    OrderlySettings,
    Producer,
    ReceivedMessage,
    SendResult,
    SendSettings,
    SqlFilter,
    TransactionProducer,
    TransactionState,
)
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.consume.consume_settings import ConsumeSettings
from sprocket.client.consume.handling import ReconsumeLater
from tests.compat.storms.kinds import DEAD_LETTERS, FIRST, SECOND, SHARDS, number

BATCH = 8
REPLY_S = 15.0
MAX_RETRIES = 2
HANDLER_S = 0.003
_EXPRESSIONS: Mapping[str, str | SqlFilter] = {
    "tag-filter": "A || C",
    "sql-filter": SqlFilter("a BETWEEN 2 AND 5 OR a = 9"),
}


def micros() -> int:
    return time.time_ns() // 1_000


def line(*fields: object) -> None:
    print("\t".join(" ".join(str(field).split()) for field in fields), flush=True)


class Traffic:
    """One kind: its producer, its consumers, and what it writes down."""

    def __init__(self, name_servers: str, run: str, kind: str) -> None:
        self.kind = kind
        self.topic, self.group = f"S-{run}-{kind}", f"SG-{run}-{kind}"
        self._client = ClientSettings(
            namesrv=name_servers,
            poll_name_server_interval_s=1.0,
            heartbeat_broker_interval_s=1.0,
            persist_consumer_offset_interval_s=1.0,
        )
        self._stays = AsyncExitStack()
        self._ends: dict[str, Callable[[], Awaitable[None]]] = {}
        self._queues: list[MessageQueue] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._producer: Producer

    async def begin(self) -> None:
        """Open what sends; one attempt per send, so that what is acknowledged stands at one place."""
        settings = SendSettings(retry_times_when_send_failed=0)
        group = f"{self.group}-producer"
        if self.kind == "transaction":
            self._producer = TransactionProducer(group, checker=self._checked, settings=settings, client=self._client)
        else:
            self._producer = Producer(group, settings=settings, client=self._client)
        await self._stays.enter_async_context(self._producer)
        if self.kind == "orderly":
            self._queues = sorted(await self._producer.queues(self.topic), key=lambda q: (q.broker_name, q.queue_id))

    # Sending

    def spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def send(self, count: int) -> None:
        """Message number `count`, or batch; what became of it is written down."""
        if self.kind == "request-reply":
            self.spawn(self._request(count))
        elif self.kind == "async":
            self.spawn(self._send_one(count))
        elif self.kind == "batch":
            await self._send_batch(count)
        else:
            await self._send_one(count)

    def _key(self, count: int) -> str:
        return f"{self.kind}-{count:06}"

    def _message(self, count: int) -> Message:
        message = Message(self.topic, self._key(count).encode(), tags="T", keys=self._key(count))
        if self.kind == "tag-filter":
            message.tags = "ABC"[count % 3]
        elif self.kind == "sql-filter":
            message.properties = {"a": str(count % 10)}
        elif self.kind == "delay-level":
            message.delay_level = 1 + count % 2
        elif self.kind == "delay-time":
            message.delay_ms = 1_000 + 1_000 * (count % 4)
        return message

    async def _send_one(self, count: int) -> None:
        key, began, message = self._key(count), micros(), self._message(count)
        try:
            if self.kind == "oneway":
                await self._producer.send_oneway(message)
                line("UNSURE", self.kind, key, began, micros(), "oneway")
                return
            sent: SendResult
            if isinstance(self._producer, TransactionProducer):
                sent = await self._producer.send_in_transaction(message, self._local)
            elif self._queues:
                queue = self._queues[count % SHARDS % len(self._queues)]
                sent = await self._producer.send(message, queue=queue)
            else:
                sent = await self._producer.send(message)
        except Exception as failure:
            line("UNSURE", self.kind, key, began, micros(), failure)
            return
        is_placed = not message.is_delayed and self.kind != "transaction"
        place = (sent.queue.broker_name, sent.queue.queue_id, sent.queue_offset) if is_placed else ("", -1, -1)
        line("SENT", self.kind, key, began, micros(), *place)

    async def _send_batch(self, count: int) -> None:
        counts = range(count * BATCH, count * BATCH + BATCH)
        began = micros()
        try:
            sent = await self._producer.send_batch([self._message(one) for one in counts])
        except Exception as failure:
            for one in counts:
                line("UNSURE", self.kind, self._key(one), began, micros(), failure)
            return
        for index, one in enumerate(counts):
            place = sent.queue.broker_name, sent.queue.queue_id, sent.queue_offset + index
            line("SENT", self.kind, self._key(one), began, micros(), *place)

    async def _request(self, count: int) -> None:
        key, began = self._key(count), micros()
        try:
            reply = await self._producer.request(self._message(count), timeout_s=REPLY_S)
            line("REPLY", self.kind, key, began, micros(), reply.body.decode())
        except Exception as failure:
            line("REPLY", self.kind, key, began, micros(), failure)
        line("UNSURE", self.kind, key, began, micros(), "the reply tells")

    def _local(self, message: Message, transaction_id: str) -> TransactionState:
        """Of four transactions one commits, one rolls back, one commits when asked, one rolls back when asked."""
        way = number(message.body.decode()) % 4
        return (TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN)[min(way, 2)]

    def _checked(self, message: ReceivedMessage) -> TransactionState:
        key = message.body.decode()
        line("ASKED", self.kind, key, micros(), micros())
        return TransactionState.ROLLBACK if number(key) % 2 else TransactionState.COMMIT

    # Consuming

    async def join(self, name: str) -> None:
        """One more consumer of the group."""
        if self.kind == "retry" and name == FIRST:
            await self._open(DEAD_LETTERS, f"{self.group}-{DEAD_LETTERS}", f"%DLQ%{self.group}")
        await self._open(name, self.group, self.topic)

    async def leave(self, name: str) -> None:
        await self._ends.pop(name)()

    async def _open(self, name: str, group: str, topic: str) -> None:
        topics = {topic: _EXPRESSIONS.get(self.kind, "*")}
        if self.kind == "orderly":
            consumer: Consumer = OrderlyConsumer(
                group, topics, consume_from=ConsumeFrom.FIRST, settings=OrderlySettings(), client=self._client
            )
        else:
            model = MessageModel.BROADCASTING if self.kind == "broadcasting" else MessageModel.CLUSTERING
            settings = ConsumeSettings(max_reconsume_times=MAX_RETRIES)
            consumer = Consumer(
                group, topics, model=model, consume_from=ConsumeFrom.FIRST, settings=settings, client=self._client
            )
        await consumer.__aenter__()
        self.spawn(consumer.run(lambda message: self._got(consumer, name, message), concurrency=4))
        self._ends[name] = consumer.close

    async def _got(self, consumer: Consumer, name: str, message: ReceivedMessage) -> None:
        key, began, queue = message.body.decode(), micros(), message.queue
        if self.kind == "orderly":
            await asyncio.sleep(HANDLER_S)
        place = queue.broker_name, queue.queue_id, message.queue_offset
        line("GOT", self.kind, key, began, micros(), *place, name, message.reconsume_times, queue.topic)
        if self.kind == "request-reply":
            await consumer.reply(message, f"re: {key}".encode())
        elif self.kind == "retry" and name != DEAD_LETTERS:
            count = number(key)
            if count % 11 == 0 or (count % 7 == 0 and message.reconsume_times == 0):
                raise ReconsumeLater(1)


class Program:
    """All kinds, and the orders."""

    def __init__(self, name_servers: str, run: str, period_ms: int, kinds: Sequence[str]) -> None:
        self._traffic = [Traffic(name_servers, run, kind) for kind in kinds]
        self._period_s = period_ms / 1000
        self._is_sending = True
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        await self._at_once("ready", Traffic.begin)
        orders = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        while (order := (await orders.readline()).decode().strip()) not in ("", "exit"):
            await self._obey(order)
        os._exit(0)

    async def _obey(self, order: str) -> None:
        if order == "start":
            await self._at_once("started", lambda each: each.join(FIRST))
        elif order == "send":
            self._tasks = [asyncio.create_task(self._send_on(each)) for each in self._traffic]
        elif order == "join":
            await self._at_once("joined", lambda each: each.join(SECOND))
        elif order == "leave":
            await self._at_once("left", lambda each: each.leave(FIRST))
        elif order == "stop":
            self._is_sending = False
            line("PHASE", "stopped", micros())
        else:
            raise ValueError(order)

    async def _at_once(self, phase: str, step: Callable[[Traffic], Awaitable[None]]) -> None:
        """Every kind takes the step; what fails is written down for its kind, and the others go on."""
        results = await asyncio.gather(*(step(each) for each in self._traffic), return_exceptions=True)
        for each, result in zip(self._traffic, results, strict=True):
            if isinstance(result, BaseException):
                line("TROUBLE", each.kind, repr(result))
        line("PHASE", phase, micros())

    async def _send_on(self, each: Traffic) -> None:
        count = 0
        while self._is_sending:
            await each.send(count)
            count += 1
            await asyncio.sleep(self._period_s)


if __name__ == "__main__":
    asyncio.run(Program(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]).run())
