"""Calls that move to another endpoint while the telemetry stream of the first lives: the second hears the settings."""

import asyncio

import sprocket
from sprocket import Message
from tests.client.grpc.fake_proxy import FakeProxy
from tests.proxy.rig import Rig
from tests.waiting import until


def _knows_a_client(rig: Rig) -> bool:
    return any(client.reported is not None for client in rig.proxy.clients)


async def test_second_endpoint_hears_the_settings(rig: Rig, topic: str) -> None:
    async with (
        FakeProxy().running() as half,
        sprocket.connect(f"grpc://127.0.0.1:{half.port};127.0.0.1:{rig.port}") as mq,
    ):
        producer = mq.producer()
        assert (await producer.send(Message(topic, b"x"), timeout_s=20)).message_id
        assert _knows_a_client(rig)
        # The first endpoint has no stream of this client left: its handles would be renewed there for nobody.
        await until(lambda: not half.streams)
        # The topic is reported too, so that the proxy can ask this producer about transactions.
        await until(lambda: bool(rig.proxy.clients.publishing(topic)))


async def test_consumer_follows_its_calls(rig: Rig, topic: str) -> None:
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(message: sprocket.ReceivedMessage) -> None:
        seen.put_nowait(message.body)

    async with (
        FakeProxy().running() as half,
        sprocket.connect(f"grpc://127.0.0.1:{half.port};127.0.0.1:{rig.port}") as mq,
        sprocket.connect(f"grpc://127.0.0.1:{rig.port}") as direct,
    ):
        consumer = mq.consumer("group-second", topic)
        await direct.simple_consumer("group-second", topic).receive(1, wait_s=0.1)
        handling = asyncio.create_task(consumer.run(handle))
        await direct.producer().send(Message(topic, b"found"), timeout_s=20)
        async with asyncio.timeout(30):
            assert await seen.get() == b"found"
        consumer.stop()
        await handling
