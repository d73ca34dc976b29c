"""A slave dies anywhere while it takes its master's log, and catches up by itself."""

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sprocket.remoting.bodies.stats import HARuntimeInfo
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode
from tests.broker.rig import TestClient, create
from tests.chaos.kills.failpoint_rounds import Scene, points, way_to
from tests.chaos.nursery import ChaosBroker, Nursery
from tests.compat.ports import free_port

# A segment holds few of the messages, so that slaves also die between segments.
_SMALL = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "20000",
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
    "brokerFastFailureEnable": "false",
}
_BODY = b"x" * 3000
_MESSAGES = 60
# (failpoint, how manieth time): those of a replica's log, and of the disk below it.
_OWN = [(point, times) for point in points() if way_to(point).scene is Scene.FOLLOWING for times in (1, 3)]
_BELOW = [("disk.create", 2), ("disk.created", 3), ("disk.write", 30), ("disk.sync", 2)]


@dataclass
class Pair:
    """A master that lives, and a slave that is started again and again."""

    master: ChaosBroker
    slave: ChaosBroker

    async def status(self, broker: ChaosBroker) -> HARuntimeInfo:
        client = TestClient(broker.address)
        try:
            answer = await client.ask_well(RequestCode.GET_BROKER_HA_STATUS)
            return loads(bytes(answer.body), HARuntimeInfo)
        finally:
            await client.close()

    async def send(self, count: int) -> None:
        client = TestClient(self.master.address)
        try:
            await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
            for number in range(count):
                await client.send(_BODY, queue_id=number % 2)
        finally:
            await client.close()

    async def in_step(self, limit_s: float = 60.0) -> int:
        """Wait until the slave has all; where the log ends."""
        end_offset = (await self.status(self.master)).master_commit_log_max_offset
        async with asyncio.timeout(limit_s):
            while (await self.status(self.slave)).ha_client_runtime_info.max_offset < end_offset:
                await asyncio.sleep(0.02)
        return end_offset

    def same_logs(self, end_offset: int) -> None:
        """From the slave's first segment on."""
        ours, theirs = (_log(broker.store) for broker in (self.master, self.slave))
        assert ours
        assert theirs
        begin = min(theirs)
        assert (
            b"".join(ours[at] for at in sorted(ours) if at >= begin)[: end_offset - begin]
            == b"".join(theirs[at] for at in sorted(theirs))[: end_offset - begin]
        )


def _log(store: Path) -> dict[int, bytes]:
    return {int(path.name): path.read_bytes() for path in (store / "commitlog").iterdir() if path.name.isdigit()}


@pytest.fixture
def pair(nursery: Nursery, tmp_path: Path) -> Iterator[Pair]:
    port = free_port()
    leads = {**_SMALL, "haListenPort": str(port), "brokerIP2": "127.0.0.1"}
    follows = {**_SMALL, "brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": f"127.0.0.1:{port}"}
    with (
        ChaosBroker(nursery, tmp_path / "master", leads) as master,
        ChaosBroker(nursery, tmp_path / "slave", follows) as slave,
    ):
        yield Pair(master, slave)


async def test_a_slave_that_dies_anywhere_catches_up(pair: Pair) -> None:
    """One store lives through all deaths, so each also finds what the ones before it left."""
    pair.master.start()
    await pair.send(_MESSAGES)
    not_reached = []
    for point, times in [*_OWN, *_BELOW]:
        pair.slave.launch(f"{point}=kill@{times}")
        if pair.slave.await_serving():
            await pair.send(_MESSAGES)
            if not await asyncio.to_thread(pair.slave.has_ended, 5.0):
                not_reached.append(point)
                pair.slave.kill()
        if pair.slave.pid:
            assert pair.slave.wait() == -signal.SIGKILL
        pair.slave.start()
        end_offset = await pair.in_step()
        pair.slave.kill()
        pair.same_logs(end_offset)
    assert not not_reached
