"""Producer and consumer carry on by themselves when a broker is killed, or its name server with it."""

import asyncio
from collections import Counter
from pathlib import Path

from sprocket import ClientError, ConsumeFrom, Consumer, Message, Producer, SendSettings
from sprocket.testing import Broker
from tests.client.fake_cluster import until

PATIENT = SendSettings(send_msg_timeout_s=60.0)


async def test_kill_and_restart_of_the_only_broker_loses_nothing(tmp_path: Path) -> None:
    """Name server and broker die together by SIGKILL and come back on the same ports and store."""
    broker = Broker(tmp_path, properties={"flushDiskType": "SYNC_FLUSH"})
    broker.start()
    try:
        seen: Counter[bytes] = Counter()
        accepted: set[bytes] = set()
        is_over = False

        async def consume(consumer: Consumer) -> None:
            async for message in consumer:
                seen[message.body] += 1
                await consumer.ack(message)

        async def produce(producer: Producer) -> None:
            number = 0
            while not is_over:
                body = b"%d" % number
                number += 1
                try:
                    await producer.send(Message("T", body))
                except ClientError:
                    continue  # what became of it is not known
                accepted.add(body)

        async with (
            Producer("g", broker.namesrv, settings=PATIENT) as producer,
            Consumer("c", ["T"], broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
        ):
            consuming = asyncio.create_task(consume(consumer))
            producing = asyncio.create_task(produce(producer))
            for _ in range(2):
                goal = len(accepted) + 50
                await until(lambda: len(accepted) >= goal and len(seen) >= goal)  # noqa: B023 # awaited here
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            goal = len(accepted) + 50
            await until(lambda: len(accepted) >= goal)
            is_over = True
            await producing
            await until(lambda: accepted <= set(seen))
        await consuming
    finally:
        broker.stop()


async def test_broker_that_starts_after_its_clients_serves_them(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    broker.create_topic("T")
    broker.stop()
    try:
        async with Consumer("c", ["T"], broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
            receiving = asyncio.create_task(anext(consumer))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(broker.start)
            async with Producer("g", broker.namesrv) as producer:
                await producer.send(Message("T", b"x"))
            assert (await receiving).body == b"x"
    finally:
        broker.stop()
