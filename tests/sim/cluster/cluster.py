"""A run: a cluster, its clients, its faults; then everything heals, and the logs are compared."""

from dataclasses import dataclass, field
from typing import Final

from tests.sim.cluster.checks import check_group, is_copy
from tests.sim.cluster.clients import Consumer, Operator, Producer
from tests.sim.cluster.faults import Faults
from tests.sim.cluster.group import NO_BOUND, Group, Node
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.network import Network
from tests.sim.cluster.profile import Profile, profile_of
from tests.sim.cluster.scheduler import Scheduler

_WATCH_S: Final = 0.5
_NAME_SERVER_S: Final = 1.0
# Max virtual time that everything may take to catch up after the last fault.
_HEALING_S: Final = 60.0
# When an operator loses patience with a slave.
_OPERATOR_S: Final = 40.0


@dataclass
class Outcome:
    """What a run showed."""

    seed: int
    profile: Profile
    problems: list[str]
    trace: str
    tail: list[str]
    events: int
    acked: int
    excused: int
    rollbacks: int
    answers: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)

    def report(self) -> str:
        """Everything that is needed to see it again."""
        tail = "\n".join(self.tail)
        problems = "\n".join(self.problems)
        again = f"python -m tests.sim.cluster.soak --first {self.seed} --seeds 1 --tail"
        return f"seed {self.seed}: {self.profile.name}\n{tail}\n{problems}\nAgain: {again}"


class Cluster:
    """Everything of one run."""

    def __init__(self, seed: int, profile: Profile | None = None) -> None:
        self.seed = seed
        self.profile = profile_of(seed) if profile is None else profile
        self.scheduler = Scheduler(seed)
        self.network = Network(self.scheduler)
        self.problems: list[str] = []
        self.is_over = False
        self.send_interval_s = 0.35
        self.groups = [self._new_group(number) for number in range(self.profile.groups)]
        self.faults = Faults(self)
        self._producers: list[Producer] = []
        self._healing_since = 0.0

    def _new_group(self, number: int) -> Group:
        nodes = [
            Node(Machine(f"10.0.{number}.{index}", self.scheduler, self.network), index)
            for index in range(1 + self.profile.slaves)
        ]
        return Group(f"group {number}", number, self.profile, nodes, self.scheduler.say, self.problems)

    # The run

    def play(self) -> Outcome:
        scheduler, rng, profile = self.scheduler, self.scheduler.rng, self.profile
        for group in self.groups:
            for node in group.nodes:
                scheduler.after(rng.uniform(0, 0.5), group.start, node)
        self._add_clients()
        for _ in range(profile.faults):
            scheduler.after(rng.uniform(1.5, profile.seconds - 2), self.faults.strike_by_chance)
        self._every(_WATCH_S, self._watch)
        self._every(_NAME_SERVER_S, self._tell_masters)
        scheduler.run_until(profile.seconds)
        self._heal()
        for group in self.groups:
            for node in group.nodes:
                self.problems += check_group(group, node)
        outcome = self._outcome()
        for group in self.groups:
            for node in group.nodes:
                node.machine.kill()
        return outcome

    def _add_clients(self) -> None:
        for number in range(self.profile.producers * len(self.groups)):
            producer = Producer(self, self.groups[number % len(self.groups)], number)
            self._producers.append(producer)
            self.scheduler.after(1.0, producer.start)
        for number, group in enumerate(self.groups):
            Consumer(self, group, number).start()
            if self.profile.has_schedule:
                Operator(self, group).start()

    def _every(self, period_s: float, work: object) -> None:
        assert callable(work)

        def turn() -> None:
            work()
            self.scheduler.after(period_s, turn)

        self.scheduler.after(period_s, turn)

    def _watch(self) -> None:
        for group in self.groups:
            group.watch()
            for node in group.nodes:
                self._compare_woken(group, node)
                if group.supervise(node):
                    # What started it starts it again.
                    self.kill(group, node)
                    self.scheduler.after(1.0, group.start, node)

    def _compare_woken(self, group: Group, node: Node) -> None:
        """Whether a slave that was paused when the log of its master became shorter goes on with the true log."""
        if node.is_open and node.broker is not None and not node.stale_end and group.master.is_open:
            end = node.broker.end_offset
            if end > node.parts_at and is_copy(group, node):
                node.parts_at = NO_BOUND
            elif end > node.parts_at:
                node.stale_end = end

    def _tell_masters(self) -> None:
        """What a broker hears from its name server when it registers."""
        for group in self.groups:
            for node in group.slaves:
                if node.broker is not None:
                    node.broker.process.call_soon(node.broker.follow, group.master.machine.ip)

    def _outcome(self) -> Outcome:
        answers: dict[str, int] = {}
        for producer in self._producers:
            for outcome, count in producer.outcomes.items():
                answers[outcome] = answers.get(outcome, 0) + count
        self.problems += [f"error: {error}" for error in self.scheduler.errors]
        for group in self.groups:
            for node in group.nodes:
                self.scheduler.trace.mix(node.machine.disk.trace)
        trace = self.scheduler.trace
        return Outcome(
            self.seed, self.profile, self.problems, trace.digest, trace.tail(), self.scheduler.events,
            sum(len(group.acked) for group in self.groups), sum(group.excused for group in self.groups),
            sum(group.rollbacks for group in self.groups), answers, self.faults.counts,
        )  # fmt: skip

    # What faults and operators do

    def kill(self, group: Group, node: Node) -> None:
        group.ended(node, with_power=False)
        node.machine.kill()

    def cut_power(self, group: Group, node: Node) -> None:
        group.ended(node, with_power=True)
        survivors = node.machine.cut_power()
        self.scheduler.say(f"power cut {node.name} {survivors.value}")

    def power_on(self, group: Group, node: Node) -> None:
        node.machine.power_on()
        group.start(node)

    def lose(self, group: Group, node: Node) -> None:
        """The machine burns, and its disk with it."""
        if node.broker_id == 0 and not group.profile.is_sync_master and node.broker is not None:
            heir = max(group.slaves, key=Node.reached)
            group.bound = min(group.bound, node.broker.acked_by(heir.machine.ip))
        group.ended(node, with_power=False)
        node.machine.cut_power()
        group.wipe(node)
        node.is_lost = True

    def fail_over(self, group: Group, node: Node, *, needs_heir: bool) -> None:
        """An operator makes the furthest slave the master; the lost one comes back as a slave.

        Without a slave that is whole the master itself starts again, if it has a log.
        """
        if node.broker_id or node.broker is not None:
            return
        heir = group.heir()
        if heir is None and needs_heir:
            # Something has happened to a slave meanwhile: two faults, against which nothing is promised.
            group.bound, heir = 0, max(group.slaves, key=Node.reached)
        if heir is None:
            group.bound = min(group.bound, node.must_hold)
            self.power_on(group, node)
            return
        if not needs_heir:
            # The slave has what was acknowledged, whatever the master lost.
            group.bound = group.tail_bound = NO_BOUND
            group.is_tail_awaited = False
        self.scheduler.say(f"fail over from {node.name} to {heir.name}")
        if heir.broker is not None and heir.broker.schedules is not None:
            heir.broker.schedules.save()  # the operator stops it in order
        self.kill(group, heir)
        heir.machine.power_on()
        heir.broker_id, node.broker_id = 0, heir.broker_id
        group.is_failing_over = True
        group.start(heir)
        self.scheduler.after(1.0, self._come_back, group, node)

    def _come_back(self, group: Group, node: Node) -> None:
        if node.broker is None:
            if self.profile.is_plain:
                # Its log may hold what the new master does not have.
                group.wipe(node)
            self.replaced(group, node)

    def replaced(self, group: Group, node: Node) -> None:
        """A machine takes the place of one that was lost."""
        node.is_lost = False
        self.power_on(group, node)

    # Healing

    def _heal(self) -> None:
        """End all faults; wait until all that is sent is everywhere."""
        scheduler = self.scheduler
        self.network.heal_all()
        for group in self.groups:
            for node in group.nodes:
                node.machine.is_slow = False
                node.machine.set_full(False)
                node.machine.disk.used = 0.1
                if node.broker is not None and node.broker.process.is_paused:
                    node.broker.process.go_on()
        self._healing_since = scheduler.now
        scheduler.say("healing")
        # Longer than any answer takes, and longer than any restart that is under way.
        scheduler.run_until(scheduler.now + 6.0)
        self.is_over = True
        while not scheduler.errors and scheduler.now < self._healing_since + _HEALING_S:
            self._repair()
            scheduler.run_until(scheduler.now + 2.3)  # no multiple of the period of schedules
            if all(self._is_whole(group) for group in self.groups):
                return
        for group in self.groups:
            if not self._is_whole(group):
                ends = {
                    node.name: node.broker and (node.broker.end_offset, node.broker.refusal) for node in group.nodes
                }
                group.problem(f"does not catch up: {ends}")

    def _repair(self) -> None:
        """What an operator does to a slave that its master refuses, and to a broker that has ended itself."""
        for group in self.groups:
            master = group.master
            if master.broker is None or not master.is_open:
                continue
            log = master.broker.store.master_log()
            for node in group.slaves:
                if node.broker is not None and node.broker.is_serving:
                    end = node.broker.end_offset
                    is_refused = 0 < end < log.min_offset or (self.profile.is_plain and end > log.end_offset)
                    if node.stale_end and end > node.stale_end and is_copy(group, node):
                        # The blank after the last record is the same in every log.
                        node.stale_end = 0
                    if node.stale_end and end > node.stale_end:
                        group.problem(f"{node.name} has taken bytes behind a tail that its master does not have")
                    # In a session a slave finds out by itself what it has too much.
                    is_late = self.scheduler.now > self._healing_since + _OPERATOR_S
                    if is_refused or (node.stale_end and (self.profile.is_plain or is_late)):
                        self.scheduler.say(f"empty {node.name}, which ends at {end}")
                        self.kill(group, node)
                        group.wipe(node)
                        group.start(node)

    def _is_whole(self, group: Group) -> bool:
        """Whether all run, and all have what the master has, confirmed."""
        brokers = [node.broker for node in group.nodes if node.broker is not None and node.is_open]
        if len(brokers) < len(group.nodes) or any(node.stale_end for node in group.nodes):
            return False
        end = group.master.broker.end_offset if group.master.broker is not None else -1
        return all(broker.end_offset == end == broker.store.confirm_offset for broker in brokers)


def play(seed: int) -> Outcome:
    """The run of a seed."""
    return Cluster(seed).play()
