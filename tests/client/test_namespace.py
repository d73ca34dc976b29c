"""A client in a namespace: the application's names have none, and brokers know all of them by their whole names."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

import sprocket
from sprocket import (
    AdminClient,
    ClientSettings,
    ConsumeFrom,
    IllegalArgument,
    Message,
    MessageModel,
    ReceivedMessage,
    SqlFilter,
    TraceSettings,
    TransactionState,
    sync,
)
from sprocket.client.connection.wire_names import WireNames
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.headers.pop import AckMessageRequestHeader
from sprocket.testing import Broker
from tests.proxy.rig import create_topic, running

NAMESPACE = "shop|orders"
FIRST = ConsumeFrom.FIRST
WAIT_S = 30
_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    properties = {
        "transactionCheckInterval": "100", "transactionTimeOut": "50", "transactionCheckMax": "1000",
        "recallMessageEnable": "true", "enablePropertyFilter": "true", "enableMixedMessageType": "true",
    }  # fmt: skip
    with Broker(tmp_path_factory.mktemp("namespace"), properties=properties) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """One name in the namespace, and in none; a message in the latter must reach nobody."""
    name = f"Paid{next(_numbers)}"
    broker.create_topic(f"{NAMESPACE}%{name}", 2)
    broker.create_topic(name, 2)
    return name


@pytest.fixture(params=["remoting", "grpc"])
async def address(broker: Broker, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    if request.param == "remoting":
        yield broker.namesrv
    else:
        async with running(broker) as rig:
            yield f"grpc://127.0.0.1:{rig.port}"


@pytest.fixture
async def mq(broker: Broker) -> AsyncIterator[sprocket.Connection]:
    async with sprocket.connect(broker.namesrv, namespace=NAMESPACE) as connection:
        yield connection


async def topics(broker: Broker) -> set[str]:
    async with AdminClient(broker.namesrv) as admin:
        return set(await admin.topic_list())


async def test_messages_are_sent_and_popped_under_names_without_the_namespace(
    broker: Broker, address: str, topic: str
) -> None:
    async with sprocket.connect(broker.namesrv) as other:
        await other.producer().send(Message(topic, b"of nobody's"))
    async with AdminClient(broker.namesrv) as admin:
        await admin.create_group(broker.address, SubscriptionGroupConfig(f"{NAMESPACE}%poppers"))
    async with sprocket.connect(address, namespace=NAMESPACE) as mq, asyncio.timeout(WAIT_S):
        consumer = mq.simple_consumer("poppers", topic)
        assert await consumer.receive(8, wait_s=0.1) == []
        sent = [await mq.producer().send(Message(topic, b"%d" % number)) for number in range(4)]
        sent.append(await mq.producer().send_batch([Message(topic, b"in"), Message(topic, b"batch")]))
        assert {result.queue.topic for result in sent} == {topic}
        found: set[bytes] = set()
        while len(found) < 6:
            for message in await consumer.receive(8, wait_s=5):
                assert (message.topic, message.message.topic, message.queue.topic) == (topic, topic, topic)
                found.add(message.body)
                await message.ack()
        assert found == {b"0", b"1", b"2", b"3", b"in", b"batch"}
        await consumer.receive(8, wait_s=0.1)
    async with sprocket.connect(broker.namesrv) as other:
        whole = other.simple_consumer(f"{NAMESPACE}%poppers", f"{NAMESPACE}%{topic}")
        assert await whole.receive(8, wait_s=0.1) == []  # all of them were acknowledged


async def test_rejected_pops_come_again_and_become_dead_letters_of_the_namespace(
    broker: Broker, address: str, topic: str
) -> None:
    group = f"rejecters{next(_numbers)}"
    async with AdminClient(broker.namesrv) as admin:
        await admin.create_group(broker.address, SubscriptionGroupConfig(f"{NAMESPACE}%{group}"))
    async with sprocket.connect(address, namespace=NAMESPACE) as mq, asyncio.timeout(WAIT_S):
        consumer = mq.simple_consumer(group, topic)
        await consumer.receive(1, wait_s=0.1)
        await mq.producer().send(Message(topic, b"again"))
        (first,) = await consumer.receive(1, wait_s=10)
        await first.nack(1)
        second = None
        while second is None:
            second = next(iter(await consumer.receive(1, wait_s=5)), None)
        assert (second.topic, second.body, second.reconsume_times) == (topic, b"again", 1)
        await second.extend(20)
        await second.dead_letter()
    while f"%DLQ%{NAMESPACE}%{group}" not in await topics(broker):
        await asyncio.sleep(0.05)


async def test_a_consumer_retries_and_answers_operators_within_the_namespace(
    broker: Broker, mq: sprocket.Connection, topic: str
) -> None:
    group = f"readers{next(_numbers)}"
    consumer = mq.consumer(group, {topic: SqlFilter("a > 1")}, consume_from=FIRST)
    await mq.producer().send(Message(topic, b"filtered", properties={"a": "0"}))
    await mq.producer().send(Message(topic, b"wanted", properties={"a": "2"}))
    async with asyncio.timeout(WAIT_S):
        first = await anext(consumer)
        assert (first.topic, first.queue.topic, first.body) == (topic, topic, b"wanted")
        await first.nack(1)
        again = await anext(consumer)
        assert (again.topic, again.queue.topic) == (topic, f"%RETRY%{group}")
        assert again.properties["RETRY_TOPIC"] == f"{NAMESPACE}%{topic}"
        await again.dead_letter("enough")
        async with AdminClient(broker.namesrv) as admin:
            (member,) = (await admin.consumer_connection(f"{NAMESPACE}%{group}")).connection_set
            info = await admin.running_info(f"{NAMESPACE}%{group}", member.client_id)
            assert {data.topic for data in info.subscription_set} == {
                f"{NAMESPACE}%{topic}", f"%RETRY%{NAMESPACE}%{group}",
            }  # fmt: skip
    assert {f"%RETRY%{NAMESPACE}%{group}", f"%DLQ%{NAMESPACE}%{group}"} <= await topics(broker)
    assert f"%RETRY%{group}" not in await topics(broker)


async def test_an_orderly_consumer_locks_its_queues(mq: sprocket.Connection, topic: str) -> None:
    consumer = mq.orderly_consumer(f"ordered{next(_numbers)}", topic, consume_from=FIRST)
    for number in range(6):
        await mq.producer().send(Message(topic, b"%d" % number), sharding_key="one")
    bodies: list[bytes] = []

    def take(message: ReceivedMessage) -> None:
        assert message.topic == topic
        bodies.append(message.body)
        if len(bodies) == 6:
            consumer.stop()

    async with asyncio.timeout(WAIT_S):
        await consumer.run(take)
    assert bodies == [b"%d" % number for number in range(6)]


async def test_a_reply_reaches_its_requester(broker: Broker, mq: sprocket.Connection, topic: str) -> None:
    consumer = mq.consumer(f"repliers{next(_numbers)}", topic, consume_from=FIRST)

    async def reply() -> None:
        message = await anext(consumer)
        await message.reply(b"pong")
        await message.ack()

    async with asyncio.timeout(WAIT_S):
        replying = asyncio.create_task(reply())
        answer = await mq.producer("askers").request(Message(topic, b"ping"), timeout_s=20)
        await replying
    assert answer.body == b"pong"


@pytest.mark.parametrize("state", [TransactionState.COMMIT, TransactionState.UNKNOWN])
async def test_transactions_end_and_are_asked_about(broker: Broker, address: str, state: TransactionState) -> None:
    topic = f"Paying{next(_numbers)}"
    await create_topic(broker, "TRANSACTION", 2, name=f"{NAMESPACE}%{topic}")
    asked: list[str] = []

    def checker(message: ReceivedMessage) -> TransactionState:
        asked.append(message.topic)
        return TransactionState.COMMIT

    async with (
        sprocket.connect(address, namespace=NAMESPACE) as mq,
        sprocket.connect(broker.namesrv, namespace=NAMESPACE) as reader,
        asyncio.timeout(WAIT_S),
        mq.transaction_producer("payers", checker=checker) as producer,
    ):
        await producer.send_in_transaction(Message(topic, b"paid"), lambda message, id_: state)
        message = await anext(reader.consumer(f"paid{next(_numbers)}", topic, consume_from=FIRST))
    assert (message.topic, message.body) == (topic, b"paid")
    assert set(asked) == (set() if state is TransactionState.COMMIT else {topic})


async def test_sessions_are_lite_topics_of_the_namespace(broker: Broker, address: str) -> None:
    parent, group = f"Chats{next(_numbers)}", f"chatters{next(_numbers)}"
    async with AdminClient(broker.namesrv) as admin:
        await admin.create_session_topic(f"{NAMESPACE}%{parent}", f"{NAMESPACE}%{group}", queues=4)
    async with sprocket.connect(address, namespace=NAMESPACE) as mq, asyncio.timeout(WAIT_S):
        session = mq.session("one", topic=parent, group=group)
        await session.send(b"hello")
        message = await anext(session)
        assert (message.topic, message.lite_topic, message.body) == (parent, "one", b"hello")
        await message.ack()


async def test_broadcast_and_recall_and_traces(broker: Broker, mq: sprocket.Connection, topic: str) -> None:
    consumer = mq.consumer(f"all{next(_numbers)}", topic, model=MessageModel.BROADCASTING, consume_from=FIRST)
    traces = f"Traces{next(_numbers)}"
    broker.create_topic(f"{NAMESPACE}%{traces}", 1)
    traced = mq.producer("traced", trace=TraceSettings(topic=traces))
    async with asyncio.timeout(WAIT_S):
        result = await traced.send(Message(topic, b"late", delay=600))
        assert result.recall_handle is not None
        assert await traced.recall(result.recall_handle)
        await traced.send(Message(topic, b"now", keys="traced"))
        assert (await anext(consumer)).body == b"now"
        reader = mq.consumer("tracers", traces, consume_from=FIRST)
        found = ""
        while "\x01now" not in found and "traced" not in found:
            found += (await anext(reader)).body.decode()
        assert NAMESPACE not in found  # as RocketMQ's clients write it


def test_a_program_without_asyncio_has_the_same_names(broker: Broker, topic: str) -> None:
    with sync.connect(broker.namesrv, namespace=NAMESPACE) as mq:
        assert mq.producer().send(Message(topic, b"x")).queue.topic == topic
        message = next(iter(mq.consumer(f"threads{next(_numbers)}", topic, consume_from=FIRST)))
        assert (message.topic, message.body) == (topic, b"x")
        message.ack()


async def test_a_whole_name_stays_as_it_is(mq: sprocket.Connection, topic: str) -> None:
    whole = f"{NAMESPACE}%{topic}"
    assert (await mq.producer().send(Message(whole, b"x"))).queue.topic == whole
    async with asyncio.timeout(WAIT_S):
        message = await anext(mq.consumer(f"whole{next(_numbers)}", whole, consume_from=FIRST))
    assert (message.topic, message.body) == (whole, b"x")


@pytest.mark.parametrize("namespace", ["a|b|c", "a%b", "shop|", "n" * 65])
def test_an_illegal_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(IllegalArgument, match="namespace"):
        sprocket.connect("127.0.0.1:9876", namespace=namespace)
    with pytest.raises(IllegalArgument, match="namespace is given twice"):
        sprocket.connect(client=ClientSettings(namesrv="127.0.0.1:9876", namespace="other"), namespace=NAMESPACE)
    assert sprocket.connect(client=ClientSettings(namesrv="127.0.0.1:9876"), namespace=NAMESPACE).namespace == NAMESPACE


def test_headers_have_whole_names_of_topics_and_groups() -> None:
    names = WireNames(NAMESPACE)
    header = AckMessageRequestHeader(consumer_group="g", topic="%RETRY%g_t", queue_id=0, extra_info="", offset=0)
    whole = names.whole_fields(header)
    assert (whole.consumer_group, whole.topic) == (f"{NAMESPACE}%g", f"%RETRY%{NAMESPACE}%g_t")
    assert names.whole_fields(whole) == whole and (header.consumer_group, header.topic) == ("g", "%RETRY%g_t")
    assert names.bare_queue(MessageQueue(f"{NAMESPACE}%t", "b", 0)) == MessageQueue("t", "b", 0)
    assert names.bare("shop|billing%t") == "shop|billing%t"
    assert WireNames().whole_fields(header) is header
