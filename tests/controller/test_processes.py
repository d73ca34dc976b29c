"""Three controllers as real processes on Raft: SIGKILL of the leader together with a master, and what survives."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.controller import SyncStateSet
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    ForgetControllerRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
)
from sprocket.remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from tests.compat.controllers.controllers import ControllerCluster

pytestmark = pytest.mark.timeout(180)
NAMES = {"cluster_name": "c", "broker_name": "broker-a"}
_LIMIT_S = 60.0


class World:
    """The controllers, and connections of two brokers to each of them."""

    def __init__(self, cluster: ControllerCluster) -> None:
        self.cluster = cluster
        self.brokers = {1: RemotingClient(), 2: RemotingClient()}
        self.operator = RemotingClient()

    async def ask(self, code: RequestCode, of: Header, body: bytes = b"") -> ReceivedResponse:
        """Ask the leader until there is one that answers."""
        deadline = time.monotonic() + _LIMIT_S
        while True:
            leader = await asyncio.to_thread(self.cluster.leader)
            if leader is not None:
                try:
                    response = await self.operator.invoke(leader.address, code, of, body)
                    if response.code != ResponseCode.CONTROLLER_NOT_LEADER:
                        return response
                except ClientError:
                    pass
            assert time.monotonic() < deadline, f"no leader answers {code.name}"
            await asyncio.sleep(0.05)

    async def done(self, code: RequestCode, of: Header, body: bytes = b"") -> ReceivedResponse:
        response = await self.ask(code, of, body)
        assert response.code == ResponseCode.SUCCESS, response.remark
        return response

    async def beat(self, broker_id: int) -> None:
        header = BrokerHeartbeatRequestHeader(
            cluster_name="c", broker_name="broker-a", broker_id=broker_id, broker_addr=f"127.0.0.1:{broker_id}"
        )
        for server in self.cluster.controllers:
            if server.process is not None and server.process.poll() is None:
                await self.brokers[broker_id].invoke(server.address, RequestCode.BROKER_HEARTBEAT, header)

    async def info(self) -> GetReplicaInfoResponseHeader:
        header = GetReplicaInfoRequestHeader(broker_name="broker-a")
        return (await self.done(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)).header(GetReplicaInfoResponseHeader)

    async def close(self) -> None:
        for client in (*self.brokers.values(), self.operator):
            await client.close()


async def until(holds: Callable[[], Awaitable[object]], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not await holds():
        assert time.monotonic() < deadline, f"not in {_LIMIT_S:g} s: {what}"
        await asyncio.sleep(0.05)


async def make_group(world: World) -> None:
    """Two brokers: the first leads, and both are in sync."""
    for broker_id in world.brokers:
        answer = await world.done(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequestHeader(**NAMES))
        assert answer.header(GetNextBrokerIdResponseHeader).next_broker_id == broker_id
        header: Any = ApplyBrokerIdRequestHeader(
            **NAMES, applied_broker_id=broker_id, register_check_code=f"127.0.0.1:{broker_id};1"
        )
        await world.done(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)
        await world.beat(broker_id)
    elect = ElectMasterRequestHeader(cluster_name="c", broker_name="broker-a", broker_id=1)
    await world.done(RequestCode.CONTROLLER_ELECT_MASTER, elect)
    alter = AlterSyncStateSetRequestHeader(broker_name="broker-a", master_broker_id=1, master_epoch=1)
    await world.done(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, alter, dumps(SyncStateSet([1, 2], 1)))


async def test_the_leader_and_a_master_die_together_and_nothing_is_forgotten(tmp_path: Path) -> None:
    with ControllerCluster(tmp_path) as cluster:
        await asyncio.to_thread(cluster.start_controllers)
        world = World(cluster)
        await make_group(world)
        leader = cluster.leader()
        assert leader is not None
        leader.kill()
        await world.brokers[1].close()

        async def second_leads() -> bool:
            await world.beat(2)
            return (await world.info()).master_broker_id == 2

        await until(second_leads, "the slave is the master")
        assert (await world.info()).master_epoch == 2
        # The controller that was killed has missed the election, and still knows it once it is back.
        leader.start()
        other = next(one for one in cluster.controllers if one not in (leader, cluster.leader()))
        await until(lambda: asyncio.to_thread(cluster.knows_leader, leader), "it has joined the others")
        other.kill()
        assert (await world.info()).master_epoch == 2
        refused = await world.ask(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            ApplyBrokerIdRequestHeader(**NAMES, applied_broker_id=1, register_check_code="127.0.0.9:9;9"),
        )
        assert refused.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        # Without a majority nothing is promised.
        second = cluster.leader()
        assert second is not None
        last = next(one for one in cluster.controllers if one not in (other, second))
        last.kill()
        header = GetReplicaInfoRequestHeader(broker_name="broker-a")
        code = RequestCode.CONTROLLER_GET_REPLICA_INFO
        answer = await world.operator.invoke(second.address, code, header, timeout_s=10)
        assert answer.code == ResponseCode.CONTROLLER_NOT_LEADER
        # All of them start again from their disks.
        second.kill()
        for server in cluster.controllers:
            server.start()
        assert (await world.info()).master_epoch == 2
        await world.close()


async def test_a_controller_that_lost_its_disk_comes_back_once_the_operator_says_so(tmp_path: Path) -> None:
    with ControllerCluster(tmp_path) as cluster:
        await asyncio.to_thread(cluster.start_controllers)
        world = World(cluster)
        await make_group(world)
        leader = cluster.leader()
        assert leader is not None
        lost = next(one for one in cluster.controllers if one is not leader)
        lost.kill()
        shutil.rmtree(lost.directory / "store")
        lost.start()

        async def is_refused() -> bool:
            return b"was known with another disk" in lost.output.read_bytes()

        await until(is_refused, "the empty disk is refused by name")
        assert (await world.info()).master_broker_id == 1
        lost.stop()
        shutil.rmtree(lost.directory / "store")
        forget = ForgetControllerRequestHeader(controller_id=f"n{cluster.controllers.index(lost)}")
        await world.done(RequestCode.FORGET_CONTROLLER, forget)
        lost.start()
        await until(lambda: asyncio.to_thread(cluster.knows_leader, lost), "it has joined the others")
        # The other follower dies: without the one that came back there is no majority.
        follower = next(one for one in cluster.controllers if one not in (lost, cluster.leader()))
        follower.kill()
        assert (await world.info()).master_epoch == 1
        apply = ApplyBrokerIdRequestHeader(**NAMES, applied_broker_id=3, register_check_code="127.0.0.1:3;1")
        await world.done(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
        await world.close()
