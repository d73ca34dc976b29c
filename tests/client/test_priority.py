"""Messages with a priority: what the client refuses, and the order in which a broker gives them out."""

import asyncio
from typing import Any

import pytest

from sprocket import (
    ConsumeFrom,
    IllegalMessage,
    Message,
    MessageQueue,
    Producer,
    SendSettings,
    SimpleConsumer,
    TransactionProducer,
    sync,
)
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.send.send_request import single_request
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.testing import Broker

PRIORITIES = (1, 0, 3, 9, 2)
# Of 4 queues the last has the priorities from 3 on.
FOUND = [3, 9, 2, 1, 0]


@pytest.fixture
async def priority_topic(shared_broker: Broker, topic: str) -> str:
    """A topic of type PRIORITY with four queues."""
    async with AdminClient(shared_broker.namesrv) as admin:
        config = TopicConfig(topic, 4, 4, attributes={"+message.type": "PRIORITY"})
        await admin.create_topic(shared_broker.address, config)
    return topic


async def test_the_highest_priority_comes_first(shared_broker: Broker, priority_topic: str) -> None:
    async with Producer("g", shared_broker.namesrv) as producer:
        sent = [await producer.send(Message(priority_topic, b"x", priority=one)) for one in PRIORITIES]
        assert [result.queue.queue_id for result in sent] == [1, 0, 3, 3, 2]
        plain = await producer.send(Message(priority_topic, b"x"))
    consumer = SimpleConsumer("g-p", [priority_topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST)
    async with consumer:
        found = [message for message in await consumer.receive(32, wait_s=5) if message.message_id != plain.message_id]
        assert [message.priority for message in found] == FOUND


def test_the_same_without_asyncio(shared_broker: Broker, topic: str) -> None:
    with sync.Producer("g", shared_broker.namesrv) as producer:
        for priority in PRIORITIES:
            producer.send(Message(topic, b"x", priority=priority))
    with sync.SimpleConsumer("g-s", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        found = consumer.receive(32, wait_s=5)
        # The topic is of no type: the queues are the same, and any may come first.
        assert sorted((message.priority or 0, message.queue.queue_id) for message in found) == [
            (0, 0), (1, 1), (2, 2), (3, 3), (9, 3),
        ]  # fmt: skip


async def test_auto_batch_and_typed_topics_keep_priorities(shared_broker: Broker, priority_topic: str) -> None:
    import sprocket

    async with sprocket.connect(shared_broker.namesrv) as mq:
        values = mq.topic(priority_topic, bytes)
        await asyncio.gather(*(values.send(b"%d" % one, priority=one) for one in PRIORITIES))
    async with Producer("g", shared_broker.namesrv, settings=SendSettings(auto_batch=True)) as producer:
        results = await asyncio.gather(
            *(producer.send(Message(priority_topic, b"%d" % one, priority=one)) for one in PRIORITIES)
        )
        assert [result.queue.queue_id for result in results] == [1, 0, 3, 3, 2]
    consumer = SimpleConsumer("g-t", [priority_topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST)
    async with consumer:
        found = await consumer.receive(32, wait_s=5)
        assert [message.body for message in found if message.queue.queue_id < 3] == [b"2", b"2", b"1", b"1", b"0", b"0"]
        assert all(message.body == b"%d" % message.priority for message in found if message.priority is not None)
        assert len(found) == 10


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"priority": -1}, "priority is -1"),
        ({"priority": 1 << 31}, "priority is 2147483648"),
        ({"priority": "high"}, "priority is"),
        ({"priority": True}, "priority is"),
        ({"priority": 1, "delay": 1}, "has no delay"),
        ({"priority": 1, "delay_level": 1}, "has no delay"),
        ({"properties": {"_SYS_MSG_PRIORITY_": "1"}}, "reserved"),
        ({"properties": {"__LITE_TOPIC": "chat"}}, "reserved"),
    ],
)
def test_what_is_no_priority_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(IllegalMessage, match=reason):
        Message("T", b"x", **fields)


def test_a_priority_that_was_set_later_is_checked() -> None:
    message = Message("T", b"x")
    message.priority = -1
    with pytest.raises(IllegalMessage, match="priority is -1"):
        single_request(message, SendSettings(), lambda: "ID")


async def test_what_would_lose_a_priority_is_refused(shared_broker: Broker, topic: str) -> None:
    message = Message(topic, b"x", priority=1)
    async with Producer("g", shared_broker.namesrv) as producer:
        for place in ({"sharding_key": "k"}, {"queue": MessageQueue(topic, "broker-a", 0)}):
            with pytest.raises(IllegalMessage, match="a priority chooses the queue"):
                await producer.send(message, **place)  # type: ignore[arg-type]
        with pytest.raises(IllegalMessage, match="in a batch"):
            await producer.send_batch([Message(topic, b"x"), message])
    async with TransactionProducer("g-tx", shared_broker.namesrv, checker=lambda _: None) as producer:  # type: ignore[arg-type, return-value]
        with pytest.raises(IllegalMessage, match="cannot have a priority"):
            await producer.send_in_transaction(message, lambda *_: None)  # type: ignore[arg-type, return-value]
