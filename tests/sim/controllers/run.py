"""One run: three controllers, three brokers, faults; then everything heals, and the history is checked."""

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final
from unittest.mock import patch

from controller.state.group import Group
from ha.raft import engine, journal_file
from tests.checkers.linearizability import Call, check
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.network import Network
from tests.sim.cluster.scheduler import Scheduler
from tests.sim.controllers.asker import Asker
from tests.sim.controllers.group_model import NEW, Own, Read, View, step
from tests.sim.controllers.sim_controller import SimController

_CALM_S: Final = 2.0
_STORM_S: Final = 6.5
_HEALING_S: Final = 4.5
# Without brokers: all controllers come to have the same state.
_REST_S: Final = 1.5
_FAULTS: Final = ("kill", "kill", "power", "power", "pause", "pause", "cut", "cut", "one_way", "slow", "disk", "broker")


@dataclass
class Outcome:
    """What a run showed."""

    seed: int
    problems: list[str]
    trace: str
    tail: list[str]
    calls: int
    answers: Counter[str]
    faults: Counter[str] = field(default_factory=Counter)

    def report(self) -> str:
        """Everything that is needed to see it again."""
        again = f"python -m tests.sim.controllers.soak --first {self.seed} --seeds 1"
        return "\n".join([f"seed {self.seed}", *self.tail, *self.problems, f"Again: {again}"])


class Run:
    """Everything of one run."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.scheduler = Scheduler(seed)
        self._seed = seed
        self._folder = folder
        self._network = Network(self.scheduler)
        self._places = [Machine(f"10.1.0.{at}", self.scheduler, self._network) for at in range(3)]
        self._homes = [Machine(f"10.2.0.{at}", self.scheduler, self._network) for at in range(3)]
        self._controllers: dict[str, SimController] = {}
        self._elections: dict[int, View] = {}
        self._askers: list[Asker] = []
        self._problems: list[str] = []
        self._faults: Counter[str] = Counter()

    def play(self) -> Outcome:
        """Run from the start to the verdict."""
        for machine in self._places:
            self._start(machine)
        ips = [machine.ip for machine in self._places]
        self._askers = [Asker(machine, at + 1, ips) for at, machine in enumerate(self._homes)]
        self.scheduler.run_until(_CALM_S)
        for _ in range(self.scheduler.rng.randint(3, 8)):
            self.scheduler.after(self.scheduler.rng.uniform(0, _STORM_S), self._strike)
        self.scheduler.run_until(_CALM_S + _STORM_S)
        self._heal()
        for machine in self._homes:
            machine.kill()
        self.scheduler.run_until(self.scheduler.now + _REST_S)
        self._judge()
        trace = self.scheduler.trace
        answers: Counter[str] = Counter()
        for asker in self._askers:
            answers.update(asker.answers)
        for machine in self._places:
            machine.kill()
        calls = sum(len(asker.history) for asker in self._askers)
        return Outcome(self._seed, self._problems, trace.digest, trace.tail(), calls, answers, self._faults)

    def _start(self, machine: Machine) -> None:
        if machine.process is None and machine.has_power:
            ips = [one.ip for one in self._places]
            folder = self._folder / machine.ip
            self._controllers[machine.ip] = SimController(machine, ips, folder, self._elected)

    def _elected(self, group: Group, is_own: bool) -> None:
        """Note an election that the controllers decided for themselves: no client knows of it."""
        if not is_own:
            return
        after = View(group.master_id, group.master_epoch, group.sync_state_set, group.sync_state_set_epoch)
        if self._elections.setdefault(group.master_epoch, after) != after:
            self._problems.append(f"two elections of epoch {group.master_epoch}: {after}")

    # Faults

    def _strike(self) -> None:
        rng, scheduler = self.scheduler.rng, self.scheduler
        kind = rng.choice(_FAULTS)
        machine = rng.choice(self._places)
        until_s = rng.uniform(0.2, 4.0)
        self._faults[kind] += 1
        scheduler.say(f"{kind} {machine.ip} for {until_s:.3f} s")
        if kind == "kill":
            machine.kill()
            scheduler.after(until_s, self._start, machine)
        elif kind == "power":
            victims = self._places if rng.random() < 0.3 else [machine]
            for one in victims:
                one.cut_power()
                scheduler.after(until_s, self._power_on, one)
        elif kind == "pause" and machine.process is not None and not machine.process.is_paused:
            machine.process.pause()
            scheduler.after(until_s, machine.process.go_on)
        elif kind in ("cut", "one_way"):
            self._cut(machine, both_ways=kind == "cut", until_s=until_s)
        elif kind == "slow":
            for other in (*self._places, *self._homes):
                self._network.link(machine.ip, other.ip).is_slow = True
                scheduler.after(until_s, self._network.heal, machine.ip, other.ip)
        elif kind == "disk":
            machine.is_slow = True
            scheduler.after(until_s, setattr, machine, "is_slow", False)
        elif kind == "broker":
            self._cut(rng.choice(self._homes), both_ways=True, until_s=until_s)

    def _cut(self, machine: Machine, *, both_ways: bool, until_s: float) -> None:
        """Cut a machine off from some of the others."""
        for other in (*self._places, *self._homes):
            if other is not machine and self.scheduler.rng.random() < 0.7:
                ways = [(machine.ip, other.ip), (other.ip, machine.ip)]
                for source, target in ways if both_ways else [self.scheduler.rng.choice(ways)]:
                    self._network.cut(source, target)
                    self.scheduler.after(until_s, self._network.heal, source, target)

    def _power_on(self, machine: Machine) -> None:
        machine.power_on()
        self._start(machine)

    # The end

    def _heal(self) -> None:
        self._network.heal_all()
        for machine in self._places:
            machine.is_slow = False
            if machine.process is not None and machine.process.is_paused:
                machine.process.go_on()
            self._power_on(machine)
        self.scheduler.say("healing")
        self.scheduler.run_until(self.scheduler.now + _HEALING_S)

    def _judge(self) -> None:
        self._problems += [f"error: {error}" for error in self.scheduler.errors]
        self._problems += [f"failed: {one.failure}" for one in self._controllers.values() if one.failure]
        history = [call for asker in self._askers for call in asker.history]
        healed_s = self.scheduler.now - _REST_S - _HEALING_S / 2
        if not any(isinstance(call.asked, Read) and call.made > healed_s for call in history):
            self._problems.append("nobody can read after everything has healed")
        history += [Call(0.0, inf, Own(after)) for after in self._elections.values()]
        verdict = check(history, NEW, step)
        if not verdict:
            self._problems.append("not linearizable; the longest order, and what is left:")
            self._problems += [f"  {call}" for call in verdict.order[-12:]]
            left = sorted(set(map(id, history)) - set(map(id, verdict.order)))
            self._problems += [f"  left: {call}" for call in history if id(call) in left][:12]
        states = {one.server.machine.snapshot() for one in self._controllers.values() if one.server is not None}
        if len(states) != 1:
            self._problems.append(f"{len(states)} states after healing")


def play(seed: int) -> Outcome:
    """The run of a seed."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(seed, Path(folder))
        with (
            patch("pysyncobj.syncobj.monotonicTime", lambda: 1000.0 + run.scheduler.now),
            patch.object(journal_file, "MIN_FILE_BYTES", 16 * 1024),
            patch.object(engine, "COMPACT_ENTRIES", 40),
        ):
            return run.play()
