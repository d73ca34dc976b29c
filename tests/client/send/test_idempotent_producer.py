"""The idempotent producer: one queue for all attempts, and one message at a Sprocket broker whatever is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.server import Broker
from sprocket import IllegalArgument, Message, Producer, SendFailed, SendSettings, SendStatus, TransactionProducer
from sprocket.client.send.queue_choice import RoundRobin
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.properties import IDEMPOTENCE_ID, parse
from sprocket.sync import Producer as BlockingProducer
from tests.broker.rig import broker_config, store_config
from tests.client.fake_cluster import FakeBroker, FakeNameServer, hang_up, refuse, topic_data

TOPIC = "T"


def idempotent(name_server: FakeNameServer, **settings: object) -> Producer:
    made = Producer("g", name_server.address, settings=SendSettings(idempotent=True, **settings))  # type: ignore[arg-type]
    made._sender._round_robin = RoundRobin()
    return made


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[FakeNameServer, FakeBroker, FakeBroker]]:
    """Brokers that know nothing of idempotence, such as RocketMQ's."""
    async with FakeNameServer() as name_server, FakeBroker("a") as a, FakeBroker("b") as b:
        name_server.topics[TOPIC] = topic_data(a, b)
        yield name_server, a, b


async def test_a_retry_goes_to_the_broker_that_may_have_the_message() -> None:
    async with two_brokers() as (name_server, a, b), idempotent(name_server) as producer:
        await producer.send(Message(TOPIC, b"x"))
        await producer.send(Message(TOPIC, b"x"))
        a.script.append(hang_up)
        result = await producer.send(Message(TOPIC, b"y"))
        assert (result.queue.broker_name, result.duplicates) == ("a", None)
        (sent,) = [request for request in a.taken if request.body == b"y"]
        properties = parse(sent.header.properties)
        assert properties[IDEMPOTENCE_ID] == properties["UNIQ_KEY"] == result.message_id
        assert all(request.body != b"y" for request in b.taken)


async def test_a_refused_message_may_go_to_another_broker() -> None:
    async with two_brokers() as (name_server, a, _), idempotent(name_server) as producer:
        await producer.send(Message(TOPIC, b"x"))
        await producer.send(Message(TOPIC, b"x"))
        a.script.append(refuse(ResponseCode.SYSTEM_BUSY))
        assert (await producer.send(Message(TOPIC, b"y"))).queue.broker_name == "b"


async def test_one_key_goes_to_one_queue() -> None:
    async with two_brokers() as (name_server, _, _):
        places = set()
        for _ in range(3):
            async with idempotent(name_server) as producer:
                for number in range(4):
                    result = await producer.send(Message(TOPIC, b"x", unique_key=f"order-{number}"))
                    places.add((number, result.queue.broker_name, result.message_id))
        assert len(places) == 4
        assert {name for _, name, _ in places} == {"a", "b"}


async def test_a_broker_that_stays_away_fails_the_send() -> None:
    async with two_brokers() as (name_server, a, b), idempotent(name_server) as producer:
        await producer.send(Message(TOPIC, b"x"))
        await producer.send(Message(TOPIC, b"x"))
        a.script.extend([hang_up] * 3)
        with pytest.raises(SendFailed):
            await producer.send(Message(TOPIC, b"y"))
        assert all(request.body != b"y" for request in (*a.taken, *b.taken))


async def test_what_an_idempotent_producer_refuses() -> None:
    with pytest.raises(IllegalArgument, match="auto_batch"):
        SendSettings(idempotent=True, auto_batch=True)
    settings = SendSettings(idempotent=True)
    async with (
        two_brokers() as (name_server, _, _),
        TransactionProducer("g", name_server.address, checker=print, settings=settings) as producer,  # type: ignore[arg-type]
    ):
        with pytest.raises(IllegalArgument, match="transaction"):
            await producer.send_in_transaction(Message(TOPIC, b"x"), print)  # type: ignore[arg-type]


class Cut:
    """A way to a broker that can cut off the next answers: the broker has the message, the producer hears nothing."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.cuts = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        there = asyncio.create_task(self._copy(reader, far_writer))
        self._tasks.add(there)
        try:
            while data := await far_reader.read(1 << 16):
                if self.cuts and b"msgId" in data:
                    self.cuts -= 1
                    break
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            there.cancel()
            writer.transport.abort()
            far_writer.transport.abort()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)


@asynccontextmanager
async def cut_cluster(root: Path) -> AsyncIterator[tuple[FakeNameServer, Cut, Broker]]:
    """A Sprocket broker behind a `Cut`."""
    broker = Broker(broker_config(), store_config(root))
    await broker.start()
    cut = Cut(broker.port)
    server = await asyncio.start_server(cut.serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with FakeNameServer() as name_server:
            name_server.topics[TOPIC] = topic_data(("broker-a", address), queues=2)
            yield name_server, cut, broker
    finally:
        server.close()
        await broker.stop()


def count(broker: Broker) -> int:
    return sum(broker.store.max_offset(TOPIC, queue_id) for queue_id in range(8))


async def test_a_lost_answer_stores_nothing_twice(tmp_path: Path) -> None:
    async with cut_cluster(tmp_path) as (name_server, cut, broker), idempotent(name_server) as producer:
        first = await producer.send(Message(TOPIC, b"0"))
        assert first.duplicates == 0
        cut.cuts = 2
        result = await producer.send(Message(TOPIC, b"1"))
        assert (result.status, result.duplicates, count(broker)) == (SendStatus.SEND_OK, 1, 2)
        cut.cuts = 1
        batch = await producer.send_batch([Message(TOPIC, b"%d" % number) for number in range(5)])
        assert (batch.duplicates, count(broker)) == (5, 7)
        cut.cuts = 1
        results = [result async for result in producer.send_many(Message(TOPIC, b"%d" % n) for n in range(20))]
        assert len({result.message_id for result in results}) == 20
        assert count(broker) == 27


async def test_a_restarted_application_sends_its_key_again(tmp_path: Path) -> None:
    async with cut_cluster(tmp_path) as (name_server, _, broker):
        async with idempotent(name_server) as producer:
            first = await producer.send(Message(TOPIC, b"1", unique_key="order-17"))
        async with idempotent(name_server) as producer:
            again = await producer.send(Message(TOPIC, b"1", unique_key="order-17"))
        assert (first.duplicates, again.duplicates, count(broker)) == (0, 1, 1)
        assert (again.message_id, again.offset_message_id) == (first.message_id, first.offset_message_id)
        assert (again.queue, again.queue_offset) == (first.queue, first.queue_offset)


async def test_an_ordinary_producer_stores_what_it_repeats(tmp_path: Path) -> None:
    """The same fault without the setting: this test would see a broker that compares ordinary messages."""
    async with cut_cluster(tmp_path) as (name_server, cut, broker), Producer("g", name_server.address) as producer:
        await producer.send(Message(TOPIC, b"0"))
        cut.cuts = 1
        result = await producer.send(Message(TOPIC, b"1"))
        assert (result.duplicates, count(broker)) == (None, 3)


async def test_a_blocking_producer_is_idempotent_too(tmp_path: Path) -> None:
    def send(address: str) -> list[int | None]:
        with BlockingProducer("g", address, settings=SendSettings(idempotent=True)) as producer:
            return [producer.send(Message(TOPIC, b"x", unique_key="order-17")).duplicates for _ in range(2)]

    async with cut_cluster(tmp_path) as (name_server, _, broker):
        assert await asyncio.to_thread(send, name_server.address) == [0, 1]
        assert count(broker) == 1
