"""A proxy is killed and started again while a client sends and receives: nothing is missing."""

import asyncio

import sprocket
from sprocket import Message, ReceivedMessage, SendFailed
from sprocket.testing import Broker
from tests.compat.ports import free_port
from tests.proxy.rig import running


async def test_nothing_is_missing_after_a_restart_of_the_proxy(broker: Broker, topic: str) -> None:
    port, seen = free_port(), set[str]()
    sent: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.add(message.message_id)

    async with sprocket.connect(f"grpc://127.0.0.1:{port}") as mq:
        producer, consumer = mq.producer(), mq.consumer("group-restart", topic)

        async def send() -> None:
            for number in range(60):
                while True:
                    try:
                        result = await producer.send(Message(topic, b"%d" % number), timeout_s=10)
                    except SendFailed:
                        continue
                    sent.append(result.message_id)
                    break
                await asyncio.sleep(0.01)

        async with running(broker, grpc_server_port=port):
            await mq.simple_consumer("group-restart", topic).receive(1, wait_s=0.1)
            handling = asyncio.create_task(consumer.run(handle))
            sending = asyncio.create_task(send())
            while len(sent) < 20:
                await asyncio.sleep(0.01)
        async with running(broker, grpc_server_port=port):
            async with asyncio.timeout(40):
                await sending
                while not seen.issuperset(sent):
                    await asyncio.sleep(0.05)
            consumer.stop()
            await handling
    assert len(sent) == 60 and seen.issuperset(sent)
