"""Which controller leads: all are asked at the same time, and an election ends the wait for one that stands still."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.controller.controllers import Controllers, NoController
from sprocket.common.errors import ClientError, RequestError
from sprocket.remoting.bodies.controller import SyncStateSet
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.controller import (
    ElectMasterRequestHeader,
    GetMetaDataResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
)
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from tests.waiting import until

pytestmark = pytest.mark.timeout(60)


class FakeController:
    """A controller that names `leader`, its own address if None; while it stands still it answers nothing."""

    def __init__(self, leader: str | None = None) -> None:
        self.leader = leader
        self.asked = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        code, cluster = RequestCode, Resource.CLUSTER
        header = GetReplicaInfoRequestHeader
        routes = [
            Route(code.CONTROLLER_GET_METADATA_INFO, NoHeader, self._metadata, cluster, Action.GET),
            Route(code.CONTROLLER_GET_REPLICA_INFO, header, self._info, cluster, Action.GET),
            Route(code.CONTROLLER_ELECT_MASTER, ElectMasterRequestHeader, self._elect, cluster, Action.UPDATE),
        ]
        self.port = RemotingServer(RouteTable(routes), ConnectionSettings("127.0.0.1"))
        self.address = ""

    async def start(self) -> None:
        await self.port.start()
        self.address = f"127.0.0.1:{self.port.port}"

    async def _metadata(self, _: Request[NoHeader]) -> Response:
        await self.goes_on.wait()
        leads = self.leader is None
        named = self.address if self.leader is None else self.leader
        return Response(header=GetMetaDataResponseHeader(controller_leader_address=named, is_leader=leads))

    async def _elect(self, _: Request[Any]) -> Response:
        self.asked += 1
        await self.goes_on.wait()
        raise RequestError(ResponseCode.SYSTEM_ERROR, "too late")

    async def _info(self, _: Request[Any]) -> Response:
        self.asked += 1
        await self.goes_on.wait()
        return Response(header=GetReplicaInfoResponseHeader(master_epoch=7), body=dumps(SyncStateSet([1], 1)))


@pytest.fixture(autouse=True)
def _endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for a controller that stands still fails the test."""
    monkeypatch.setattr("broker.controller.controllers._TIMEOUT_S", 3600.0)
    monkeypatch.setattr("broker.controller.controllers._FIND_TIMEOUT_S", 3600.0)


@asynccontextmanager
async def asking(*fakes: FakeController) -> AsyncIterator[Controllers]:
    for fake in fakes:
        await fake.start()
    addresses = ";".join(fake.address for fake in fakes)
    controllers = Controllers(RemotingClient, "c", "broker-a", lambda: addresses, looks_up=False)
    await controllers.resolve()
    try:
        yield controllers
    finally:
        await controllers.close()
        for fake in fakes:
            fake.goes_on.set()
            await fake.port.stop()


async def test_one_that_stands_still_delays_nobody() -> None:
    still, leader = FakeController(), FakeController()
    still.goes_on.clear()
    async with asking(still, leader) as controllers:
        assert await controllers.find_leader() == leader.address


async def test_a_leader_that_is_named_but_does_not_say_so_itself_counts_only_from_outside() -> None:
    lost, follower = FakeController(), FakeController()
    async with asking(lost, follower) as controllers:
        lost.leader, follower.leader = "", lost.address
        with pytest.raises(NoController, match=f"{follower.address}: names {lost.address}"):
            await controllers.find_leader()
        follower.leader = "10.0.0.9:9878"
        assert await controllers.find_leader() == "10.0.0.9:9878"


async def test_an_election_ends_the_wait_for_the_old_leader() -> None:
    old, new = FakeController(), FakeController("")
    async with asking(old, new) as controllers:
        assert await controllers.find_leader() == old.address
        old.goes_on.clear()
        info = asyncio.create_task(controllers.info())
        change = asyncio.create_task(controllers.elect(1))
        await until(lambda: old.asked == 2)
        new.leader = None
        controllers.doubt_leader()
        assert (await info).master_epoch == 7
        assert (old.asked, new.asked) == (2, 1)
        # Whether the old leader carries a change out is unknown.
        with pytest.raises(ClientError, match="the outcome is unknown"):
            await change
