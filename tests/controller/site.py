"""A controller on a free port with a consensus of its own, and brokers of all kinds that talk to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from controller.config import ControllerConfig
from controller.server import Controller
from controller.state.group import Group
from ha.raft.consensus import StateMachine
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.controller import EpochEntry, EpochEntryCache, SyncStateSet
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from sprocket.remoting.headers.namesrv import BrokerHeartbeatRequestHeader, BrokerHeartbeatResponseHeader
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from tests.compat.ports import free_port
from tests.controller.lone_consensus import LoneConsensus
from tests.in_process import WAIT_S, ServerSite, started

CLUSTER, GROUP = "c", "broker-a"
H = TypeVar("H", bound=Header)
Notice = tuple[NotifyBrokerRoleChangedRequestHeader, SyncStateSet]


class Site(ServerSite):
    """A controller, and what brokers and operators ask it."""

    server: Controller

    def __init__(self, tmp_path: Path, changes: dict[str, Any], clock: Clock | None = None) -> None:
        super().__init__()
        self.failures: list[SprocketError] = []
        self.consensuses: list[LoneConsensus] = []
        fields: dict[str, Any] = {
            "bind_address": "127.0.0.1",
            "controller_dleger_group": "g",
            "controller_dleger_peers": f"n0-127.0.0.1:{free_port()}",
            "controller_dleger_self_id": "n0",
            "controller_store_path": tmp_path / "controller",
        }
        self.config = ControllerConfig(**(fields | changes))
        self.server = Controller(
            self.config, clock=clock or self.clock, on_fatal=self.failures.append, make_consensus=self._consensus
        )

    def _consensus(self, config: ControllerConfig, machine: StateMachine, *_: object) -> LoneConsensus:
        self.consensuses.append(LoneConsensus(config, machine))
        return self.consensuses[-1]

    @property
    def consensus(self) -> LoneConsensus:
        return self.consensuses[0]

    @property
    def group(self) -> Group:
        found = self.server.machine.group(GROUP)
        assert found is not None
        return found

    async def elect(
        self, broker_id: int, expect: ResponseCode = ResponseCode.SUCCESS, **fields: Any
    ) -> ReceivedResponse:
        header = ElectMasterRequestHeader(cluster_name=CLUSTER, broker_name=GROUP, broker_id=broker_id, **fields)
        return await self.ask(RequestCode.CONTROLLER_ELECT_MASTER, header, expect=expect)

    async def in_sync(self, *ids: int, expect: ResponseCode = ResponseCode.SUCCESS) -> ReceivedResponse:
        group = self.group
        header = AlterSyncStateSetRequestHeader(
            broker_name=GROUP, master_broker_id=group.master_id, master_epoch=group.master_epoch
        )
        body = dumps(SyncStateSet(list(ids), group.sync_state_set_epoch))
        return await self.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body, expect=expect)


class FakeBroker:
    """A broker's requests in RocketMQ's order, and a port that records the controller's notices."""

    def __init__(self, site: Site, name: str = GROUP) -> None:
        self._site = site
        self.name = name
        self.broker_id = 0
        self.heard: list[Notice] = []
        self.connection = site.connection()
        route = Route(
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED, NotifyBrokerRoleChangedRequestHeader, self._hear,
            Resource.CLUSTER, Action.UPDATE,
        )  # fmt: skip
        # What it answers when a controller asks for its log: its last epoch and its end; None: nothing at all.
        self.log: tuple[int, int] | None = (1, 100)
        asked = Route(RequestCode.GET_BROKER_EPOCH_CACHE, NoHeader, self._show_log, Resource.CLUSTER, Action.GET)
        self.times_asked = 0
        self.port = RemotingServer(RouteTable([route, asked]), ConnectionSettings("127.0.0.1"))

    async def _show_log(self, _: Request[NoHeader]) -> Response:
        self.times_asked += 1
        if self.log is None:
            await asyncio.sleep(WAIT_S)
            raise AssertionError("nobody waits that long")
        epoch, end = self.log
        cache = EpochEntryCache(CLUSTER, self.name, self.broker_id, [EpochEntry(epoch, 0)], end)
        return Response(body=dumps(cache))

    def _hear(self, request: Request[NotifyBrokerRoleChangedRequestHeader]) -> None:
        self.heard.append((request.header, loads(request.body, SyncStateSet)))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port.port}"

    async def start(self, code_suffix: str = "1") -> None:
        """Get an id, register, and send a heartbeat."""
        await self.port.start()
        names = {"cluster_name": CLUSTER, "broker_name": self.name}
        site = self._site
        answer = await site.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequestHeader(**names))
        self.broker_id = answer.header(GetNextBrokerIdResponseHeader).next_broker_id or 0
        apply = ApplyBrokerIdRequestHeader(
            **names, applied_broker_id=self.broker_id, register_check_code=f"{self.address};{code_suffix}"
        )
        await site.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
        await self.register()
        await self.beat()

    async def register(self, expect: ResponseCode = ResponseCode.SUCCESS, **changes: Any) -> ReceivedResponse:
        fields: dict[str, Any] = {
            "cluster_name": CLUSTER, "broker_name": self.name, "broker_id": self.broker_id,
            "broker_address": self.address,
        }  # fmt: skip
        header = RegisterBrokerToControllerRequestHeader(**(fields | changes))
        return await self._site.ask(RequestCode.CONTROLLER_REGISTER_BROKER, header, expect=expect, by=self.connection)

    async def beat(self, expect: ResponseCode = ResponseCode.SUCCESS, **changes: Any) -> ReceivedResponse:
        fields: dict[str, Any] = {
            "cluster_name": CLUSTER, "broker_name": self.name, "broker_id": self.broker_id,
            "broker_addr": self.address, "epoch": 1, "max_offset": 100,
        }  # fmt: skip
        header = BrokerHeartbeatRequestHeader(**(fields | changes))
        return await self._site.ask(RequestCode.BROKER_HEARTBEAT, header, expect=expect, by=self.connection)

    async def ask_lease(self, epoch: int = 1, required: int = 2, **changes: Any) -> int:
        """Send a heartbeat that asks for a lease; return the one granted, 0 if there is none."""
        answer = await self.beat(lease_epoch=epoch, required_acks=required, **changes)
        granted = answer.header(BrokerHeartbeatResponseHeader)
        assert granted.knows_leases
        return granted.lease_millis or 0

    async def die(self) -> None:
        await self.connection.close()
        await self.port.stop()


def site_at(tmp_path: Path, clock: Clock | None = None, **changes: Any) -> AbstractAsyncContextManager[Site]:
    """A running controller; it has the test's own clock, which only the test moves, unless `clock` is given."""
    return started(Site(tmp_path, changes, clock))


@asynccontextmanager
async def group_of(site: Site, count: int) -> AsyncIterator[list[FakeBroker]]:
    """A group of `count` brokers: the first leads, and all are in sync."""
    brokers = [FakeBroker(site) for _ in range(count)]
    try:
        for broker in brokers:
            await broker.start()
        await site.elect(brokers[0].broker_id)
        if count > 1:
            await site.in_sync(*(broker.broker_id for broker in brokers))
        yield brokers
    finally:
        for broker in brokers:
            await broker.port.stop()
