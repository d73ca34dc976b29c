"""Transactions end to end: our producer, a real broker, a consumer that sees what was committed and nothing else."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from sprocket import (
    ClientSettings,
    ConsumeFrom,
    Consumer,
    IllegalMessage,
    Message,
    ReceivedMessage,
    SendSettings,
    TransactionProducer,
    TransactionState,
)
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.transaction_lookup import OpenTransaction, open_transactions
from sprocket.remoting.codes import RequestCode
from sprocket.testing import Broker

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    properties = {
        "transactionCheckInterval": "100", "transactionTimeOut": "50", "transactionCheckMax": "1000",
        "flushDiskType": "SYNC_FLUSH",
    }  # fmt: skip
    with Broker(tmp_path_factory.mktemp("transactions"), properties=properties) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"Paid{next(_numbers)}"
    broker.create_topic(name, 2)
    return name


def never(message: ReceivedMessage) -> TransactionState:
    raise AssertionError(f"asked about {message}")


async def received(broker: Broker, topic: str, wanted: int) -> list[str]:
    """Bodies of the first messages; what must not come would have come after them."""
    bodies = []
    async with Consumer(f"read-{topic}", [topic], broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        async for message in consumer:
            bodies.append(message.body.decode())
            await consumer.ack(message)
            if len(bodies) == wanted:
                return sorted(bodies)
    return bodies


async def unresolved(broker: Broker, topic: str) -> list[OpenTransaction]:
    async with AdminClient([broker.namesrv]) as admin:
        return [found for found in await open_transactions(admin) if found.topic == topic]


async def test_consumers_see_what_was_committed(broker: Broker, topic: str) -> None:
    async with TransactionProducer("payers", broker.namesrv, checker=never) as producer:
        outcomes = {"commit": COMMIT, "rollback": ROLLBACK, "async": COMMIT}

        def local(message: Message, transaction_id: str) -> TransactionState:
            assert len(transaction_id) == 32
            return outcomes[message.body.decode()]

        async def slow_local(message: Message, transaction_id: str) -> TransactionState:
            await asyncio.sleep(0)
            return local(message, transaction_id)

        for body in outcomes:
            result = await producer.send_in_transaction(
                Message(topic, body.encode()), slow_local if body == "async" else local, check_immunity_s=60
            )
            assert result.state is outcomes[body]
        await producer.send(Message(topic, b"plain"))
    assert await received(broker, topic, 3) == ["async", "commit", "plain"]


@pytest.mark.code(RequestCode.CHECK_TRANSACTION_STATE)
async def test_the_broker_asks_about_what_nobody_ended(broker: Broker, topic: str) -> None:
    """CHECK_TRANSACTION_STATE, until an answer comes."""
    asked: list[str] = []

    async def checker(message: ReceivedMessage) -> TransactionState:
        body = message.body.decode()
        asked.append(body)
        assert (message.topic, message.tags, message.keys) == (topic, "T", ["k"])
        if body == "later" and asked.count("later") == 1:
            raise ValueError("the database does not answer")
        return ROLLBACK if body == "gone" else COMMIT

    async with TransactionProducer("askers", broker.namesrv, checker=checker) as producer:
        for body in ("yes", "gone", "later"):
            await producer.send_in_transaction(Message(topic, body.encode(), tags="T", keys="k"), lambda *_: UNKNOWN)
        assert await received(broker, topic, 2) == ["later", "yes"]
        while await unresolved(broker, topic):
            await asyncio.sleep(0.02)
    assert asked.count("later") >= 2


async def test_an_error_of_the_application_leaves_it_to_the_check(broker: Broker, topic: str) -> None:
    asked = asyncio.Event()

    def checker(message: ReceivedMessage) -> TransactionState:
        asked.set()
        return ROLLBACK

    def broken(message: Message, transaction_id: str) -> TransactionState:
        raise KeyError("no such order")

    async with TransactionProducer("broken", broker.namesrv, checker=checker) as producer:
        with pytest.raises(KeyError, match="no such order"):
            await producer.send_in_transaction(Message(topic, b"x"), broken)
        await asked.wait()
        with pytest.raises(IllegalMessage, match="cannot be delayed"):
            await producer.send_in_transaction(Message(topic, b"x", delay_level=1), broken)


async def test_another_producer_of_the_group_answers_after_a_crash_of_broker_and_producer(
    broker: Broker, topic: str
) -> None:
    async with TransactionProducer("heirs", broker.namesrv, checker=lambda _: UNKNOWN) as producer:
        for number in range(3):
            await producer.send_in_transaction(Message(topic, b"%d" % number), lambda *_: UNKNOWN)
    found = await unresolved(broker, topic)
    assert (
        sorted((each.group, each.queue_id in (0, 1), len(each.message_id)) for each in found)
        == [("heirs", True, 32)] * 3
    )
    broker.kill()
    broker.start()
    settings = ClientSettings(namesrv=broker.namesrv, heartbeat_broker_interval_s=0.2)
    async with TransactionProducer(
        "heirs", checker=lambda _: COMMIT, client=settings, settings=SendSettings(send_msg_timeout_s=10)
    ):
        assert await received(broker, topic, 3) == ["0", "1", "2"]
        while await unresolved(broker, topic):
            await asyncio.sleep(0.02)


async def test_checker_whose_question_is_cancelled_is_asked_again(broker: Broker, topic: str) -> None:
    asked = 0

    async def checker(message: ReceivedMessage) -> TransactionState:
        nonlocal asked
        asked += 1
        if asked == 1:
            inner: asyncio.Future[TransactionState] = asyncio.get_running_loop().create_future()
            inner.cancel()
            return await inner
        return COMMIT

    async with TransactionProducer(f"g-{topic}", broker.namesrv, checker=checker, check_threads=1) as producer:
        await producer.send_in_transaction(Message(topic, b"late"), lambda message, transaction_id: UNKNOWN)
        assert await received(broker, topic, 1) == ["late"]
