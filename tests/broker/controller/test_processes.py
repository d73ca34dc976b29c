"""Three controllers and three brokers as real processes: SIGKILL of the master under load of our client."""

import asyncio
import statistics
import time
from pathlib import Path

import pytest

from sprocket import ClientError, ConsumeFrom, Consumer, Message, Producer
from tests.compat.controllers.controllers import TOPIC, ControllerCluster
from tests.compat.replication.replicas import until

pytestmark = pytest.mark.timeout(300)
ROUNDS = 3
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
            for _ in range(ROUNDS):
                master = await asyncio.to_thread(cluster.master, brokers)
                assert master is not None
                await asyncio.to_thread(master.kill)
                times.append(await load.goes_on(time.monotonic()))
                master.start()
                await asyncio.to_thread(until, lambda: cluster.in_sync() == 3, "the killed broker is in sync again")
            load.stop()
            await running
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
