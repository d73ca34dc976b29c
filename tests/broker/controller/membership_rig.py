"""Memberships of brokers without a broker: real sockets and controllers; role, log and slaves are the test's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.config.live_config import LiveConfig
from broker.controller.membership import Membership
from broker.controller.replica import ControlledReplica
from broker.controller.tenure import Tenure
from ha.epochs.epoch_history import Epoch, EpochHistory
from ha.lease import Lease
from sprocket.common.clock import SystemClock
from sprocket.common.errors import SprocketError, StoreError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.routes import RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from tests.broker.rig import broker_config, store_config
from tests.controller.site import CLUSTER, GROUP, Site, site_at
from tests.waiting import until

LEASE_MS = 600


class FakeSwitch:
    """A `RoleSwitch` that notes what it was told, and begins epochs in the log as a broker does."""

    def __init__(self, log: "FakeLog") -> None:
        self.told: list[tuple[str, int]] = []
        self.broker_id = 0
        self.fails = False
        self.pause_s = 0.0
        self.busy = 0
        self._log = log

    def identify(self, broker_id: int) -> None:
        self.broker_id = broker_id

    async def lead(self, tenure: Tenure) -> None:
        await self._change("lead", tenure.master_epoch)
        self._log.history = self._log.history.begun(Epoch(tenure.master_epoch, self._log.end))

    async def follow(self, tenure: Tenure) -> None:
        await self._change(f"follow {tenure.master_id}", tenure.master_epoch)

    async def rest(self) -> None:
        await self._change("rest", -1)

    async def _change(self, what: str, epoch: int) -> None:
        self.busy += 1
        assert self.busy == 1, "changes overlap"
        await asyncio.sleep(self.pause_s)
        self.busy -= 1
        self.told.append((what, epoch))
        if self.fails:
            raise StoreError("the disk is broken")


class FakeLog:
    """A `ReplicaLog` whose end the test sets."""

    def __init__(self) -> None:
        self.history = EpochHistory()
        self.end = 0
        self.is_closed = False

    def epochs(self) -> EpochHistory:
        return self.history

    def end_offset(self) -> int:
        if self.is_closed:
            raise StoreError("the store is closed")
        return self.end

    def confirm_offset(self) -> int:
        return self.end_offset()


class FakeSlaves:
    """A `SyncState` that the test sets."""

    def __init__(self) -> None:
        self.now: frozenset[int] = frozenset()
        self.has: dict[int, int] = {}
        self.counted: list[tuple[frozenset[int], frozenset[int]]] = []
        self.required: list[int] = []

    def in_sync(self) -> frozenset[int]:
        return self.now

    def holding(self, offset: int) -> frozenset[int]:
        return frozenset(one for one, has in self.has.items() if has >= offset)

    def require(self, acks: int) -> None:
        self.required.append(acks)

    def count_only(self, broker_ids: frozenset[int], may_lead: frozenset[int] | None = None) -> None:
        self.counted.append((broker_ids, broker_ids if may_lead is None else may_lead))


class FakeBroker:
    """A membership with its port."""

    def __init__(self, root: Path, controllers: str, store: dict[str, Any], changes: dict[str, Any]) -> None:
        self.root = root
        self.log = FakeLog()
        self.switch = FakeSwitch(self.log)
        self.slaves = FakeSlaves()
        self.lease = Lease()
        self.clock = SystemClock()
        self.failures: list[SprocketError] = []
        fields = {"broker_name": GROUP, "broker_cluster_name": CLUSTER, "enable_controller_mode": True}
        config = broker_config(
            **(fields | {"controller_addr": controllers, "sync_broker_metadata_period": 200} | changes)
        )
        self.config = LiveConfig(config, store_config(root, **store))
        self.client = RemotingClient()
        self.membership = Membership(
            ControlledReplica(
                self.config, self.clock, self.lease, self.clock.monotonic, self.switch, self.log, lambda: self.slaves,
                [], lambda: self.client, self.failures.append,
            )
        )  # fmt: skip
        self.port = RemotingServer(RouteTable(self.membership.routes()), ConnectionSettings("127.0.0.1"))

    @property
    def broker_id(self) -> int:
        return self.membership.broker_id

    @property
    def is_held(self) -> bool:
        """Whether it may acknowledge now."""
        return self.lease.is_held(self.clock.monotonic())

    async def start(self) -> None:
        self.membership.check()
        await self.port.start()
        self.config.replace_broker(replace(self.config.broker, listen_port=self.port.port))
        self.membership.start()

    async def stop(self) -> None:
        self.membership.stop()
        await self.port.stop()

    async def die(self) -> None:
        """End like a process that is killed: connections close, and nothing is told to anybody."""
        self.membership.stop = lambda: None  # type: ignore[method-assign]
        for task in self.membership._tasks:
            task.cancel()
        self.membership._beats.stop()
        await self.client.close()
        await self.port.stop()


class Rig:
    """A controller with the system's clock, and brokers below one directory."""

    def __init__(self, root: Path, site: Site) -> None:
        self.root = root
        self.site = site
        self.brokers: list[FakeBroker] = []

    async def broker(self, name: str, *, store: dict[str, Any] | None = None, **changes: Any) -> FakeBroker:
        """A broker in the directory `name`, started, and with an id."""
        made = FakeBroker(self.root / name, self.site.address, store or {}, changes)
        self.brokers.append(made)
        await made.start()
        await until(lambda: made.broker_id)
        return made

    async def in_sync(self, master: FakeBroker, slave: FakeBroker) -> None:
        """Let `slave` have the master's log, and wait until the controllers have both in the sync-state set."""
        slave.log.history, slave.log.end = master.log.history, master.log.end
        master.slaves.has[slave.broker_id] = master.log.end
        master.slaves.now |= {slave.broker_id}
        await until(lambda: {master.broker_id, slave.broker_id} <= set(self.site.group.sync_state_set))


@asynccontextmanager
async def rig_at(root: Path, **changes: Any) -> AsyncIterator[Rig]:
    fields: dict[str, Any] = {"master_lease_millis": LEASE_MS}
    async with site_at(root, SystemClock(), **(fields | changes)) as site:
        rig = Rig(root, site)
        try:
            yield rig
        finally:
            for broker in rig.brokers:
                await broker.stop()
                assert not broker.failures
