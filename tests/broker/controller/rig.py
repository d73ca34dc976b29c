"""Brokers under controllers that the test plays: it decides who leads, and grants the leases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.controller.replica import ControlledReplica
from broker.controller.tenure import Tenure
from broker.server import Broker
from broker.service import Service
from ha.epochs.epoch_history import Epoch
from sprocket.common.errors import SprocketError, StoreError
from sprocket.remoting.tls.settings import TlsSettings
from tests.broker.rig import TestClient, broker_config, store_config
from tests.waiting import until

LONG_S = 1e6


class Manager(Service):
    """In place of the part that talks with controllers."""

    def __init__(self, replica: ControlledReplica) -> None:
        self.replica = replica


class Epochs:
    """A history in memory."""

    def __init__(self) -> None:
        self.begun: list[Epoch] = []
        self.fails = False

    def begin(self, epoch: Epoch) -> None:
        if self.fails:
            raise StoreError("planted")
        self.begun.append(epoch)


class Replica:
    """One broker of the group."""

    def __init__(
        self, root: Path, broker_id: int, *, disk: Any = None, tls: TlsSettings | None = None, **changes: Any
    ) -> None:
        store = changes.pop("store", {})
        self.id = broker_id
        self.epochs = Epochs()
        self.fatal: list[SprocketError] = []
        self.managers: list[Manager] = []
        self.now_s = 0.0  # of the lease
        self.broker = Broker(
            broker_config(broker_ip2="127.0.0.1", enable_controller_mode=True, **changes),
            store_config(root / f"replica-{broker_id}", file_reserved_time=1_000_000, **store),
            tls=tls,
            disk=disk,
            on_fatal=self.fatal.append,
            manage=self._manage,
            epochs=self.epochs,
            lease_now=lambda: self.now_s,
        )

    def _manage(self, replica: ControlledReplica) -> Service:
        self.managers.append(Manager(replica))
        return self.managers[-1]

    @property
    def border(self) -> ControlledReplica:
        return self.managers[0].replica

    @property
    def client(self) -> TestClient:
        return TestClient(f"127.0.0.1:{self.broker.port}")

    def grant(self, term_s: float = LONG_S) -> None:
        self.border.lease.granted(self.now_s, term_s)


class Group:
    """Replicas by id, and the decisions about them."""

    def __init__(self) -> None:
        self.replicas: dict[int, Replica] = {}
        self.epoch = 0
        self.master = 0

    def __getitem__(self, broker_id: int) -> Replica:
        return self.replicas[broker_id]

    async def start(self, replica: Replica) -> Replica:
        self.replicas[replica.id] = replica
        await replica.broker.start()
        replica.border.switch.identify(replica.id)
        return replica

    async def elect(self, broker_id: int, *, followers: bool = True) -> None:
        """Make one replica the master of a new epoch, and let the others follow it, all at the same time."""
        self.epoch += 1
        self.master = broker_id
        tenure = self.tenure()
        calls = [self[broker_id].border.switch.lead(tenure)]
        if followers:
            calls += [one.border.switch.follow(tenure) for one in self.replicas.values() if one.id != broker_id]
        await asyncio.gather(*calls)
        self[broker_id].border.sync_state().count_only(frozenset(self.replicas) - {broker_id})
        self[broker_id].grant()

    def tenure(self) -> Tenure:
        address = self[self.master].broker.address
        return Tenure(self.epoch, self.master, address, frozenset(self.replicas), self.epoch)

    async def in_step(self) -> None:
        """Wait until all replicas have the master's log, and show it."""
        end = self[self.master].broker.store.wrote_offset
        for one in self.replicas.values():
            await until(lambda one=one: one.broker.store.confirm_offset == end)  # type: ignore[misc]


@asynccontextmanager
async def group(root: Path, size: int = 2, **changes: Any) -> AsyncIterator[Group]:
    """Replicas 1 to `size`, without a master; in the end they are stopped, and nothing has failed."""
    it = Group()
    try:
        for broker_id in range(1, size + 1):
            await it.start(Replica(root, broker_id, **changes))
        yield it
    finally:
        for replica in it.replicas.values():
            await replica.broker.stop()
    assert [one.fatal for one in it.replicas.values() if one.fatal] == []
