"""`sprocket.connect`: one object for producers, consumers and the administration of a cluster."""

import asyncio

import pytest

import sprocket
from sprocket import ClientClosed, ConsumeFrom, IllegalArgument, Message, NameServerUnreachable, TransactionState
from sprocket.testing import Broker


async def test_sends_and_receives_with_parts_that_open_at_their_first_use(shared_broker: Broker, topic: str) -> None:
    before = asyncio.all_tasks()
    async with sprocket.connect(shared_broker.namesrv) as mq:
        sent = await mq.producer("makers").send(Message(topic, b"one"))
        async for message in mq.consumer(f"readers-{topic}", topic, consume_from=ConsumeFrom.FIRST):
            assert (message.body, message.message_id) == (b"one", sent.message_id)
            break
        popping = mq.simple_consumer(f"poppers-{topic}", topic, consume_from=ConsumeFrom.FIRST)
        (popped,) = await popping.receive(1, wait_s=5)
        await popping.ack(popped)
        assert topic in await mq.admin.topic_list()
    assert asyncio.all_tasks() == before
    with pytest.raises(ClientClosed):
        await popping.receive(1)


async def test_producers_share_one_client(shared_broker: Broker, topic: str) -> None:
    async with sprocket.connect(shared_broker.namesrv) as mq:
        one, other = mq.producer("one"), mq.producer("other")
        assert mq.producer("one") is one
        assert one.client_id == other.client_id
        await one.send(Message(topic, b"1"))
        await one.close()
        with pytest.raises(ClientClosed, match="group one is closed"):
            await one.send(Message(topic, b"2"))
        await other.send(Message(topic, b"3"))
        await mq.producer("one").send(Message(topic, b"4"))


async def test_close_waits_for_outstanding_sends(shared_broker: Broker, topic: str) -> None:
    mq = sprocket.connect(shared_broker.namesrv)
    await mq.start()
    sends = [asyncio.create_task(mq.producer().send(Message(topic, b"%d" % number))) for number in range(50)]
    await asyncio.sleep(0)
    await mq.close()
    assert len({result.message_id for result in await asyncio.gather(*sends)}) == 50
    with pytest.raises(ClientClosed):
        await mq.start()


async def test_a_handler_may_send_until_its_connection_is_closed(shared_broker: Broker, topic: str) -> None:
    async with sprocket.connect(shared_broker.namesrv) as mq:
        await mq.producer().send(Message(topic, b"ask"))
        consumer = mq.consumer(f"g-{topic}", topic, consume_from=ConsumeFrom.FIRST)
        message = await anext(consumer)
        await consumer.ack(message)

        def outcome(*_: object) -> TransactionState:
            return TransactionState.COMMIT

        async with mq.transaction_producer(f"t-{topic}", checker=outcome) as producer:
            assert (await producer.send_in_transaction(Message(topic, b"sold"), outcome)).state.name == "COMMIT"
        sold = await anext(consumer)
        assert sold.body == b"sold"


async def test_is_used_open_only(shared_broker: Broker, topic: str) -> None:
    mq = sprocket.connect(shared_broker.namesrv)
    producer, consumer = mq.producer(), mq.consumer("g", topic)
    for use in (producer.send(Message(topic, b"1")), consumer.receive()):
        with pytest.raises(ClientClosed, match="async with"):
            await use
    await mq.close()
    with pytest.raises(ClientClosed):
        await mq.start()


async def test_address_from_the_environment(shared_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(IllegalArgument, match="NAMESRV_ADDR"):
        sprocket.connect()
    monkeypatch.setenv("NAMESRV_ADDR", shared_broker.namesrv)
    async with sprocket.connect() as mq:
        await mq.producer().send(Message(topic, b"1"))


async def test_wrong_arguments() -> None:
    credentials = sprocket.Credentials("a", "secret-secret")
    client = sprocket.ClientSettings(namesrv="127.0.0.1:9876", credentials=credentials)
    with pytest.raises(IllegalArgument, match="credentials is given twice"):
        sprocket.connect(client=client, credentials=credentials)
    with pytest.raises(IllegalArgument, match="not host:port; pass 'grpc://host:8081'"):
        sprocket.connect("grpc://127.0.0.1")


async def test_an_error_says_what_listens_at_the_address(shared_broker: Broker) -> None:
    async with sprocket.connect(shared_broker.address) as mq:
        with pytest.raises(NameServerUnreachable, match=f"{shared_broker.address} is no name server"):
            await mq.producer().send(Message("T", b"x"))
    with pytest.raises(ClientClosed, match="is closed; make a new one"):
        await mq.producer().send(Message("T", b"x"))
