"""`sprocket.connect("grpc://...")` against a real proxy: send, receive, acknowledge, reject, and what it refuses."""

import asyncio

import pytest

import sprocket
from sprocket import BrokerRefused, IllegalArgument, IllegalMessage, Message, SendFailed, SendSettings, TopicNotFound
from tests.proxy.rig import Rig, create_topic


async def test_message_is_sent_received_and_acknowledged_once(rig: Rig, topic: str) -> None:
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer = mq.simple_consumer("group-golden", topic)
        assert await consumer.receive(1, wait_s=0.1) == []
        message = Message(topic, b"hello", tags="red", keys=["k1", "k2"], properties={"colour": "blue"})
        sent = await mq.producer().send(message)
        (received,) = await consumer.receive(1, invisible=20, wait_s=5)
        assert (received.body, received.tags, received.keys) == (b"hello", "red", ["k1", "k2"])
        assert received.properties["colour"] == "blue" and received.message_id == sent.message_id
        assert received.reconsume_times == 0
        await received.extend(30)
        await received.ack()
        assert await consumer.receive(1, wait_s=0.1) == []


async def test_message_of_a_namespace_is_acknowledged_under_its_whole_name(rig: Rig) -> None:
    topic = await create_topic(rig.broker, name="shop|orders%Acked")
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer = mq.simple_consumer("shop|orders%ackers", topic)
        assert await consumer.receive(1, wait_s=0.1) == []
        await mq.producer().send(Message(topic, b"one"))
        (received,) = await consumer.receive(1, wait_s=10)
        assert received.topic == topic
        await received.ack()


async def test_priorities_arrive_highest_first(rig: Rig) -> None:
    topic = await create_topic(rig.broker, "PRIORITY", 4)
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer = mq.simple_consumer("group-priority", topic)
        await consumer.receive(1, wait_s=0.1)
        for priority in (1, 0, 3, 9, 2):
            await mq.producer().send(Message(topic, b"x", priority=priority))
        received = await consumer.receive(32, wait_s=5)
        assert [message.priority for message in received] == [3, 9, 2, 1, 0]
        with pytest.raises(IllegalMessage, match="in a batch"):
            await mq.producer().send_batch([Message(topic, b"x", priority=1)])
        with pytest.raises(BrokerRefused, match="expected type is PRIORITY, but actual type is NORMAL"):
            await mq.producer().send(Message(topic, b"x"))


async def test_rejected_message_is_redelivered_and_dead_letter_is_not(rig: Rig, topic: str) -> None:
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer = mq.simple_consumer("group-nack", topic)
        await consumer.receive(1, wait_s=0.1)
        await mq.producer().send(Message(topic, b"again"))
        (first,) = await consumer.receive(1, wait_s=5)
        await first.nack(1)
        (second,) = await consumer.receive(1, wait_s=10)
        assert (second.body, second.reconsume_times) == (b"again", 1)
        await second.dead_letter("enough")
        assert await consumer.receive(1, wait_s=0.5) == []


async def test_stream_with_auto_batch_arrives_whole(rig: Rig, topic: str) -> None:
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer = mq.simple_consumer("group-batched", topic)
        await consumer.receive(1, wait_s=0.1)
        producer = mq.producer(settings=SendSettings(auto_batch=True))
        stream = [Message(topic, b"%d" % number) for number in range(50)]
        ids = [result.message_id async for result in producer.send_many(stream, window=32)]
        assert len(set(ids)) == 50
        found: dict[str, bytes] = {}
        async with asyncio.timeout(20):
            async for message in consumer:
                found[message.message_id] = message.body
                await message.ack()
                if len(found) == 50:
                    break
        assert [found[one] for one in ids] == [message.body for message in stream]


async def test_messages_with_keys_and_auto_batch_are_sent(rig: Rig) -> None:
    topic = await create_topic(rig.broker, "FIFO")
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        producer = mq.producer(settings=SendSettings(auto_batch=True))
        sends = [producer.send(Message(topic, b"%d" % number), sharding_key=f"k{number % 2}") for number in range(6)]
        assert len({result.message_id for result in await asyncio.gather(*sends)}) == 6


async def test_stream_and_batch_arrive_whole(rig: Rig, topic: str) -> None:
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer = mq.simple_consumer("group-many", topic)
        await consumer.receive(1, wait_s=0.1)
        producer = mq.producer()
        stream = [Message(topic, b"%d" % number) for number in range(50)]
        ids = [result.message_id async for result in producer.send_many(stream, window=8)]
        batch = await producer.send_batch([Message(topic, b"b%d" % number) for number in range(3)])
        ids += batch.message_id.split(",")
        assert len(set(ids)) == 53
        found: set[str] = set()
        async with asyncio.timeout(20):
            async for message in consumer:
                await message.ack()
                found.add(message.message_id)
                if len(found) == 53:
                    break
        assert found == set(ids)


async def test_delayed_message_waits(rig: Rig) -> None:
    topic = await create_topic(rig.broker, "DELAY")
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer = mq.simple_consumer("group-delay", topic)
        await consumer.receive(1, wait_s=0.1)
        await mq.producer().send(Message(topic, b"later", delay=2))
        assert await consumer.receive(1, wait_s=0.2) == []
        (received,) = await consumer.receive(1, wait_s=10)
        assert received.body == b"later"
        await received.ack()


async def test_what_the_protocol_lacks_names_the_way_out(rig: Rig, topic: str) -> None:
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        with pytest.raises(IllegalArgument, match="no administration; connect to the name server"):
            _ = mq.admin
        with pytest.raises(IllegalArgument, match="no request and reply"):
            await mq.producer().request(Message(topic, b"x"))
        with pytest.raises(IllegalArgument, match="no idempotent sends"):
            mq.producer("idempotent", settings=SendSettings(idempotent=True))
        with pytest.raises(IllegalMessage, match="no delay levels"):
            await mq.producer().send(Message(topic, b"x", delay_level=3))


async def test_unknown_topic_and_absent_proxy_raise_the_usual_errors(rig: Rig) -> None:
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        with pytest.raises((TopicNotFound, SendFailed)):
            await mq.producer().send(Message("NoSuchTopicAnywhere", b"x"), timeout_s=2)
    async with sprocket.connect("grpc://127.0.0.1:1") as mq:
        with pytest.raises(SendFailed, match="cannot be reached"):
            await mq.producer().send(Message("Any", b"x"), timeout_s=0.5)


async def test_second_endpoint_takes_over(rig: Rig, topic: str) -> None:
    async with sprocket.connect(f"grpc://127.0.0.1:1;127.0.0.1:{rig.port}") as mq:
        assert (await mq.producer().send(Message(topic, b"x"), timeout_s=10)).message_id


@pytest.mark.parametrize("text", ["grpc://", "grpc://host", "127.0.0.1:9876;grpc://127.0.0.1:8081"])
def test_wrong_addresses_are_refused(text: str) -> None:
    with pytest.raises(IllegalArgument):
        sprocket.connect(text)
