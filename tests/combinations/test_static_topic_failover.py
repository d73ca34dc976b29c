"""SIGKILL of masters while queues of a static topic move between two replicated groups, under ordered traffic."""

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path
from typing import Final

import pytest

from sprocket import ClientSettings
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.static_topics import StaticTopics
from sprocket.common.errors import SprocketError
from sprocket.static_topic.unfinished import is_unfinished
from sprocket_cli.processes.local_cluster import LocalCluster, Member, Started
from tests.chaos.moves.traffic import OrderedTraffic
from tests.combinations.profiles import CONTROLLER, OPEN, Written, write
from tests.combinations.traffic import Traffic

pytestmark = pytest.mark.timeout(420)
TOPIC: Final = "Moving"
_ROUNDS: Final = 4
_STEPS: Final = 5  # of a move
_LIMIT_S: Final = 90.0


class Groups:
    """Two groups of three replicas, whose masters controllers appoint."""

    def __init__(self, written: Written, admin: AdminClient) -> None:
        self.written = written
        self.admin = admin
        self.topics = StaticTopics.of(admin)

    async def master(self, group: str) -> Member:
        """Return the member that name servers call the master, once there is one."""
        async with asyncio.timeout(_LIMIT_S):
            while True:
                table = (await self.admin.cluster_info()).broker_addr_table
                address = table[group].broker_addrs.get(0) if group in table else None
                for member in self.written.cluster.members:
                    if member.is_broker and member.address == address and self._runs(member):
                        return member
                await asyncio.sleep(0.1)

    def _runs(self, member: Member) -> bool:
        return self.written.cluster.pid_file(member).running() is not None

    async def in_sync(self) -> None:
        """Wait until a second replica of each group has what its master has: only then can another one be elected."""
        traffic = Traffic(ClientSettings(namesrv=self.written.cluster.namesrv))
        await traffic.send("in sync", self.written.groups)

    async def kill_master(self, group: str) -> Member:
        member = await self.master(group)
        identity = self.written.cluster.pid_file(member).running()
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)
        return member

    async def move(self, target: str, victim: str, at: int) -> Member:
        """Move all queues to a group; the master of `victim` is killed at a step.  Then finish the move."""
        killed: list[asyncio.Task[Member]] = []
        step = 0

        def on_step(_: object) -> None:
            nonlocal step
            step += 1
            if step == at:
                killed.append(asyncio.create_task(self.kill_master(victim)))

        plan = await self.topics.remapping(TOPIC, [target], await self.topics.configs(TOPIC))
        with contextlib.suppress(SprocketError):
            await self.topics.remap(TOPIC, plan, on_step=on_step)
        member = await killed[0]
        async with asyncio.timeout(_LIMIT_S):
            while True:
                try:
                    await self.master(victim)
                    await self.topics.finish(TOPIC)
                    configs = await self.topics.configs(TOPIC)
                    if len(configs) == 2 and not is_unfinished(TOPIC, configs):
                        return member
                except SprocketError:
                    pass
                await asyncio.sleep(0.2)

    async def equal_everywhere(self) -> None:
        """Wait until the replicas of each group have the mapping of their master."""
        async with asyncio.timeout(_LIMIT_S):
            for group in self.written.groups:
                members = [each for each in self.written.cluster.members if each.broker_name == group]
                while True:
                    try:
                        found = [await self.admin.topic_config(member.address, TOPIC) for member in members]
                    except AdminError:
                        found = []
                    details = [None if config is None else config.mapping_detail for config in found]
                    if details and details[0] is not None and all(detail == details[0] for detail in details):
                        break
                    await asyncio.sleep(0.2)


def _start(cluster: LocalCluster, members: list[Member]) -> None:
    started = Started()
    with started.undone_on_failure():
        cluster.launch(members, started)


async def test_masters_are_killed_while_queues_move(tmp_path: Path) -> None:
    written = write(tmp_path, CONTROLLER, OPEN)
    cluster, chance = written.cluster, random.Random(1)
    try:
        await asyncio.to_thread(_start, cluster, list(cluster.members))
        async with AdminClient(cluster.namesrv) as admin:
            here = Groups(written, admin)
            await admin.wait_for_broker("DefaultCluster", 2, within_s=_LIMIT_S)
            first, second = written.groups
            await here.topics.create(TOPIC, await here.topics.creation(TOPIC, 4, [first], {}))
            traffic = OrderedTraffic(TOPIC, cluster.namesrv)
            async with traffic.running():
                await traffic.progress(3)
                for turn in range(_ROUNDS):
                    await here.in_sync()
                    target = (second, first)[turn % 2]
                    member = await here.move(target, (first, second)[turn // 2 % 2], chance.randint(1, _STEPS))
                    await asyncio.to_thread(_start, cluster, [member])
                    await traffic.progress(3)
            await here.equal_everywhere()
            assert traffic.problems == []
    finally:
        await asyncio.to_thread(cluster.stop, lambda _: None)
