"""Members in processes of their own: nothing acknowledged is lost when they are killed or paused."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.ha.raft.groups import until
from tests.ha.raft.processes import ProcessGroup

_ROUNDS = 3


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[ProcessGroup]:
    group = ProcessGroup(tmp_path)
    try:
        await group.start()
        yield group
    finally:
        await group.close()


class Load:
    """Proposals, one after another, each with another command, and what became of them."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self.acknowledged: list[bytes] = []
        self.unknown: list[bytes] = []
        self.stops = False

    async def run(self) -> None:
        number = 0
        while not self.stops:
            number += 1
            command = b"c%d" % number
            outcome = await self._group.propose(command)
            (self.acknowledged if outcome == "ok" else self.unknown).append(command)


async def _check(group: ProcessGroup, load: Load) -> None:
    """Every acknowledged command is there once and in order, on all members alike."""
    assert await until(lambda: _proposed(group, b"last"))
    machines = {}

    async def are_equal() -> bool:
        for member_id in group.members:
            machines[member_id] = await group.commands(member_id)
        return len(group.members) == 3 and len({tuple(one) for one in machines.values()}) == 1

    await until(are_equal)
    commands = machines["n0"]
    known = set(load.acknowledged)
    assert [one for one in commands if one in known] == load.acknowledged
    assert set(commands) <= known | set(load.unknown) | {b"last"}
    assert len(set(commands)) == len(commands)


async def _proposed(group: ProcessGroup, command: bytes) -> bool:
    return await group.propose(command) == "ok"


async def test_killing_the_leader_loses_nothing_that_was_acknowledged(group: ProcessGroup) -> None:
    load = Load(group)
    running = asyncio.create_task(load.run())
    for _ in range(_ROUNDS):
        leader = await group.leader()
        await asyncio.sleep(0.3)
        before = len(load.acknowledged)
        await group.kill(leader)
        began = time.monotonic()
        await until(partial(_went_on, load, before + 1))
        print(f"{leader} killed: acknowledged again after {time.monotonic() - began:.2f} s")
        await group.start(leader)
    load.stops = True
    await running
    assert len(load.acknowledged) > 20
    await _check(group, load)


async def test_killing_all_members_at_once_loses_nothing_that_was_acknowledged(group: ProcessGroup) -> None:
    load = Load(group)
    running = asyncio.create_task(load.run())
    await group.leader()
    await asyncio.sleep(0.5)
    await asyncio.gather(*(group.kill(one) for one in list(group.members)))
    load.stops = True
    await group.start()
    await running
    assert len(load.acknowledged) > 5
    await _check(group, load)


async def test_a_leader_that_was_paused_follows_and_loses_nothing(group: ProcessGroup) -> None:
    paused_id = await group.leader()
    paused = group.members.pop(paused_id)
    load = Load(group)
    paused.signal(signal.SIGSTOP)
    running = asyncio.create_task(load.run())
    await until(lambda: _went_on(load, 5))
    paused.signal(signal.SIGCONT)
    group.members[paused_id] = paused
    term = (await group.members[await group.leader()].ask("status")).split()[1]
    await asyncio.sleep(2)
    load.stops = True
    await running
    # It did not depose the leader that was elected meanwhile.
    assert (await group.members[await group.leader()].ask("status")).split()[1] == term
    await _check(group, load)


@pytest.mark.parametrize(
    ("failpoint", "status"),
    [
        ("disk.sync=error:EIO@15", 74),
        ("disk.sync=kill@12", -9),
    ],
)
async def test_a_member_whose_disk_fails_or_that_dies_at_a_sync_loses_nothing(
    group: ProcessGroup, failpoint: str, status: int
) -> None:
    load = Load(group)
    failing = next(one for one in group.members if one != "n0")
    await group.leader()
    await group.kill(failing)
    await group.start(failing, failpoints=failpoint)
    member = group.members[failing]
    running = asyncio.create_task(load.run())
    assert await member.ended() == status
    del group.members[failing]
    await until(partial(_went_on, load, len(load.acknowledged) + 5))
    await group.start(failing)
    load.stops = True
    await running
    await _check(group, load)


async def _went_on(load: Load, count: int) -> bool:
    return len(load.acknowledged) >= count
