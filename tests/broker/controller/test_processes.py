"""Three controllers and three brokers as real processes: SIGKILL of the master under load, and while schedules fire."""

import asyncio
import statistics
import time
from itertools import pairwise
from pathlib import Path

import pytest

import sprocket
from sprocket import ClientError, ConsumeFrom, Consumer, Message, Producer
from sprocket.remoting.bodies.topic import TopicConfig
from tests.compat.controllers.controllers import TOPIC, ControllerCluster
from tests.compat.replication.replicas import until

pytestmark = pytest.mark.timeout(300)
ROUNDS = 3
SCHEDULED, SCHEDULES = "Scheduled", 20
# The lease is 1.2 s; the rest is for a machine that does other work.
_LIMIT_S = 10.0


class Load:
    """A producer that sends one message after another, and notes what was acknowledged, and when."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: list[tuple[float, bytes]] = []
        self._is_over = False

    async def run(self) -> None:
        number = 0
        while not self._is_over:
            body, number = b"%d" % number, number + 1
            try:
                result = await self._producer.send(Message(TOPIC, body))
            except ClientError:
                await asyncio.sleep(0.02)
                continue
            if result.status.name == "SEND_OK":
                self.acknowledged.append((time.monotonic(), body))
            await asyncio.sleep(0.002)

    def stop(self) -> None:
        self._is_over = True

    async def goes_on(self, since: float) -> float:
        """Wait for an acknowledgement; return how long after `since` it came."""
        async with asyncio.timeout(60):
            while not self.acknowledged or self.acknowledged[-1][0] <= since:
                await asyncio.sleep(0.005)
        return next(at for at, _ in self.acknowledged if at > since) - since


async def begin_schedules(name_servers: str) -> None:
    async with sprocket.connect(name_servers) as mq:
        for address in await mq.admin.masters(None):
            await mq.admin.create_topic(address, TopicConfig(SCHEDULED, 1, 1))
        await mq.admin.topic_route(SCHEDULED)
        for number in range(SCHEDULES):
            await mq.schedule(f"s{number}", topic=SCHEDULED, body=b"go", every=1, catch_up="all", max_catch_up=1000)
    await asyncio.sleep(1)  # slaves get changes of tables five times a second


async def schedule_problems(name_servers: str) -> list[str]:
    """Read all messages of schedules until a schedule fires after now, and say which times are missing or twice."""
    now_ms = time.time() * 1000
    found: dict[int, tuple[str, int]] = {}  # by queue offset: a consumer may get a message again
    async with (
        asyncio.timeout(60),
        Consumer("s", {SCHEDULED: "*"}, name_servers, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        async for message in consumer:
            properties = message.properties
            one = properties["SCHEDULE_NAME"], int(properties["SCHEDULE_TIME_MS"])
            found[message.queue_offset] = one
            await message.ack()
            if one[1] > now_ms + 1000:
                break
    times = sorted(set(found.values()))
    wrong = [
        f"{name} lacks {at + 1000}" for (name, at), (same, to) in pairwise(times) if name == same and to > at + 1000
    ]
    assert len({name for name, _ in times}) == SCHEDULES and len(times) > SCHEDULES * ROUNDS
    return wrong + [f"{len(found) - len(times)} are there twice"] * (len(found) != len(times))


async def test_the_master_is_killed_again_and_again_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with ControllerCluster(tmp_path) as cluster:
        brokers = [cluster.add_sprocket_broker(number) for number in range(3)]
        await asyncio.to_thread(cluster.start_controllers)
        for broker in brokers:
            broker.start()
        await asyncio.to_thread(until, lambda: cluster.in_sync() == 3, "all are in sync")
        times = []
        async with Producer("writers", cluster.name_servers) as producer:
            load = Load(producer)
            running = asyncio.create_task(load.run())
            await load.goes_on(time.monotonic())
            await begin_schedules(cluster.name_servers)
            for _ in range(ROUNDS):
                master = await asyncio.to_thread(cluster.master, brokers)
                assert master is not None
                await asyncio.to_thread(master.kill)
                times.append(await load.goes_on(time.monotonic()))
                master.start()
                await asyncio.to_thread(until, lambda: cluster.in_sync() == 3, "the killed broker is in sync again")
            load.stop()
            await running
        assert await schedule_problems(cluster.name_servers) == []
        print(f"acknowledged again after {sorted(round(one, 2) for one in times)} s")
        assert statistics.median(times) < _LIMIT_S
        missing = {body for _, body in load.acknowledged}
        first = ConsumeFrom.FIRST
        async with (
            asyncio.timeout(60),
            Consumer("r", {TOPIC: "*"}, cluster.name_servers, consume_from=first) as consumer,
        ):
            async for message in consumer:
                missing.discard(bytes(message.body))
                await consumer.ack(message)
                if not missing:
                    break
