"""Producers and consumers of a cluster of two pairs; one pair loses its master with its disk."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sprocket import ConsumeFrom, Consumer, Message, Producer, SendStatus
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.common.errors import ClientError
from tests.chaos.load import TOPIC, Load
from tests.chaos.nursery import Nursery
from tests.chaos.replication.pair import ChaosNameServers, ChaosPair

pytestmark = pytest.mark.timeout(240)
_SOME = 100
_LIMIT_S = 60.0


class Clients:
    """One producer, which sends all the time, and one consumer."""

    def __init__(self, name_servers: str) -> None:
        self._settings = ClientSettings(
            namesrv=name_servers, poll_name_server_interval_s=0.5, persist_consumer_offset_interval_s=0.5
        )
        self._is_sending = True
        # Key -> name of the broker that answered SEND_OK.
        self.acknowledged: dict[str, str] = {}
        self.received: set[str] = set()
        self.failures: list[str] = []

    async def send(self) -> None:
        """Until `stop`: a send that fails is not tried again, it is another message's turn."""
        count = 0
        async with Producer("PG", client=self._settings) as producer:
            while self._is_sending:
                key = f"c{count}"
                count += 1
                try:
                    result = await producer.send(Message(TOPIC, key.encode()))
                except ClientError as error:
                    self.failures.append(f"{key}: {error}")
                    continue
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged[key] = result.queue.broker_name
                await asyncio.sleep(0.002)

    def stop(self) -> None:
        self._is_sending = False

    async def consume(self) -> None:
        """Until cancelled."""
        async with Consumer("CG", [TOPIC], client=self._settings, consume_from=ConsumeFrom.FIRST) as consumer:
            async for message in consumer:
                self.received.add(message.body.decode())
                await consumer.ack(message)

    async def await_more_at(self, broker: str) -> None:
        """Wait until this broker has acknowledged some more."""
        goal = self._count(broker) + _SOME
        await _await(lambda: self._count(broker) >= goal, f"{broker} acknowledges: {self.failures[-3:]}")

    def _count(self, broker: str) -> int:
        return sum(name == broker for name in self.acknowledged.values())

    async def await_all(self) -> None:
        """Wait until all that was acknowledged has come."""
        await _await(
            lambda: self.received.issuperset(self.acknowledged),
            f"{len(self.acknowledged.keys() - self.received)} acknowledged messages come",
        )


async def _await(holds: Callable[[], bool], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + _LIMIT_S
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, f"not in {_LIMIT_S:g} s: {what}"
        await asyncio.sleep(0.02)


async def test_clients_go_on_when_a_master_is_lost_with_its_disk(nursery: Nursery, tmp_path: Path) -> None:
    """Producers go on with the other master; once the slave is a master, consumers have all that was acknowledged."""
    with (
        ChaosNameServers(nursery, tmp_path) as servers,
        ChaosPair(nursery, tmp_path / "broker-a", servers.addresses, "SYNC_MASTER") as hit,
        ChaosPair(nursery, tmp_path / "broker-b", servers.addresses, "SYNC_MASTER") as other,
        contextlib.ExitStack() as stack,
    ):
        for pair in (hit, other):
            await pair.start()
            await Load().prepare(pair.master.direct)
            await pair.await_topic(TOPIC)
        clients = Clients(servers.addresses)
        stack.callback(asyncio.ensure_future(clients.consume()).cancel)
        sending = asyncio.ensure_future(clients.send())
        stack.callback(sending.cancel)
        for name in ("broker-a", "broker-b"):
            await clients.await_more_at(name)
        hit.master.kill()
        hit.master.lose_disk()
        await clients.await_more_at("broker-b")
        await hit.promote()
        hit.slave.start_as("SLAVE")  # empty: without it there is no SEND_OK
        for name in ("broker-a", "broker-b"):
            await clients.await_more_at(name)
        clients.stop()
        await sending
        await clients.await_all()
