"""Orderly consumers against a real broker."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from sprocket import (
    ClientError,
    ConsumeFrom,
    Consumer,
    Message,
    OrderlyConsumer,
    OrderlySettings,
    Producer,
    ReceivedMessage,
)
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import ConsumerIdList, LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)
from sprocket.testing import Broker
from tests.clock import ManualClock
from tests.waiting import until

Handler = Callable[[ReceivedMessage], Awaitable[None]]


class Log:
    """What members of a group have handled: per queue, when each began and ended, in one count for all."""

    def __init__(self) -> None:
        self.tick = 0
        self.spans: defaultdict[MessageQueue, list[tuple[int, int, int, str]]] = defaultdict(list)
        self.running: dict[MessageQueue, str] = {}
        self.overlaps: list[tuple[MessageQueue, str, str]] = []

    def handler(self, member: str, pause_s: float = 0.002) -> Handler:
        async def handle(message: ReceivedMessage) -> None:
            queue = message.queue
            if queue in self.running:
                self.overlaps.append((queue, self.running[queue], member))
            self.running[queue] = member
            self.tick += 1
            began = self.tick
            await asyncio.sleep(pause_s)
            self.tick += 1
            self.running.pop(queue, None)
            self.spans[queue].append((began, self.tick, message.queue_offset, member))

        return handle

    @property
    def handled(self) -> int:
        return sum(len(spans) for spans in self.spans.values())

    def check(self, per_queue: int) -> None:
        """No two at once, every message once, in the order of its queue."""
        assert not self.overlaps
        for spans in self.spans.values():
            assert [offset for _, _, offset, _ in spans] == list(range(per_queue))
            assert all(earlier[1] < later[0] for earlier, later in pairwise(spans))

    def members(self) -> set[str]:
        return {member for spans in self.spans.values() for _, _, _, member in spans}


async def send(broker: Broker, topic: str, per_queue: int) -> None:
    async with Producer("g", broker.namesrv) as producer:
        queues = await producer.queues(topic)
        await asyncio.gather(
            *(_send_in_order(producer, queue, per_queue) for queue in queues),
        )


async def _send_in_order(producer: Producer, queue: MessageQueue, count: int) -> None:
    for number in range(count):
        await producer.send(Message(queue.topic, b"%d" % number), queue=queue)


@asynccontextmanager
async def member(
    broker: Broker,
    topic: str,
    handle: Handler,
    concurrency: int = 20,
    settings: OrderlySettings | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[OrderlyConsumer]:
    group = f"o-{topic}"
    consumer = OrderlyConsumer(
        group, [topic], broker.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings, clock=clock
    )
    async with consumer:
        work = asyncio.create_task(consumer.run(handle, concurrency=concurrency))
        yield consumer
        await consumer.close()
        await work


def own(consumer: Consumer, topic: str) -> int:
    return sum(queue.topic == topic for queue in consumer.assignment)


async def test_queues_side_by_side_and_each_in_order(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 50)
    log, most = Log(), 0
    inner = log.handler("a")

    async def handle(message: ReceivedMessage) -> None:
        nonlocal most
        await inner(message)
        most = max(most, len(log.running) + 1)

    async with member(shared_broker, topic, handle):
        await until(lambda: log.handled == 200)
    log.check(50)
    assert most == 4


@pytest.mark.code(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
async def test_members_come_and_go_and_no_queue_is_handled_by_two(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 250)
    log = Log()
    async with member(shared_broker, topic, log.handler("a")) as first:
        await until(lambda: log.handled > 100)
        async with member(shared_broker, topic, log.handler("b")) as second:
            await until(lambda: own(first, topic) == own(second, topic) == 2)
            before = log.handled
            await until(lambda: log.handled > before + 100)
        await until(lambda: log.handled == 1000)
    log.check(250)
    assert log.members() == {"a", "b"}


async def test_queue_is_handed_over_only_when_its_handler_is_through(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 4)
    log, may_go = Log(), asyncio.Event()
    inner = log.handler("a")

    async def slow(message: ReceivedMessage) -> None:
        queue, _ = message.queue, log.running.setdefault(message.queue, "a")
        await may_go.wait()
        log.running.pop(queue)
        await inner(message)

    async with member(shared_broker, topic, slow) as first:
        await until(lambda: len(log.running) == 4)
        async with member(shared_broker, topic, log.handler("b")) as second:
            await until(lambda: own(first, topic) == 2)  # it lets two go
            await asyncio.sleep(1.5)  # the other tries to have them meanwhile
            assert own(second, topic) == 0
            assert log.handled == 0
            may_go.set()
            await until(lambda: own(second, topic) == 2)
            await until(lambda: log.handled == 16)
    log.check(4)


async def test_message_that_fails_is_tried_in_place_and_then_dead(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 3)
    seen: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    async def handle(message: ReceivedMessage) -> None:
        seen[message.queue.queue_id].append((message.queue_offset, message.reconsume_times))
        if message.queue.queue_id == 0 and message.queue_offset == 1 and message.reconsume_times < 2:
            raise ValueError("not yet")
        if message.queue.queue_id == 1 and message.queue_offset == 1:
            raise ValueError("never")

    settings = OrderlySettings(max_reconsume_times=3, suspend_current_queue_time_s=0.01)
    async with member(shared_broker, topic, handle, settings=settings):
        await until(lambda: sum(map(len, seen.values())) == 3 * 4 + 2 + 3)
    assert seen[0] == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert seen[1] == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    async with Consumer("dead", [f"%DLQ%o-{topic}"], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as dead:
        message = await anext(dead)
        assert (message.body, message.properties["RETRY_TOPIC"]) == (b"1", topic)
        await dead.ack(message)


class Stranger:
    """Client that asks the broker for locks of the group."""

    def __init__(self, broker: Broker, group: str) -> None:
        self.remoting = RemotingClient()
        self._address = broker.address
        self._group = group

    async def lock(self, queue: MessageQueue, client_id: str = "somebody") -> list[MessageQueue]:
        body = dumps(LockBatchRequestBody(self._group, client_id, mq_set=[queue]))
        answer = await self.remoting.invoke(self._address, RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), body)
        return loads(answer.body, LockBatchResponseBody).lock_ok_mq_set

    async def unlock(self, queue: MessageQueue, client_id: str = "somebody") -> None:
        body = dumps(LockBatchRequestBody(self._group, client_id, mq_set=[queue]))
        await self.remoting.invoke(self._address, RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), body)

    async def members(self) -> list[str]:
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._group)
        answer = await self.remoting.invoke(self._address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        return loads(answer.body, ConsumerIdList).consumer_id_list


async def test_queue_whose_lock_is_lost_is_released_and_started_again(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 2)
    log, clock, stranger = Log(), ManualClock(), Stranger(shared_broker, f"o-{topic}")
    async with member(shared_broker, topic, log.handler("a"), clock=clock) as consumer:
        await until(lambda: log.handled == 8)
        queue = next(queue for queue in consumer.assignment if queue.topic == topic)
        (client_id,) = await stranger.members()
        assert await stranger.lock(queue) == []
        await stranger.unlock(queue, client_id)
        assert await stranger.lock(queue) == [queue]
        clock.advance(30.1)  # no lock is trusted any longer than 30 s
        await send(shared_broker, topic, 2)
        await until(lambda: log.handled == 14)
        assert own(consumer, topic) == 3
        assert len(log.spans[queue]) == 2
        await stranger.unlock(queue)
        await until(lambda: log.handled == 16)
    await stranger.remoting.close()
    log.check(4)


async def test_locks_are_released_at_the_end(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 2)
    log, stranger = Log(), Stranger(shared_broker, f"o-{topic}")
    async with member(shared_broker, topic, log.handler("a")) as consumer:
        await until(lambda: log.handled == 8)
        queues = [queue for queue in consumer.assignment if queue.topic == topic]
    for queue in queues:
        assert await stranger.lock(queue) == [queue]
        await stranger.unlock(queue)
    await stranger.remoting.close()


async def test_one_at_a_time_when_told_so_and_misuse(shared_broker: Broker, topic: str) -> None:
    await send(shared_broker, topic, 5)
    running = most = done = 0
    told: list[BaseException] = []

    async def handle(message: ReceivedMessage) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        if not told:
            with pytest.raises(ClientError, match="own handler") as error:
                await consumer.close()
            told.append(error.value)
        running -= 1
        done += 1

    async with member(shared_broker, topic, handle, concurrency=1) as consumer:
        await until(lambda: done == 20)
        with pytest.raises(ClientError, match="iteration"):
            await anext(consumer)
        with pytest.raises(ClientError, match="one `run`"):
            await consumer.run(handle)
    assert most == 1
