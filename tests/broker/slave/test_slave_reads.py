"""Which replica a consumer is told to pull from, and what a slave answers."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerRole
from broker.pull.planner import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from broker.role import Role
from broker.slave.slave_reads import SlaveReads
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.pull import PullMessageResponseHeader
from tests.broker.hot_path import TOPIC, HotPath, hot_path, properties

FAR = {"access_message_in_memory_max_ratio": 0}  # nothing counts as in memory
READABLE = {"slave_read_enable": True}
WAITING = SUBSCRIPTION | SUSPEND
GROUP = SubscriptionGroupConfig("CG", broker_id=4, which_broker_when_consume_slowly=7)


def answer(response: ReceivedResponse) -> tuple[int, int, int]:
    """Code, where to go on, and at whom."""
    header = response.header(PullMessageResponseHeader)
    return response.code, header.next_begin_offset, header.suggest_which_broker_id


async def send(path: HotPath, count: int = 1) -> None:
    for _ in range(count):
        assert (await path.send(properties=properties(TAGS="TagA"))).code == ResponseCode.SUCCESS


async def held(path: HotPath, count: int) -> None:
    async with asyncio.timeout(60):
        while len(path.held) != count:
            await asyncio.sleep(0.005)


@dataclass
class Slave:
    """A slave whose log grows by sends in place of replication."""

    path: HotPath
    role: Role
    reads: SlaveReads
    is_master_online: bool = False


@asynccontextmanager
async def slave(root: Path, **settings: Mapping[str, object]) -> AsyncIterator[Slave]:
    """A slave with two messages whose master is away."""
    async with hot_path(root, **{"broker": READABLE, **settings}) as path:  # type: ignore[arg-type] # as there
        role = Role(BrokerRole.SLAVE)
        reads = SlaveReads(path.config, role, path.clock, lambda: found.is_master_online, path.held)
        found = Slave(path, role, reads)
        path.pull_processor.slave = reads
        path.groups.update([GROUP])
        await send(path, 2)
        yield found


# On a master


@pytest.mark.parametrize(("enabled", "is_far", "suggested"), [(False, True, 0), (True, False, 4), (True, True, 7)])
async def test_a_master_suggests_whom_the_group_names(
    tmp_path: Path, enabled: bool, is_far: bool, suggested: int
) -> None:
    async with hot_path(
        tmp_path, broker={"slave_read_enable": enabled}, store=FAR if is_far else {}
    ) as path:  # fmt: skip
        path.groups.update([GROUP])
        await send(path, 3)
        assert answer(await path.pull(max_msg_nums=2)) == (ResponseCode.SUCCESS, 2, suggested)
        nothing = await path.pull(subscription="TagB")
        assert answer(nothing) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 3, suggested)
        at_the_end = await path.pull(queue_offset=3)
        assert answer(at_the_end) == (ResponseCode.PULL_NOT_FOUND, 3, 4 if enabled else 0)


# On a slave whose master is away


async def test_a_slave_without_a_master_serves_and_wakes_waiting_pulls(tmp_path: Path) -> None:
    async with slave(tmp_path) as one:
        assert answer(await one.path.pull()) == (ResponseCode.SUCCESS, 2, 4)
        pull = asyncio.create_task(one.path.pull(queue_offset=2, sys_flag=WAITING))
        await held(one.path, 1)
        await send(one.path)
        assert answer(await pull) == (ResponseCode.SUCCESS, 3, 4)


async def test_a_slave_keeps_serving_a_consumer_that_lags(tmp_path: Path) -> None:
    async with slave(tmp_path, store=FAR) as one:
        one.is_master_online = True
        assert answer(await one.path.pull()) == (ResponseCode.SUCCESS, 2, 7)
        # At the end no consumer lags.
        assert answer(await one.path.pull(queue_offset=2)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2, 0)


@pytest.mark.parametrize("offset", [5, -1])
async def test_a_slave_moves_nobody_to_where_its_own_queue_reaches(tmp_path: Path, offset: int) -> None:
    async with slave(tmp_path) as one:
        unmoved = (ResponseCode.PULL_RETRY_IMMEDIATELY, offset)
        assert answer(await one.path.pull(queue_offset=offset))[:2] == unmoved
        one.is_master_online = True
        assert answer(await one.path.pull(queue_offset=offset)) == (*unmoved, 0)


async def test_a_consumer_that_is_ahead_of_a_slave_waits_for_it(tmp_path: Path) -> None:
    async with slave(tmp_path) as one:
        pull = asyncio.create_task(one.path.pull(queue_offset=4, sys_flag=WAITING))
        await held(one.path, 1)
        await send(one.path, 2)
        assert not pull.done()
        await send(one.path)
        assert answer(await pull) == (ResponseCode.SUCCESS, 5, 4)


@pytest.mark.parametrize(("offset", "corrected"), [(5, 2), (-1, 0)])
async def test_a_slave_that_is_told_to_corrects_offsets(tmp_path: Path, offset: int, corrected: int) -> None:
    async with slave(tmp_path, store={"offset_check_in_slave": True}) as one:
        moved = answer(await one.path.pull(queue_offset=offset, sys_flag=WAITING))
        assert moved == (ResponseCode.PULL_OFFSET_MOVED, corrected, 4)


async def test_an_offset_that_was_set_is_told_at_a_slave_too(tmp_path: Path) -> None:
    async with slave(tmp_path) as one:
        for is_online in (False, True):
            one.is_master_online = is_online
            one.path.offsets.reset("CG", TOPIC, 0, 1)
            assert answer(await one.path.pull(queue_offset=2))[:2] == (ResponseCode.PULL_OFFSET_MOVED, 1)


async def test_a_slave_takes_the_offset_that_a_pull_commits(tmp_path: Path) -> None:
    async with slave(tmp_path) as one:
        await one.path.pull(commit_offset=1, sys_flag=SUBSCRIPTION | COMMIT_OFFSET)
        assert one.path.offsets.query("CG", TOPIC, 0) == 1


# On a slave whose master is there


async def test_a_slave_sends_consumers_near_the_end_to_its_master(tmp_path: Path) -> None:
    async with slave(tmp_path) as one:
        one.is_master_online = True
        assert answer(await one.path.pull()) == (ResponseCode.SUCCESS, 2, 0)
        assert answer(await one.path.pull(subscription="TagB")) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2, 0)
        away = await one.path.pull(queue_offset=2, sys_flag=WAITING)
        assert (answer(away), away.remark) == ((ResponseCode.PULL_RETRY_IMMEDIATELY, 2, 0), "OFFSET_OVERFLOW_ONE")


async def test_a_consumer_that_returns_from_the_master_at_once_is_held(tmp_path: Path) -> None:
    async with slave(tmp_path) as one:
        one.is_master_online = True
        await one.path.pull(queue_offset=2, sys_flag=WAITING)
        back = asyncio.create_task(one.path.pull(queue_offset=2, sys_flag=WAITING))
        await held(one.path, 1)
        # Another queue's consumer is not meant, nor one that comes later.
        assert (await one.path.pull(queue_id=1, sys_flag=WAITING)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        one.path.clock.advance(2.0)
        assert (await one.path.pull(queue_offset=2, sys_flag=WAITING)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        # What comes for it meanwhile it gets here; without that it is sent away again after a second.
        again = asyncio.create_task(one.path.pull(queue_id=1, sys_flag=WAITING))
        await send(one.path)
        assert answer(await back) == (ResponseCode.SUCCESS, 3, 0)
        assert answer(await again) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 0, 0)


async def test_those_who_wait_at_a_slave_go_to_the_master_when_it_comes(tmp_path: Path) -> None:
    async with slave(tmp_path) as one:
        one.reads.watch()
        pull = asyncio.create_task(one.path.pull(queue_offset=2, sys_flag=WAITING))
        await held(one.path, 1)
        one.reads.watch()
        assert len(one.path.held) == 1
        one.is_master_online = True
        one.reads.watch()
        assert answer(await pull) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2, 0)


async def test_a_slave_that_acts_for_its_master_serves_as_that_would(tmp_path: Path) -> None:
    async with slave(tmp_path, broker={}) as one:
        one.role.act(True)
        one.is_master_online = True
        assert (await one.path.pull()).code == ResponseCode.SUCCESS
        pull = asyncio.create_task(one.path.pull(queue_offset=2, sys_flag=WAITING))
        await held(one.path, 1)
        await send(one.path)
        assert (await pull).code == ResponseCode.SUCCESS


# On a slave that may not be read


async def test_a_slave_that_is_not_to_be_read_sends_consumers_to_its_master(tmp_path: Path) -> None:
    async with slave(tmp_path, broker={}) as one:
        refused = await one.path.pull()
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert refused.remark == "[REJECTREQUEST]system busy, start flow control for a while"
        one.is_master_online = True
        for _ in range(2):
            assert answer(await one.path.pull(queue_offset=1)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 1, 0)
            # A consumer that cannot reach the master must not try again at once.
            assert (await one.path.pull(queue_offset=1)).code == ResponseCode.SYSTEM_BUSY
            one.path.clock.advance(2.0)
        one.path.config.update(b"slaveReadEnable=true")
        assert (await one.path.pull()).code == ResponseCode.SUCCESS
