"""The producer against a real broker."""

import asyncio

import pytest

from sprocket import Compression, ConsumeFrom, Consumer, Message, MessageQueue, Producer, SendSettings, SendStatus
from sprocket.testing import Broker


async def received(broker: Broker, topic: str, count: int) -> list[tuple[bytes, str]]:
    """Body and id of the first `count` messages."""
    messages = []
    async with Consumer(f"read-{topic}", [topic], broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        async for message in consumer:
            messages.append((message.body, message.message_id))
            if len(messages) == count:
                break
    return messages


async def test_result_says_where_the_message_lies(shared_broker: Broker, topic: str) -> None:
    async with Producer("g", shared_broker.namesrv) as producer:
        queue = MessageQueue(topic, (await producer.queues(topic))[0].broker_name, 2)
        results = [await producer.send(Message(topic, b"x"), queue=queue) for _ in range(3)]
    assert [result.queue_offset for result in results] == [0, 1, 2]
    assert {result.queue for result in results} == {queue}
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert len({result.message_id for result in results} | {result.offset_message_id for result in results}) == 6


async def test_queues_take_turns_and_keys_stay_together(shared_broker: Broker, topic: str) -> None:
    async with Producer("g", shared_broker.namesrv) as producer:
        await producer.send(Message(topic, b"warm"))
        spread = [await producer.send(Message(topic, b"x")) for _ in range(8)]
        keyed = [await producer.send(Message(topic, b"x"), sharding_key="order-7") for _ in range(5)]
    assert sorted(result.queue.queue_id for result in spread) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len({result.queue for result in keyed}) == 1


async def test_first_messages_of_new_producers_do_not_all_go_to_one_queue(shared_broker: Broker, topic: str) -> None:
    queues = set()
    for _ in range(12):
        async with Producer("g", shared_broker.namesrv) as producer:
            queues.add((await producer.send(Message(topic, b"x"))).queue)
    assert len(queues) > 1  # by chance of 1 in 4 million all of them meet


async def test_batch_arrives_as_single_messages_in_one_queue(shared_broker: Broker, topic: str) -> None:
    async with Producer("g", shared_broker.namesrv) as producer:
        result = await producer.send_batch([Message(topic, b"%d" % number, tags="A") for number in range(5)])
    messages = await received(shared_broker, topic, 5)
    assert [body for body, _ in messages] == [b"0", b"1", b"2", b"3", b"4"]
    assert ",".join(message_id for _, message_id in messages) == result.message_id


@pytest.mark.parametrize("kind", list(Compression))
async def test_compressed_message_comes_back_as_it_was(shared_broker: Broker, topic: str, kind: Compression) -> None:
    body = b"a long body " * 1000
    async with Producer("g", shared_broker.namesrv, settings=SendSettings(compress_type=kind)) as producer:
        result = await producer.send(Message(topic, body))
    assert await received(shared_broker, topic, 1) == [(body, result.message_id)]


async def test_stream_and_concurrent_sends_all_arrive_once(shared_broker: Broker, topic: str) -> None:
    async with Producer("g", shared_broker.namesrv) as producer:
        stream = producer.send_many((Message(topic, b"%d" % number) for number in range(1000)), window=64)
        results = [result async for result in stream]
        results += await asyncio.gather(*(producer.send(Message(topic, b"%d" % n)) for n in range(1000, 2000)))
    assert len({(result.queue, result.queue_offset) for result in results}) == 2000
    messages = await received(shared_broker, topic, 2000)
    assert sorted(int(body) for body, _ in messages) == list(range(2000))


async def test_oneway_arrives(shared_broker: Broker, topic: str) -> None:
    async with Producer("g", shared_broker.namesrv) as producer:
        await producer.send_oneway(Message(topic, b"x"))
        assert [body for body, _ in await received(shared_broker, topic, 1)] == [b"x"]


async def test_topic_is_created_by_its_first_message(shared_broker: Broker) -> None:
    async with Producer("g", shared_broker.namesrv) as producer:
        await producer.send(Message("CreatedBySending", b"x"))
    assert [body for body, _ in await received(shared_broker, "CreatedBySending", 1)] == [b"x"]
