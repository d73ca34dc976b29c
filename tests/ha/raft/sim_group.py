"""A whole group in virtual time: members on disks that lose power, over a network that splits and delays.

One seed is one run: pysyncobj's clock is replaced by the virtual one.  `Checker` looks at each step.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ha.raft import journal_file
from ha.raft.consensus import Member
from ha.raft.core import Core, Group
from ha.raft.elections import Timing
from ha.raft.messages import Message, RequestVote, Vote, decode, encode
from ha.raft.replicated import Replicated
from ha.raft.storage import Storage
from tests.ha.raft.groups import Register
from tests.sim.sim_disk import ROOT, Operation, SimDisk
from tests.sim.sim_image import Subset, Survivors

_TICK_S = 0.025


class PowerCut(Exception):
    """Raised by the disk in the middle of a write."""


class Checker:
    """What must hold in every run."""

    def __init__(self) -> None:
        # Index of a command in the state machine -> the command that the first member applied there.
        self.applied: dict[int, bytes] = {}
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.acknowledged: list[tuple[int, bytes]] = []

    def leads(self, term: int, member_id: str) -> None:
        """At most one member leads in a term."""
        assert self.leaders.setdefault(term, member_id) == member_id, f"two leaders in term {term}"

    def sent(self, member_id: str, disk_id: str, to: str, message: Message) -> None:
        """A member votes for one member in a term, be it itself, as long as it has its disk."""
        if isinstance(message, Vote | RequestVote):
            voted_for = to if isinstance(message, Vote) else member_id
            key = (disk_id, message.term)
            assert self.votes.setdefault(key, voted_for) == voted_for, f"{key} voted twice"

    def check(self, machine: Register) -> None:
        """All members apply the same commands in the same order."""
        for at in range(machine.checked, len(machine.commands)):
            command = machine.commands[at]
            assert self.applied.setdefault(at, command) == command, f"command {at} differs"
        machine.checked = len(machine.commands)

    def acknowledge(self, answer: bytes, command: bytes) -> None:
        """The answer of a command names its place."""
        number, _, echoed = answer.partition(b" ")
        assert echoed == command
        self.acknowledged.append((int(number) - 1, command))

    def check_all(self, machine: Register) -> None:
        """Everything acknowledged is where it was, and nothing twice."""
        for at, command in self.acknowledged:
            assert machine.commands[at] == command, f"acknowledged {command!r} is lost"
        assert len(set(machine.commands)) == len(machine.commands)


class CheckedRegister(Register):
    """A register that knows how far it was checked."""

    def restore(self, snapshot: bytes) -> None:
        super().restore(snapshot)
        self.checked = 0


@dataclass
class SimMember:
    """One member: its disk, and while it runs its core."""

    id: str
    disk: SimDisk
    core: Core | None = None
    storage: Storage | None = None
    machine: CheckedRegister = field(default_factory=CheckedRegister)
    paused_until: float = 0.0
    inbox: list[tuple[str, bytes]] = field(default_factory=list)


class SimGroup:
    """The group, its network and its time."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, count: int = 3) -> None:
        self.rng = random.Random(seed)
        self.now = 1000.0
        monkeypatch.setattr("pysyncobj.syncobj.monotonicTime", lambda: self.now)
        monkeypatch.setattr(journal_file, "MIN_FILE_BYTES", 16 * 1024)
        self.places = [Member(f"n{at}", "h", 1 + at) for at in range(count)]
        self.members = {one.id: SimMember(one.id, SimDisk(seed)) for one in self.places}
        self.checker = Checker()
        # Links that are open: both ends' ids, sorted.  A message in flight has the epoch of its link.
        self._epochs: dict[tuple[str, str], int] = {}
        self._open: dict[tuple[str, str], None] = {}
        self._flight: list[tuple[float, int, str, str, int, bytes]] = []
        self._sent = 0
        self._last_arrival: dict[tuple[str, str], float] = {}
        self.is_cut: Callable[[str, str], bool] = lambda one, other: False
        self.max_delay_s = 0.005
        self.refused: list[str] = []
        self._number = 0
        self._waiting: list[tuple[asyncio.Future[bytes], bytes]] = []
        # Reads that wait for a leader to be confirmed: its id, and how many commands were acknowledged before.
        self._reads: list[tuple[asyncio.Future[None], str, int]] = []
        self.reads = 0

    # Life

    def start(self, member_id: str) -> None:
        """Start a member on its disk."""
        member = self.members[member_id]
        member.storage = Storage(member.disk, ROOT / "raft", lambda n: self.rng.randbytes(n))
        member.storage.open("g", member_id)
        member.machine = CheckedRegister()
        group = Group("g", self.places, member_id)
        member.core = Core(
            group, member.storage.stored, Replicated(member.machine), Timing(), self.now, self.rng.random
        )
        member.inbox = []
        self.checker.check(member.machine)

    def crash(self, member_id: str, survivors: Survivors = Survivors.NONE) -> None:
        """Cut a member's power.  What was not synced survives as `survivors` says."""
        member = self.members[member_id]
        member.disk = member.disk.crash(Subset(survivors, self.rng.randrange(1 << 30)))
        member.core = member.storage = None
        self._close_links(member_id)

    def wipe(self, member_id: str) -> None:
        """Give a member that does not run an empty disk."""
        self.members[member_id].disk = SimDisk(self.rng.randrange(1 << 30))

    def pause(self, member_id: str, seconds: float) -> None:
        """Stop a member's process for a while; its connections stay open."""
        self.members[member_id].paused_until = self.now + seconds

    @property
    def running(self) -> list[SimMember]:
        """Members that run."""
        return [one for one in self.members.values() if one.core is not None]

    def leader(self) -> SimMember | None:
        """The member of the highest term that leads, if any."""
        leading = [one for one in self.running if one.core is not None and one.core.is_leader]
        return max(leading, key=lambda one: one.core.term if one.core is not None else 0, default=None)

    # Commands

    def propose(self, member: SimMember) -> None:
        """Propose the next command at a member."""
        if member.core is None or not member.core.engine.is_raft_leader:
            return
        self._number += 1
        command = b"c%d" % self._number
        self._waiting.append((member.core.proposals.add(command), command))

    def read(self, member: SimMember) -> None:
        """Read at a member that takes itself for the leader."""
        if member.core is not None and member.core.is_leader:
            self._reads.append((member.core.confirmations.add(), member.id, len(self.checker.acknowledged)))

    def _check_reads(self, member: SimMember) -> None:
        """A confirmed read sees everything that was acknowledged before it was asked for."""
        for waiter, member_id, count in [one for one in self._reads if one[1] == member.id and one[0].done()]:
            self._reads.remove((waiter, member_id, count))
            if waiter.exception() is None:
                self.reads += 1
                for at, command in self.checker.acknowledged[:count]:
                    assert member.machine.commands[at : at + 1] == [command], "a confirmed read is stale"

    def _collect(self) -> None:
        still = []
        for answer, command in self._waiting:
            if not answer.done():
                still.append((answer, command))
            elif not answer.cancelled() and answer.exception() is None:
                self.checker.acknowledge(answer.result(), command)
        self._waiting = still

    # Time

    def run(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """Let time pass; `each` is called at each tick."""
        until = self.now + seconds
        while self.now < until:
            self.now += _TICK_S * self.rng.uniform(0.2, 1.0)
            self._connect()
            self._arrive()
            for member in self.members.values():
                if member.core is not None and self.now >= member.paused_until:
                    self._turn(member)
            self._collect()
            each()

    def run_until(self, holds: Callable[[], bool], limit_s: float = 30.0) -> None:
        """Let time pass until `holds`."""
        until = self.now + limit_s
        while not holds():
            assert self.now < until, "it does not come to that"
            self.run(0.05)

    def _turn(self, member: SimMember) -> None:
        core, storage = member.core, member.storage
        assert core is not None and storage is not None
        inbox, member.inbox = member.inbox, []
        for sender, content in inbox:
            if sender in core.connected:
                core.received(sender, decode(content), self.now)
                self._check_reads(member)
        core.tick(self.now)
        self._check_reads(member)
        if core.engine.is_raft_leader:
            self.checker.leads(core.term, member.id)
        self.checker.check(member.machine)
        unsynced, snapshot = core.journal.take(), core.snapshots.take_unwritten()
        if unsynced is not None or snapshot is not None:
            try:
                storage.write(unsynced, snapshot)
            except PowerCut:
                self.crash(member.id, self.rng.choice(list(Survivors)))
                return
            core.journal.synced()
            if snapshot is not None:
                core.snapshots.written()
        for to, message in core.outbox:
            self._send(member.id, to, message)
        core.outbox.clear()

    def cut_power_in(self, member_id: str, operations: int) -> None:
        """Cut a member's power after that many more operations of its disk."""
        disk = self.members[member_id].disk
        last = disk.operations + operations

        def after(operation: Operation) -> None:
            if operation.number >= last:
                raise PowerCut

        disk.after = after

    # Network

    def _send(self, sender: str, to: str, message: Message) -> None:
        core = self.members[sender].core
        assert core is not None
        self.checker.sent(sender, core.claims.disk_id, to, message)
        link = _link(sender, to)
        if link not in self._open:
            return
        self._sent += 1
        # In order, as TCP has it.
        arrival = max(self._last_arrival.get((sender, to), 0.0), self.now + self.rng.uniform(0, self.max_delay_s))
        self._last_arrival[sender, to] = arrival
        self._flight.append((arrival, self._sent, sender, to, self._epochs[link], encode(message)))

    def _arrive(self) -> None:
        due = sorted(one for one in self._flight if one[0] <= self.now)
        self._flight = [one for one in self._flight if one[0] > self.now]
        for _, _, sender, to, epoch, content in due:
            member = self.members[to]
            if member.core is not None and self._epochs.get(_link(sender, to)) == epoch:
                member.inbox.append((sender, content))

    def _connect(self) -> None:
        for one in self.places:
            for other in self.places:
                link = (one.id, other.id)
                if one.id >= other.id:
                    continue
                ends = self.members[one.id], self.members[other.id]
                is_up = all(end.core is not None and self.now >= end.paused_until for end in ends)
                is_cut = self.is_cut(*link) or self.is_cut(*link[::-1])
                if link in self._open and is_cut:
                    self._close(link)
                elif link not in self._open and is_up and not is_cut and self.rng.random() < 0.3:
                    self._greet(link)

    def _greet(self, link: tuple[str, str]) -> None:
        cores = [self.members[end].core for end in link]
        assert cores[0] is not None and cores[1] is not None
        claims = [one.claims for one in cores if one is not None]
        reason = cores[0].reason_against(claims[1]) or cores[1].reason_against(claims[0])
        if reason:
            self.refused.append(reason)
            return
        self._open[link] = None
        self._epochs[link] = self._epochs.get(link, 0) + 1
        cores[0].joined(claims[1])
        cores[1].joined(claims[0])

    def _close(self, link: tuple[str, str]) -> None:
        self._open.pop(link, None)
        self._epochs[link] += 1
        for end, other in (link, link[::-1]):
            core = self.members[end].core
            if core is not None and other in core.connected:
                core.left(other, self.now)

    def _close_links(self, member_id: str) -> None:
        for link in [one for one in self._open if member_id in one]:
            self._close(link)


def _link(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
