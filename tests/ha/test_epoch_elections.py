"""Random lives of a group under controllers, without clock, disk or network: no election loses what was acknowledged.

Masters append and die, slaves follow and fall behind, the sync-state set changes and its changes stay undecided.
Sessions, epochs and `Replicas` are the real ones; the controllers are their rules: of the set's `n` members any
`n - k + 1` tell their logs, and the best log leads, where `k` replicas have an acknowledged message.  A master asks for
another set once what its log held then is on enough members of it.
"""

import random
from collections.abc import Iterable

import pytest

from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import Epoch
from ha.replicas import ReplicaRules, Replicas
from tests.ha.sessions import RECORD, Ends, SessionMemoryLog
from tests.sim.sim_disk import ROOT, SimDisk
from tests.tiers import seeds

PATH = ROOT / "epochs"
STEPS = 60


class Member:
    """One replica: its log, its epochs, and the log's end that it last reported to a master."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log = SessionMemoryLog()
        self.disk = SimDisk(broker_id)
        self.epochs = EpochFile(self.disk, PATH, 0)
        self.reported = 0

    @property
    def rank(self) -> tuple[int, int]:
        """What an election compares: the last epoch, and the end of the log."""
        last = self.epochs.history.cut_at(self.log.end_offset).last
        return (-1 if last is None else last.number), self.log.end_offset

    def restart(self, rng: random.Random) -> None:
        """Start again, perhaps without an end of the log that nobody was told of."""
        # A session that ended early may have truncated what an earlier master was told of.
        self.reported = min(self.reported, self.log.end_offset)
        unreported = (self.log.end_offset - self.reported) // RECORD
        lost = rng.randrange(unreported + 1) * RECORD
        if lost:
            del self.log.content[-lost:]
        self.epochs = EpochFile(self.disk, PATH, self.log.end_offset)


class Group:
    """The members, their master, and the controllers' set.

    `sets` are those between which the master does not know, and `decided` those that the controllers may have.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.members = [Member(broker_id) for broker_id in range(1, 2 + self.rng.randrange(1, 5))]
        self.all_ack = self.rng.random() < 0.5
        self.in_sync_replicas = self.rng.randrange(1, 4)
        self.acknowledged = b""
        self.seen = b""
        self.epoch = self.elections = self.now = 0
        self.sets: list[frozenset[int]] = []
        self.decided: list[frozenset[int]] = []
        self.asked_at = 0  # end of the log when the change began that is not decided
        self._lead(self.rng.choice(self.members))

    def _lead(self, member: Member) -> None:
        self.epoch += 1
        self.master = member
        member.epochs.begin(Epoch(self.epoch, member.log.end_offset))
        member.reported = member.log.end_offset
        self.replicas = Replicas(ReplicaRules(
            max_gap_bytes=1 << 30, max_behind_s=1e9, in_sync_replicas=self.in_sync_replicas, all_in_sync=self.all_ack,
        ))  # fmt: skip
        self.sets = [frozenset({member.broker_id})]
        self.decided = list(self.sets)
        self._count()

    @property
    def told(self) -> int:
        """Of how many replicas an acknowledged message is sure, as the master tells the controllers; 0: of all."""
        return 0 if self.all_ack else max(2, self.in_sync_replicas)

    def _count(self) -> None:
        own = {self.master.broker_id}
        both = frozenset.intersection(*self.sets) - own
        self.replicas.count_only(both, frozenset.union(*self.sets) - own)
        self._note()

    def _note(self) -> None:
        """Note what is acknowledged and what consumers see by now."""
        self.now += 1
        log = self.master.log
        self.replicas.check(log.end_offset, float(self.now))
        progress = self.replicas.progress()
        if progress.acknowledged > len(self.acknowledged):
            self.acknowledged = bytes(log.content[: progress.acknowledged])
        if progress.limit is not None and progress.limit > len(self.seen):
            self.seen = bytes(log.content[: progress.limit])

    def step(self) -> None:
        rng = self.rng
        action = rng.random()
        if action < 0.35:
            self.master.log.content += rng.randbytes(RECORD * rng.randrange(1, 5))
            self.master.reported = self.master.log.end_offset
            self._note()
        elif action < 0.70:
            self.follow(rng.choice(self.members))
        elif action < 0.85:
            self.change_set()
        elif action < 0.92:
            member = rng.choice(self.members)
            if member is not self.master:
                self.replicas.left(member.broker_id, 0)
                member.restart(rng)
                self._note()
        else:
            self.elect()

    def follow(self, member: Member) -> None:
        """Let a slave follow for some pieces of the log, and report what it has."""
        master, log = self.master, self.master.log
        if member is master:
            return
        ends = Ends(
            log, member.log, master_epochs=master.epochs, slave_epochs=member.epochs,
            batch_bytes=self.rng.randrange(1, 90),
        )  # fmt: skip
        ends.master.received(ends.to_master, 0.0)
        for _ in range(self.rng.randrange(80)):
            buffers = ends.master.next_piece(0.0)
            if not buffers:
                break
            ends.master.received(ends.slave.received(b"".join(bytes(each) for each in buffers), 0.0), 0.0)
        self.replicas.left(member.broker_id, 0)
        if ends.master.requested_offset is not None:
            assert log.content.startswith(member.log.content)
            assert member.epochs.history == master.epochs.history.cut_at(member.log.end_offset)
            member.reported = has = ends.master.acked_offset
            assert has <= member.log.end_offset
            self.replicas.acknowledged(
                member.broker_id, 0, has, log.end_offset, float(self.now), broker_id=member.broker_id
            )
        self._note()

    def change_set(self) -> None:
        """Ask for the slaves in sync as the set, send that to the controllers, or hear what they decided."""
        if len(self.sets) == 1:
            self.sets.append(self.replicas.in_sync() | {self.master.broker_id})
            self.asked_at = self.master.log.end_offset
        elif len(self.decided) == 1 and self._has_settled(self.sets[1]):
            self.decided.append(self.sets[1])
        else:
            self.sets = [self.rng.choice(self.decided)]
            self.decided = list(self.sets)
        self._count()

    def _has_settled(self, wanted: frozenset[int]) -> bool:
        """Whether what the log held when the change began is on enough members of the new set."""
        holding = sum(
            member.reported >= self.asked_at for member in self.members if member.broker_id in self.replicas.in_sync()
            and member.broker_id in wanted
        )  # fmt: skip
        return 1 + holding >= min(self.told or len(wanted), len(wanted))

    def elect(self) -> None:
        """The master is gone, the controllers' set is one of those that may be it."""
        found = self.rng.choice(self.decided)
        members = [member for member in self.members if member.broker_id in found]
        k = self.told or len(members)
        needed = max(1, len(members) - k + 1)
        others = [member for member in members if member is not self.master]
        # Mostly the master is gone for long.
        living = others if len(others) >= needed and self.rng.random() < 0.8 else members
        answering = self.rng.sample(living, needed)
        for member in self.members:
            member.restart(self.rng)
        self.check(members)
        self._lead(max(answering, key=lambda member: member.rank))
        self.elections += 1

    def check(self, members: Iterable[Member]) -> None:
        """Of every possible election, not only of the one that comes: each replica in the set, and its log."""
        everyone = list(members)
        k = self.told or len(everyone)
        answers = max(1, len(everyone) - k + 1)
        # The worst case: those with the worst logs answer.
        worst = sorted(everyone, key=lambda member: member.rank)[:answers]
        best = bytes(max(worst, key=lambda member: member.rank).log.content)
        assert best.startswith(self.acknowledged), "an election loses an acknowledged message"
        assert best.startswith(self.seen), "an election loses a message that a consumer saw"


def lived(seed: int) -> Group:
    group = Group(seed)
    for _ in range(STEPS):
        group.step()
    return group


@pytest.mark.parametrize("seed", seeds(250))
def test_no_life_of_a_group_loses_what_was_acknowledged(seed: int) -> None:
    for number in range(8):
        lived(seed * 1000 + number)


def test_lives_are_eventful() -> None:
    groups = [lived(seed) for seed in range(60)]
    assert sum(group.elections for group in groups) > 150
    assert sum(len(group.acknowledged) > 100 for group in groups) > 20
    assert sum(bool(member.log.cuts) for group in groups for member in group.members) > 5
