"""Our client over gRPC at Apache RocketMQ's own proxy, 5.3.3: the same application, with nothing of ours but a broker.

RocketMQ's proxy answers "settings is null" to a receive that comes before it has read the client's settings, keeps a
topic's type for a while, accepts no invisible time below 10 s, and answers a batch with one entry.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import sprocket
from sprocket import Message, ReceivedMessage, TransactionState
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.testing import Broker
from tests.compat import maven
from tests.compat.proxies.apache_proxy import ApacheProxy
from tests.proxy.rig import create_group, create_topic

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(600)]
# Java compiles during the first calls, which can take seconds on a busy machine.
_INVISIBLE_S, _ANSWER_S, _LIMIT_S = 40, 20, 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    properties = {"recallMessageEnable": "true", "transactionCheckInterval": "1000", "transactionTimeOut": "1000"}
    with Broker(tmp_path_factory.mktemp("at-apache") / "broker", properties=properties) as started:
        yield started


@pytest.fixture(scope="module")
def address(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home: Path = tmp_path_factory.mktemp("apache") / "home"
    try:
        proxy = ApacheProxy(broker, home)
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    proxy.await_start()
    yield f"grpc://127.0.0.1:{proxy.grpc_port}"
    proxy.end()


def _connect(address: str) -> sprocket.Connection:
    return sprocket.connect(client=ClientSettings(namesrv=address, api_timeout_s=_ANSWER_S))


async def test_simple_consumer_receives_acknowledges_and_rejects(broker: Broker, address: str) -> None:
    topic, group = await create_topic(broker), await create_group(broker)
    async with _connect(address) as mq, asyncio.timeout(_LIMIT_S):
        consumer, producer = mq.simple_consumer(group, topic), mq.producer()
        await consumer.receive(1, invisible=_INVISIBLE_S, wait_s=0.1)
        message = Message(topic, b"hello", tags="red", keys=["k1", "k2"], properties={"colour": "blue"})
        sent = await producer.send(message, timeout_s=_ANSWER_S)
        batch = await producer.send_batch([Message(topic, b"b%d" % number) for number in range(3)])
        found: dict[bytes, sprocket.PoppedMessage] = {}
        while len(found) < 4:
            for received in await consumer.receive(8, invisible=_INVISIBLE_S, wait_s=5):
                found[received.body] = received
        first = found[b"hello"]
        assert (first.tags, first.keys, first.properties["colour"]) == ("red", ["k1", "k2"], "blue")
        assert first.message_id == sent.message_id and len(batch.message_id.split(",")) == 3
        rejected = found.pop(b"b1")
        for received in found.values():
            await received.ack()
        await rejected.nack(1)
        (again,) = await consumer.receive(8, invisible=_INVISIBLE_S, wait_s=20)
        assert (again.body, again.reconsume_times) == (b"b1", 1)
        await again.extend(_INVISIBLE_S)
        await again.dead_letter("enough")
        assert await consumer.receive(8, invisible=_INVISIBLE_S, wait_s=0.1) == []


async def test_push_consumer_keeps_the_order_of_a_key(broker: Broker, address: str) -> None:
    topic, group = await create_topic(broker, "FIFO"), await create_group(broker, consume_message_orderly=True)
    seen: dict[str, list[int]] = {"one": [], "two": []}
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        seen[message.sharding_key].append(int(message.body))
        if sum(map(len, seen.values())) == 20:
            done.set()

    async with _connect(address) as mq, asyncio.timeout(_LIMIT_S):
        await mq.simple_consumer(group, topic).receive(1, invisible=_INVISIBLE_S, wait_s=0.1)
        consumer, producer = mq.consumer(group, topic), mq.producer()
        handling = asyncio.create_task(consumer.run(handle))
        for number in range(10):
            for key in seen:
                await producer.send(Message(topic, b"%d" % number), sharding_key=key)
        await done.wait()
        consumer.stop()
        await handling
    assert seen == {"one": list(range(10)), "two": list(range(10))}


async def test_recalled_message_is_never_delivered(broker: Broker, address: str) -> None:
    topic, group = await create_topic(broker, "DELAY"), await create_group(broker)
    async with _connect(address) as mq, asyncio.timeout(_LIMIT_S):
        consumer, producer = mq.simple_consumer(group, topic), mq.producer()
        await consumer.receive(1, invisible=_INVISIBLE_S, wait_s=0.1)
        await producer.send(Message(topic, b"kept", delay=8))
        gone = await producer.send(Message(topic, b"gone", delay=6))
        assert gone.recall_handle is not None
        assert await producer.recall(gone.recall_handle) == gone.message_id
        (received,) = await consumer.receive(2, invisible=_INVISIBLE_S, wait_s=20)
        assert received.body == b"kept"
        await received.ack()


async def test_checker_decides_open_transactions(broker: Broker, address: str) -> None:
    topic, group = await create_topic(broker, "TRANSACTION"), await create_group(broker)
    async with _connect(address) as mq, asyncio.timeout(_LIMIT_S):
        consumer = mq.simple_consumer(group, topic)
        await consumer.receive(1, invisible=_INVISIBLE_S, wait_s=0.1)
        async with mq.transaction_producer("makers", checker=lambda message: TransactionState.COMMIT) as producer:
            for state in TransactionState:
                await producer.send_in_transaction(Message(topic, state.name.encode()), lambda _, __, s=state: s)
            found: set[bytes] = set()
            while len(found) < 2:
                for message in await consumer.receive(4, invisible=_INVISIBLE_S, wait_s=5):
                    found.add(message.body)
                    await message.ack()
    assert found == {b"COMMIT", b"UNKNOWN"}
