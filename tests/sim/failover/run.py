"""One run: three controllers, three brokers of one group, senders, faults; then all heals, and the logs are read.

What must hold:

- a broker acknowledges a request only if it led when the request left, or was elected later: no master acknowledges
  after the election of another one, and there is one master in each epoch;
- what was acknowledged is in the log of the last master, at the place that the broker named, and nowhere else; the
  offsets of a queue have no gap (not in modes in which an election may lose messages);
- everything heals: one master, and the same log and epochs on all brokers.
"""

import hashlib
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest.mock import patch

from broker.server import Broker
from controller.state.group import Group
from ha.raft import engine, journal_file
from sprocket.common.figures import values
from store.record.record import decode
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.network import Network
from tests.sim.cluster.scheduler import Scheduler
from tests.sim.controllers.sim_controller import SimController
from tests.sim.failover.senders import QUEUES, TOPIC, Acked, Senders
from tests.sim.failover.sim_replica import Mode, SimReplica, simulated
from tests.sim.script import read_log

MODES: Final = (
    Mode("two", keeps_all=True, in_sync_replicas=2),
    Mode("all", keeps_all=True, all_ack=True),
    Mode("sync_flush", keeps_all=True, in_sync_replicas=2, is_sync_flush=True),
    Mode("one", keeps_all=False),
)
_CALM_S: Final = 2.0
_STORM_S: Final = 6.0
# A silent master is replaced after two leases of 1.2 s, and another lease may have to end.
_FAULT_S: Final = (0.5, 6.0)
_HEALING_S: Final = 30.0
_LOOK_S: Final = 0.5
# Without senders: slaves come to have the end of the log.
_REST_S: Final = 1.5
# The master is the victim of this share of all faults of brokers.
_MASTER_SHARE: Final = 0.8
_FAULTS: Final = (
    "kill", "kill", "pause", "pause", "cut", "cut", "cut_controllers", "cut_brokers", "one_way", "halves", "halves",
    "halves", "reset", "reset", "slow", "disk", "controller_kill", "controller_pause", "controller_cut",
)  # fmt: skip


@dataclass
class Outcome:
    """What a run showed."""

    seed: int
    mode: str
    problems: list[str]
    trace: str
    tail: list[str]
    acked: int
    epochs: int
    answers: Counter[str]
    module: str = "failover"
    faults: Counter[str] = field(default_factory=Counter)

    def report(self) -> str:
        """Everything that is needed to see it again."""
        again = f"python -m tests.sim.{self.module}.soak --first {self.seed} --seeds 1 --mode {self.mode}"
        return "\n".join([f"seed {self.seed} mode {self.mode}", *self.tail, *self.problems, f"Again: {again}"])


@dataclass(frozen=True)
class Elected:
    """When controllers first carried out an election, and whose."""

    at_s: float
    ip: str


class Run:
    """Everything of one run."""

    module = "failover"

    def __init__(self, seed: int, mode: Mode, folder: Path) -> None:
        self.scheduler = Scheduler(seed)
        self._seed = seed
        self._mode = mode
        self._folder = folder
        self._network = Network(self.scheduler)
        self._places = [Machine(f"10.1.0.{at}", self.scheduler, self._network) for at in range(3)]
        self._homes = [Machine(f"10.2.0.{at}", self.scheduler, self._network) for at in range(3)]
        self._controllers: dict[str, SimController] = {}
        self._replicas: dict[str, SimReplica] = {}
        self._elected: dict[int, Elected] = {}
        self._faults: Counter[str] = Counter()
        self._problems: list[str] = []

    def play(self) -> Outcome:
        """Run from the start to the verdict."""
        for machine in (*self._places, *self._homes):
            self._start(machine)
        home = Machine("10.3.0.1", self.scheduler, self._network)
        senders = Senders(home, [machine.ip for machine in self._homes])
        self.scheduler.run_until(_CALM_S)
        for _ in range(self.scheduler.rng.randint(2, 6)):
            self.scheduler.after(self.scheduler.rng.uniform(0, _STORM_S), self._strike)
        self.scheduler.run_until(_CALM_S + _STORM_S)
        self._heal(senders)
        home.kill()
        self._rest()
        self._judge(senders)
        for machine in (*self._places, *self._homes):
            machine.kill()
        # The trace of the scheduler has the paths of disks, and here these differ from run to run.
        happened = self.scheduler.trace.tail(), self.scheduler.events, senders.acked, self._elected
        trace = hashlib.blake2b(repr(happened).encode(), digest_size=16).hexdigest()
        return Outcome(
            self._seed, self._mode.name, self._problems, trace, self.scheduler.trace.tail(), len(senders.acked),
            len(self._elected), Counter(senders.answers), self.module, self._faults,
        )  # fmt: skip

    def _rest(self) -> None:
        """Let the group come to rest, without senders."""
        self.scheduler.run_until(self.scheduler.now + _REST_S)

    def _start(self, machine: Machine) -> None:
        if machine.process is not None or not machine.has_power:
            return
        ips, folder = [one.ip for one in self._places], self._folder / machine.ip
        if machine in self._places:
            self._controllers[machine.ip] = SimController(machine, ips, folder, self._note_election)
        else:
            self._replicas[machine.ip] = SimReplica(machine, self._mode, ips, folder)

    def _note_election(self, group: Group, _: bool) -> None:
        if group.master_id is None:
            return
        ip = (group.address_of(group.master_id) or "").partition(":")[0]
        known = self._elected.setdefault(group.master_epoch, Elected(self.scheduler.now, ip))
        if known.ip != ip:
            self._problems.append(f"two masters in epoch {group.master_epoch}: {known.ip} and {ip}")
        elif known.at_s == self.scheduler.now:
            self.scheduler.say(f"elected {ip} epoch {group.master_epoch} set {group.sync_state_set}")

    # Faults

    def _strike(self) -> None:
        rng, scheduler = self.scheduler.rng, self.scheduler
        kind = rng.choice(_FAULTS)
        machine = self._victim()
        until_s = rng.uniform(*_FAULT_S)
        self._faults[kind] += 1
        if kind.startswith("controller_"):
            machine, kind = rng.choice(self._places), kind.removeprefix("controller_")
        scheduler.say(f"{kind} {machine.ip} for {until_s:.3f} s")
        if kind == "kill":
            self._kill(machine)
            scheduler.after(until_s, self._start, machine)
        elif kind == "pause" and machine.process is not None and not machine.process.is_paused:
            machine.process.pause()
            scheduler.after(until_s, machine.process.go_on)
        elif kind == "slow":
            for other in (*self._places, *self._homes):
                self._network.link(machine.ip, other.ip).is_slow = True
                scheduler.after(until_s, self._network.heal, machine.ip, other.ip)
        elif kind == "disk":
            machine.is_slow = True
            scheduler.after(until_s, setattr, machine, "is_slow", False)
        elif kind == "reset":
            for place in self._places:
                for connection in self._network.between(machine.ip, place.ip):
                    connection.reset()
        elif kind == "halves":
            friend = rng.choice([one for one in self._homes if one is not machine])
            others = [one for one in (*self._places, *self._homes) if one not in (machine, friend)]
            self._part([machine, friend], others, until_s)
        else:
            self._cut(kind, machine, until_s)

    def _victim(self) -> Machine:
        rng = self.scheduler.rng
        leading = [machine for machine in self._homes if machine.process and self._replicas[machine.ip].is_leading]
        return rng.choice(leading if leading and rng.random() < _MASTER_SHARE else self._homes)

    def _kill(self, machine: Machine) -> None:
        if self._mode.is_sync_flush and self.scheduler.rng.random() < 0.5:
            machine.cut_power()
            machine.power_on()
        else:
            machine.kill()

    def _part(self, some: list[Machine], others: list[Machine], until_s: float) -> None:
        for here in some:
            for there in others:
                for way in ((here.ip, there.ip), (there.ip, here.ip)):
                    self._network.cut(*way)
                    self.scheduler.after(until_s, self._network.heal, *way)

    def _cut(self, kind: str, machine: Machine, until_s: float) -> None:
        """Cut a machine off from others; clients reach it."""
        is_out = self.scheduler.rng.random() < 0.5
        others = {"cut_controllers": self._places, "cut_brokers": self._homes}.get(kind, [*self._places, *self._homes])
        for other in others:
            if other is not machine:
                ways = [(machine.ip, other.ip), (other.ip, machine.ip)]
                for source, target in [ways[is_out]] if kind == "one_way" else ways:
                    self._network.cut(source, target)
                    self.scheduler.after(until_s, self._network.heal, source, target)

    # The end

    def _heal(self, senders: Senders) -> None:
        """End all faults, and wait until the group is whole and acknowledges."""
        self._network.heal_all()
        for machine in (*self._places, *self._homes):
            machine.is_slow = False
            if machine.process is not None and machine.process.is_paused:
                machine.process.go_on()
            machine.power_on()
            self._start(machine)
        self.scheduler.say("healing")
        began = self.scheduler.now
        while self.scheduler.now < began + _HEALING_S and not self.scheduler.errors:
            self.scheduler.run_until(self.scheduler.now + _LOOK_S)
            if self._is_whole() and senders.acked and senders.acked[-1].sent_s > began + _LOOK_S:
                return
        self._problems.append(f"the group is not whole {_HEALING_S:.0f} s after all faults")

    def _is_whole(self) -> bool:
        brokers = [replica.broker for replica in self._replicas.values() if replica.is_serving]
        leading = [one for one in self._replicas.values() if one.is_leading]
        if len(brokers) != len(self._homes) or len(leading) != 1 or leading[0].membership is None:
            return False
        return values(leading[0].membership.figures())["controllerSyncStateSet"] == str(len(self._homes))

    def _judge(self, senders: Senders) -> None:
        self._problems += [f"error: {error}" for error in self.scheduler.errors]
        failures = {ip: one.failure for ip, one in self._controllers.items()}
        failures |= {ip: one.failure for ip, one in self._replicas.items()}
        self._problems += [f"{ip} failed: {failure}" for ip, failure in failures.items() if failure]
        self._problems += [problem for one in senders.acked if (problem := self._led_by_another(one))]
        if self._problems:
            return
        master = next(one.broker for one in self._replicas.values() if one.is_leading)
        assert master is not None
        contents = {ip: self._content(replica) for ip, replica in self._replicas.items()}
        if len(set(contents.values())) != 1:
            sizes = {ip: len(content[0]) for ip, content in contents.items()}
            self._problems.append(f"logs or epochs differ after healing; bytes: {sizes}")
        if self._mode.keeps_all:
            queues = {queue: self._queue(master, queue) for queue in range(QUEUES)}
            self._problems += senders.checker.check(queues)

    def _led_by_another(self, acked: Acked) -> str:
        """Return what is wrong if an acknowledgement came from a broker that had been replaced; else empty."""
        before = [epoch for epoch, one in self._elected.items() if one.at_s <= acked.sent_s]
        since = max(before, default=0)
        masters = {one.ip for epoch, one in self._elected.items() if epoch >= since and one.at_s <= acked.heard_s}
        if acked.ip in masters:
            return ""
        return f"{acked.key}, sent at {acked.sent_s:.3f}, was acknowledged by {acked.ip}; masters then: {masters}"

    def _content(self, replica: SimReplica) -> tuple[bytes, str]:
        broker = replica.broker
        assert broker is not None
        epochs = broker.process.epochs
        assert epochs is not None
        store = broker.store
        segment = store.config.mapped_file_size_commit_log
        read = read_log(replica.machine.disk, segment, store.config.commit_log_path)
        at, end, parts = store.master_log().min_offset, store.wrote_offset, []
        while at < end:
            size = min(segment - at % segment, end - at)
            parts.append(read(at, size))
            at += size
        return b"".join(parts), repr(epochs.history.epochs)

    def _queue(self, master: Broker, queue: int) -> list[tuple[int, str]]:
        """Return (queue offset, key) of every message of a queue."""
        found: list[tuple[int, str]] = []
        end = master.store.max_offset(TOPIC, queue)
        while len(found) < end:
            result = master.store.get(TOPIC, queue, len(found), 64, 1 << 20)
            records = _records(b"".join(result.slices))
            if not records:
                self._problems.append(f"queue {queue} cannot be read at {len(found)}: {result.status}")
                break
            found += records
        return found


def _records(content: bytes) -> list[tuple[int, str]]:
    found, view = [], memoryview(content)
    while view:
        size = int.from_bytes(view[:4], "big")
        record = decode(view[:size])
        assert not isinstance(record, str), record
        found.append((record.queue_offset, bytes(record.body).decode().partition(".")[0]))
        view = view[size:]
    return found


def play(seed: int, mode: Mode | None = None, kind: type[Run] = Run) -> Outcome:
    """The run of a seed."""
    with tempfile.TemporaryDirectory() as folder:
        run = kind(seed, mode or MODES[seed % len(MODES)], Path(folder))
        with (
            simulated(),
            patch("pysyncobj.syncobj.monotonicTime", lambda: 1000.0 + run.scheduler.now),
            patch.object(journal_file, "MIN_FILE_BYTES", 16 * 1024),
            patch.object(engine, "COMPACT_ENTRIES", 40),
        ):
            return run.play()
