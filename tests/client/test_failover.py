"""Producer and consumer carry on by themselves when a broker is killed, or its name server with it."""

import asyncio
from collections import Counter
from pathlib import Path

from sprocket import (
    ClientError,
    ClientSettings,
    ConsumeFrom,
    Consumer,
    Message,
    PopSettings,
    Producer,
    SendSettings,
    SimpleConsumer,
)
from sprocket.testing import Broker
from tests.compat.cluster import SprocketCluster
from tests.waiting import until

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


async def test_offset_that_a_dead_broker_could_not_be_told_counts_when_its_queue_comes_back(tmp_path: Path) -> None:
    """Two brokers, the name server on the first: the second dies with offsets unsaved and comes back by itself."""
    with SprocketCluster(tmp_path, brokers=2) as cluster:
        namesrv, second = cluster.name_server_address, cluster.brokers[1]
        seen: Counter[bytes] = Counter()

        async def consume(consumer: Consumer) -> None:
            async for message in consumer:
                seen[message.body] += 1
                await consumer.ack(message)

        async with Producer("g", namesrv) as producer:
            async for _ in producer.send_many(Message("T", b"%d" % number) for number in range(400)):
                pass
            async with Consumer("c", ["T"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
                consuming = asyncio.create_task(consume(consumer))
                await until(lambda: len(seen) == 400)
                await until(lambda: len(consumer.assignment) == 8)
                await asyncio.to_thread(second.kill)
                await until(lambda: len(consumer.assignment) == 4)
                second.start()
                await until(lambda: len(consumer.assignment) == 8)
                async for _ in producer.send_many(Message("T", b"%d" % number) for number in range(400, 800)):
                    pass
                await until(lambda: len(seen) == 800)
            await consuming
        assert set(seen.values()) == {1}


async def test_popping_consumer_goes_on_after_a_kill_of_its_broker(tmp_path: Path) -> None:
    seen: set[int] = set()
    settings = PopSettings(pop_invisible_time_s=3, poll_time_s=2)
    with Broker(tmp_path) as broker:
        broker.create_topic("Popped")
        async with SimpleConsumer(
            "g", ["Popped"], broker.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings
        ) as consumer:
            run = asyncio.create_task(consumer.run(lambda message: seen.add(int(message.body))))
            for first in (0, 50):
                async with Producer("g", broker.namesrv, settings=PATIENT) as producer:
                    for number in range(first, first + 50):
                        await producer.send(Message("Popped", b"%d" % number))
                if not first:
                    await until(lambda: len(seen) > 20)
                    await asyncio.to_thread(broker.kill)
                    await asyncio.to_thread(broker.start)
            await until(lambda: len(seen) == 100)
        await run


async def test_a_broker_that_came_back_gets_its_share_at_once(tmp_path: Path) -> None:
    """With two brokers, sends connect to the one that came back and do not wait for the next heartbeat."""
    with SprocketCluster(tmp_path, brokers=2) as cluster:
        settings = ClientSettings(namesrv=cluster.name_server_address, poll_name_server_interval_s=0.2)
        async with Producer("g", settings=SendSettings(send_latency_enable=False), client=settings) as producer:
            brokers = {(await producer.send(Message("T", b"x"))).queue.broker_name for _ in range(8)}
            assert len(brokers) == 2
            second = cluster.brokers[1]
            await asyncio.to_thread(second.kill)
            second.start()
            sent: set[str] = set()
            async with asyncio.timeout(20):  # less than the interval of heartbeats
                while len(sent) < 2:
                    await asyncio.sleep(0.05)
                    sent.add((await producer.send(Message("T", b"x"))).queue.broker_name)
        assert sent == brokers
