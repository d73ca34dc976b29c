"""Groups in virtual time: power cuts, partitions, pauses; what was acknowledged stays, and no vote is cast twice."""

import random

import pytest

from ha.raft import engine
from ha.raft.replicated import MemberForgotten, encode_change
from tests.ha.raft.sim_group import SimGroup, SimMember
from tests.sim.sim_image import Survivors
from tests.tiers import seeds

_SEEDS = 10


async def test_a_group_elects_a_leader_and_goes_on_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimGroup(1, monkeypatch)
    for member_id in group.members:
        group.start(member_id)
    group.run_until(lambda: group.leader() is not None)
    for _ in range(20):
        leader = group.leader()
        assert leader is not None
        group.propose(leader)
        group.run(0.1)
    assert len(group.checker.acknowledged) == 20
    first = group.leader()
    assert first is not None
    group.crash(first.id)
    began = group.now
    group.run_until(lambda: group.leader() is not None)
    assert group.now - began < 1.0
    group.start(first.id)
    group.run(2)
    for member in group.members.values():
        group.checker.check_all(member.machine)


class Storm:
    """Faults, drawn from the seed of a group."""

    def __init__(self, group: SimGroup) -> None:
        self._group = group
        self._rng = random.Random(group.rng.random())

    def step(self) -> None:
        """Called at each tick."""
        group, rng = self._group, self._rng
        if rng.random() < 0.5:
            group.propose(rng.choice(list(group.members.values())))
        if rng.random() < 0.1:
            group.read(rng.choice(list(group.members.values())))
        dice = rng.random()
        member_id = rng.choice(list(group.members))
        member = group.members[member_id]
        if member.core is None:
            if dice < 0.02:
                group.start(member_id)
        elif dice < 0.004:
            group.cut_power_in(member_id, rng.randrange(1, 8))
        elif dice < 0.006:
            group.crash(member_id, rng.choice(list(Survivors)))
        elif dice < 0.010:
            group.pause(member_id, rng.uniform(0.1, 3.0))
        elif dice < 0.016:
            cut = {one for one in group.members if rng.random() < 0.5}
            group.is_cut = lambda one, other: (one in cut) != (other in cut)
        elif dice < 0.030:
            group.is_cut = lambda one, other: False
            group.max_delay_s = rng.choice([0.001, 0.01, 0.2])


class LostDisk:
    """One disk after another that is lost, and is replaced by an empty one as an operator does it."""

    def __init__(self, group: SimGroup) -> None:
        self._group = group
        self.lost: SimMember | None = None
        self._is_forgotten = False
        self.replaced = 0
        self.is_over = False

    def step(self) -> None:
        """Called at each tick: lose a disk, forget it on the leader, start again, wait until it has caught up."""
        group, leader, lost = self._group, self._group.leader(), self.lost
        if lost is None:
            if not self.is_over and group.rng.random() < 0.01:
                self.lost = lost = group.rng.choice(list(group.members.values()))
                if lost.core is not None:
                    group.crash(lost.id)
                group.wipe(lost.id)
                self._is_forgotten = False
        elif not self._is_forgotten:
            if lost.core is not None:
                # The storm started it.
                group.crash(lost.id)
                group.wipe(lost.id)
            if leader is not None and leader.core is not None and group.rng.random() < 0.2:
                leader.core.engine.offer(encode_change(MemberForgotten(lost.id)), self._forgotten)
        elif lost.core is None:
            group.start(lost.id)
        elif leader is not None and leader.core is not None:
            # All members know the new disk.  Before that another loss may leave a group that cannot decide.
            cores = [one.core for one in self._group.running if one.core is not None]
            known = [one._replicated.disks.get(lost.id) for one in cores]
            disk_id = lost.core.claims.disk_id
            if len(cores) == len(group.members) and all(one is not None and one.disk_id == disk_id for one in known):
                self.lost = None
                self.replaced += 1

    def _forgotten(self, _: object, reason: int) -> None:
        self._is_forgotten = self._is_forgotten or not reason


@pytest.mark.parametrize("seed", seeds(6))
async def test_disks_that_are_lost_one_by_one_lose_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "COMPACT_ENTRIES", 40)
    group = SimGroup(seed, monkeypatch, 3 if seed % 2 else 5)
    for member_id in group.members:
        group.start(member_id)
    group.run_until(lambda: group.leader() is not None)
    group.run(2)
    storm, disks = Storm(group), LostDisk(group)

    def step() -> None:
        storm.step()
        disks.step()

    group.run(60, step)
    group.is_cut = lambda one, other: False
    for member in group.members.values():
        member.disk.after = None
        if member.core is None and member is not disks.lost:
            group.start(member.id)
    disks.is_over = True
    group.run(10, disks.step)
    leader = group.leader()
    assert leader is not None and disks.replaced
    group.checker.check_all(leader.machine)


@pytest.mark.parametrize("seed", seeds(_SEEDS))
async def test_faults_at_random_lose_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "COMPACT_ENTRIES", 40)
    group = SimGroup(seed, monkeypatch, 3 if seed % 4 else 5)
    for member_id in group.members:
        group.start(member_id)
    group.run_until(lambda: group.leader() is not None)
    group.run(60, Storm(group).step)
    _heal(group)
    _check(group)
    assert group.reads


def _heal(group: SimGroup) -> None:
    group.is_cut = lambda one, other: False
    group.max_delay_s = 0.005
    for member in group.members.values():
        member.disk.after = None
        if member.core is None:
            group.start(member.id)
    before = len(group.checker.acknowledged)

    def goes_on() -> bool:
        leader = group.leader()
        if leader is not None:
            group.propose(leader)
        return len(group.checker.acknowledged) > before + 3

    group.run_until(goes_on)
    group.run(3)


def _check(group: SimGroup) -> None:
    commands = [member.machine.commands for member in group.members.values()]
    assert all(one == commands[0] for one in commands)
    for member in group.members.values():
        group.checker.check_all(member.machine)
    assert not group.refused
