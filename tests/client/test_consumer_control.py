"""Control of a consumer: positions, seek, pause, assign, limits, keys, listeners, and a clean stop."""

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

import sprocket
from sprocket import ConsumeFrom, ConsumerListener, IllegalArgument, Message, MessageQueue, ReceivedMessage
from sprocket.testing import Broker
from tests.waiting import until

FIRST = ConsumeFrom.FIRST


@pytest.fixture
async def mq(shared_broker: Broker) -> AsyncIterator[sprocket.Connection]:
    async with sprocket.connect(shared_broker.namesrv) as connection:
        yield connection
    assert asyncio.all_tasks() == {asyncio.current_task()}  # nothing is left behind


async def fill(mq: sprocket.Connection, topic: str, count: int) -> MessageQueue:
    """Send `count` messages to one queue and return it."""
    queue = (await mq.producer().queues(topic))[0]
    await mq.producer().send_batch([Message(topic, b"%d" % number) for number in range(count)], queue=queue)
    return queue


async def test_positions_lag_and_seek(mq: sprocket.Connection, topic: str) -> None:
    queue = await fill(mq, topic, 10)
    consumer = mq.consumer(f"g-{topic}", topic, consume_from=FIRST)
    first, second = await anext(consumer), await anext(consumer)
    await until(lambda: len(consumer.assignment) == 4)
    await first.ack()
    assert (consumer.position(topic)[queue], consumer.committed(topic)[queue]) == (2, 1)
    assert sum((await consumer.lag()).values()) == 9
    await consumer.seek(queue, 8)
    assert second.is_settled
    assert (await anext(consumer)).body == b"8"
    found = await consumer.seek_to_time(datetime(2020, 1, 1, tzinfo=UTC))
    assert found[queue] == 0
    assert (await anext(consumer)).body == b"0"
    with pytest.raises(IllegalArgument, match="not assigned"):
        await consumer.seek(MessageQueue(topic, "other", 0), 1)


async def test_a_topic_that_is_created_again_is_read_from_its_first_message(
    mq: sprocket.Connection, shared_broker: Broker, topic: str
) -> None:
    await fill(mq, topic, 10)
    consumer = mq.consumer(f"g-{topic}", topic, consume_from=FIRST)
    for _ in range(10):
        await (await anext(consumer)).ack()
    await mq.admin.delete_topic(topic, "DefaultCluster")
    shared_broker.create_topic(topic, 4)
    await fill(mq, topic, 15)
    async with asyncio.timeout(30):
        bodies = [(await anext(consumer)).body for _ in range(15)]
    assert bodies == [b"%d" % number for number in range(15)]


async def test_pause_and_resume(mq: sprocket.Connection, topic: str) -> None:
    queue = await fill(mq, topic, 3)
    consumer = mq.consumer(f"g-{topic}", topic, consume_from=FIRST)
    await (await anext(consumer)).ack()
    consumer.pause(queue)
    await mq.producer().send(Message(topic, b"more"), queue=queue)
    assert await consumer.receive(wait_s=0.3) == []
    assert consumer.paused == [queue]
    consumer.resume()
    assert [(await anext(consumer)).body for _ in range(3)] == [b"1", b"2", b"more"]


async def test_assign_takes_queues_without_a_rebalance(mq: sprocket.Connection, topic: str) -> None:
    queue = await fill(mq, topic, 2)
    consumer = mq.consumer(f"g-{topic}", consume_from=FIRST)
    await consumer.assign([queue])
    assert consumer.assignment == [queue]
    assert (await anext(consumer)).body == b"0"
    await consumer.assign([])
    assert consumer.assignment == []


async def test_max_in_flight(mq: sprocket.Connection, topic: str) -> None:
    await fill(mq, topic, 5)
    consumer = mq.consumer(f"g-{topic}", topic, consume_from=FIRST, max_in_flight=2)
    first, _ = await anext(consumer), await anext(consumer)
    waiting = asyncio.create_task(consumer.receive())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await first.ack()
    assert [message.body for message in await waiting] == [b"2"]


async def test_keys_are_handled_in_order_and_side_by_side(mq: sprocket.Connection, topic: str) -> None:
    for number in range(20):
        for key in ("a", "b"):
            await mq.producer().send(Message(topic, b"%d" % number), sharding_key=key)
    consumer = mq.consumer(f"g-{topic}", topic, consume_from=FIRST)
    seen: defaultdict[str, list[int]] = defaultdict(list)
    busy: list[str] = []
    were_busy: set[frozenset[str]] = set()

    async def handle(message: ReceivedMessage) -> None:
        assert message.sharding_key not in busy
        busy.append(message.sharding_key)
        were_busy.add(frozenset(busy))
        await asyncio.sleep(0.002)
        busy.remove(message.sharding_key)
        seen[message.sharding_key].append(int(message.body))
        if sum(map(len, seen.values())) == 40:
            consumer.stop()

    await consumer.run(handle, by_key=True)
    assert seen == {"a": list(range(20)), "b": list(range(20))}
    assert {"a", "b"} in were_busy
    assert consumer.committed(topic) and sum(consumer.committed(topic).values()) == 40


class Heard(ConsumerListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    async def on_assigned(self, queues: list[MessageQueue]) -> None:
        self.events.append(("assigned", queues))

    def on_revoked(self, queues: list[MessageQueue]) -> None:
        self.events.append(("revoked", queues))
        raise LookupError("logged, and nothing more")

    async def on_connection_lost(self, address: str) -> None:
        self.events.append(("lost", address))

    async def on_connection_restored(self, address: str) -> None:
        self.events.append(("restored", address))


async def test_a_listener_hears_of_queues(mq: sprocket.Connection, topic: str) -> None:
    heard, group = Heard(), f"g-{topic}"
    queues = await mq.producer().queues(topic)
    first = mq.consumer(group, topic, listener=heard)
    await first.start()
    await until(lambda: first.assignment == queues)
    await mq.consumer(group, topic).start()
    await until(lambda: len(first.assignment) == 2)
    await first.close()
    assert [what for what, _ in heard.events] == ["assigned", "revoked", "revoked"]
    assert heard.events[0][1] == queues


@pytest.mark.slow
async def test_a_listener_hears_of_connections(tmp_path_factory: pytest.TempPathFactory) -> None:
    heard = Heard()
    with Broker(tmp_path_factory.mktemp("listener")) as broker:
        broker.create_topic("T")
        async with sprocket.connect(broker.namesrv) as mq:
            consumer = mq.consumer("g", "T", listener=heard)
            await consumer.start()
            await until(lambda: len(consumer.assignment) == 4)
            broker.kill()
            await until(lambda: ("lost", broker.address) in heard.events)
            broker.start()
            await until(lambda: ("restored", broker.address) in heard.events)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("consumer", "stop"),
        ("consumer", "cancel"),
        ("consumer", "sigterm"),
        ("simple_consumer", "cancel"),
        ("orderly_consumer", "cancel"),
        ("orderly_consumer", "sigterm"),
    ],
)
async def test_run_stops_with_everything_settled(mq: sprocket.Connection, topic: str, kind: str, how: str) -> None:
    await fill(mq, topic, 3)
    consumer = getattr(mq, kind)(f"g-{topic}", topic, consume_from=FIRST)
    handled: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        if how == "stop":
            consumer.stop()
        elif how == "cancel":
            running.cancel()
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)
        handled.append(message.message_id)

    before = signal.getsignal(signal.SIGTERM)
    running = asyncio.create_task(consumer.run(handle, concurrency=1))
    await asyncio.wait([running], timeout=20)
    assert len(handled) == 1
    assert running.cancelled() == (how == "cancel")
    assert signal.getsignal(signal.SIGTERM) == before
    if kind != "simple_consumer":
        assert sum(consumer.committed(topic).values()) == 1
    await consumer.close()
    # The next member begins after what was handled.
    async with getattr(mq, kind)(f"g-{topic}", topic) as other:
        left: list[str] = []

        async def note(message: ReceivedMessage) -> None:
            left.append(message.message_id)
            if len(left) == 2:
                other.stop()

        await asyncio.wait_for(other.run(note), 30)
        assert not set(left) & set(handled)
