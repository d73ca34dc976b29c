"""Recall of delayed messages over gRPC, with the same errors as over remoting."""

import base64

import pytest

import sprocket
from sprocket import IllegalMessage, Message
from sprocket.client.errors import BrokerRefused
from tests.proxy.rig import Rig, create_topic


async def test_recalled_message_is_never_delivered(rig: Rig) -> None:
    topic = await create_topic(rig.broker, "DELAY")
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        consumer, producer = mq.simple_consumer("group-recall", topic), mq.producer()
        await consumer.receive(1, wait_s=0.1)
        kept = await producer.send(Message(topic, b"kept", delay=4))
        gone = await producer.send(Message(topic, b"gone", delay=3))
        assert gone.recall_handle is not None
        assert await producer.recall(gone.recall_handle) == gone.message_id
        (received,) = await consumer.receive(2, wait_s=15)
        assert (received.body, received.message_id) == (b"kept", kept.message_id)
        await received.ack()


async def test_what_is_no_handle_is_refused_before_a_call(rig: Rig) -> None:
    async with sprocket.connect("grpc://127.0.0.1:1") as mq:
        for handle in ("no handle", "", "djEgVG9waWM="):
            with pytest.raises(IllegalMessage):
                await mq.producer().recall(handle)


async def test_topic_that_takes_no_delayed_messages_is_refused(rig: Rig, topic: str) -> None:
    handle = base64.urlsafe_b64encode(f"v1 {topic} broker-a 1700000000000 id".encode()).decode()
    async with sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as mq:
        with pytest.raises(BrokerRefused, match="TYPE"):
            await mq.producer().recall(handle)
