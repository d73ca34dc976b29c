"""A master and its slaves: which log is the true one, what was promised of it, and what a fault may take.

The true log is the master's.  It goes back when the master returns from a loss of power, or when a slave takes its
place; then the profile's contract says how much may be missing, and everything else that is missing is a problem.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sprocket.common.errors import DiskFull, RestartNeeded
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.profile import TAIL_WAIT_S, Profile
from tests.sim.cluster.sim_broker import SimBroker

NO_BOUND: Final = 1 << 62


@dataclass(frozen=True)
class Acked:
    """One message that was answered SEND_OK."""

    body: bytes
    queue_id: int
    queue_offset: int
    physical_offset: int
    end_offset: int


@dataclass(frozen=True)
class Change:
    """A change of the schedule that was answered; the log had to be safe up to `end_offset`, 0: nowhere."""

    number: int
    end_offset: int


@dataclass(frozen=True)
class Seen:
    """One message that a consumer was given."""

    body: bytes
    end_offset: int
    from_slave: bool
    # A slave had it, then.
    has_copy: bool


@dataclass
class Node:
    """A broker of a group, whether it runs or not."""

    machine: Machine
    broker_id: int
    broker: SimBroker | None = None
    # What the next start must find at least: what was written, or after a loss of power what was flushed.
    must_hold: int = 0
    durable: int = 0
    # The furthest that its log ever reached in the present history.
    high: int = 0
    # Its disk is new, and its role is not decided yet.
    is_lost: bool = False
    # It lost something, or started empty, and has not been seen whole since.
    is_behind: bool = False
    # Its log ends here with what the true log does not have; 0 if it does not.
    stale_end: int = 0
    # It may have bytes that are not in the true log only after this.
    parts_at: int = NO_BOUND
    # The last change of the schedule that its table ever had in the present history.
    table_high: int = 0
    # It started without a change that was answered, and has not been seen with all of them since.
    lacks_changes: bool = False

    @property
    def name(self) -> str:
        return self.machine.ip

    @property
    def is_open(self) -> bool:
        return self.broker is not None and self.broker.is_serving and not self.broker.process.is_paused

    @property
    def is_whole(self) -> bool:
        """Whether it runs, and has all that was promised, and nothing that the true log does not have."""
        is_true = not self.stale_end and self.parts_at == NO_BOUND
        return self.is_open and not self.is_behind and is_true and not self.lacks_changes

    @property
    def changes(self) -> int:
        """The number of the last change of the schedule in its table."""
        broker = self.broker
        number = 0 if broker is None or broker.schedules is None else broker.schedules.number
        self.table_high = max(self.table_high, number)
        return number

    def reached(self) -> int:
        """The furthest end so far."""
        if self.broker is not None and self.broker.is_serving:
            self.high = max(self.high, self.broker.end_offset)
        return self.high


@dataclass
class Group:
    """Nodes, promises and problems.  `nodes[0]` is the machine that began as the master."""

    name: str
    number: int
    profile: Profile
    nodes: list[Node]
    say: Callable[[str], None]
    problems: list[str]
    acked: list[Acked] = field(default_factory=list)
    seen: dict[tuple[int, int], Seen] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    # What may be missing when the master's log is next opened: only what lies after this.
    bound: int = NO_BOUND
    # A slave takes the place of the master, whose disk may be lost.
    is_failing_over: bool = False
    # The master has lost what slaves have: it is to take that back, and only if it cannot, this is the bound.
    is_tail_awaited: bool = False
    tail_bound: int = NO_BOUND
    # What the master found in its log is shown up to here, even if no slave has it: none connected in time to take it.
    shown_end: int = 0
    rollbacks: int = 0
    excused: int = 0
    lost_by_slave_readers: int = 0

    @property
    def master(self) -> Node:
        return next(node for node in self.nodes if node.broker_id == 0)

    @property
    def slaves(self) -> list[Node]:
        return [node for node in self.nodes if node.broker_id]

    @property
    def promised_end(self) -> int:
        """End of the furthest message that was answered SEND_OK."""
        return max((acked.end_offset for acked in self.acked), default=0)

    @property
    def promised_change(self) -> int:
        """The furthest change of the schedule that was answered."""
        return max((change.number for change in self.changes), default=0)

    def problem(self, words: str) -> None:
        self.say(f"PROBLEM {self.name}: {words}")
        self.problems.append(f"{self.name}: {words}")

    # Processes

    def start(self, node: Node) -> None:
        """Start its broker, if there is power and none runs."""
        if node.broker is None and node.machine.has_power and not node.is_lost:
            self.say(f"start {node.name} id={node.broker_id}")
            node.broker = SimBroker(node.machine, self.profile, self.number, node.broker_id)
            node.broker.on_open = lambda broker: self._opened(node, broker)
            node.broker.on_tables = lambda broker: self._loaded(node)
            node.broker.on_lead = lambda broker: self._leads(broker)

    def _loaded(self, node: Node) -> None:
        node.lacks_changes = bool(node.broker_id) and node.changes < self.promised_change

    def _opened(self, node: Node, broker: SimBroker) -> None:
        end = broker.end_offset
        self.say(f"open {node.name} end={end} must={node.must_hold}")
        if end < node.must_hold:
            self.problem(f"{node.name} holds {end} after its start, must hold {node.must_hold}")
        if node.broker_id:
            node.is_behind |= end < self.promised_end
            # Of what the true log does not have, more may have survived than was sure to, or nothing.
            node.stale_end = end if end > node.parts_at else 0
            node.parts_at = node.parts_at if node.stale_end else NO_BOUND
        node.must_hold = node.durable = end

    def _leads(self, broker: SimBroker) -> None:
        """The master takes messages from now on, after it has waited for what slaves have of its log."""
        self.say(f"lead {broker.machine.ip} end={broker.end_offset}")
        is_heard = broker.machine.scheduler.now < broker.began_at + TAIL_WAIT_S
        if self.is_tail_awaited and not (is_heard and all(self._is_reachable(slave) for slave in self.slaves)):
            self.bound = min(self.bound, self.tail_bound)
        self._check_changes()
        self._master_opened(broker.end_offset)
        self.is_tail_awaited, self.tail_bound = False, NO_BOUND
        if is_heard and not self.profile.is_plain:
            self.shown_end = 0

    def _is_reachable(self, slave: Node) -> bool:
        """Whether nothing is wrong with a slave or its links to the master."""
        network, here, there = slave.machine.network, self.master.machine.ip, slave.machine.ip
        links = network.link(here, there), network.link(there, here)
        return slave.is_open and not any(link.is_cut or link.is_slow for link in links)

    def ended(self, node: Node, *, with_power: bool) -> None:
        """Its process is about to end; with it goes what is not on the disk if the power goes."""
        broker, node.broker = node.broker, None
        if broker is not None and broker.refusal is None:
            begin = broker.store.master_log().min_offset
            # A log that begins at an offset and holds nothing yet is an empty one.
            node.must_hold = broker.end_offset if broker.end_offset > begin else 0
            node.durable = broker.store.flushed_offset if broker.store.flushed_offset > begin else 0
            node.high = max(node.high, node.must_hold)
            if isinstance(broker.failure, RestartNeeded):
                self._will_cut(node)
        if self.is_tail_awaited and node.broker_id:
            self.bound = min(self.bound, self.tail_bound)
        if with_power:
            node.must_hold = node.durable
            if node.broker_id == 0 and not self.profile.is_sync_flush:
                self._master_lost_power(node)

    def _will_cut(self, node: Node) -> None:
        """A slave has found out that its log goes on differently, and cuts it with its next start."""
        if node.stale_end or node.must_hold > node.parts_at:
            node.must_hold = node.durable = min(node.must_hold, node.durable, node.parts_at)
        else:
            self.problem(f"{node.name} cuts what its master has: {node.must_hold}")

    def _master_lost_power(self, node: Node) -> None:
        """What it had not flushed is on slaves at best: it asks them for it, where both speak sessions."""
        asks = self.profile.is_sync_master and not self.profile.is_plain
        if asks and all(slave.is_whole for slave in self.slaves):
            self.is_tail_awaited = True
            self.tail_bound = min(self.tail_bound, node.durable)
        else:
            self.bound = min(self.bound, node.durable, self.tail_bound)

    def wipe(self, node: Node) -> None:
        """Its disk is replaced by an empty one, and it has no process."""
        node.machine.replace_disk()
        node.must_hold = node.durable = node.stale_end = 0
        node.parts_at = NO_BOUND
        node.is_behind = True

    # The true log

    def _master_opened(self, end: int) -> None:
        """The log that is the true one from now on ends at `end`."""
        self.shown_end = end
        tail = self._tail_behind_bound(end)
        lost = [acked for acked in self.acked if self._is_lost(acked, end, tail)]
        for acked in lost:
            if acked.end_offset <= self.bound:
                self.problem(f"SEND_OK was said for {acked.body[:20]!r}, the log ends at {end}, bound {self.bound}")
        self.excused += len(lost)
        self.acked = [acked for acked in self.acked if not self._is_lost(acked, end, tail)]
        # While no slave is in sync, what has no copy is shown, and not SEND_OK.
        comes_from_slave = self.is_failing_over or self.is_tail_awaited
        for key, seen in list(self.seen.items()):
            if self._is_lost(seen, end, tail):
                del self.seen[key]
                if seen.from_slave:
                    self.lost_by_slave_readers += 1
                elif seen.end_offset <= self.bound and (seen.has_copy or not comes_from_slave):
                    self.problem(f"a consumer has seen {seen.body[:20]!r}, the log ends at {end}, bound {self.bound}")
        furthest = max(node.reached() for node in self.nodes)
        if furthest > end:
            self.rollbacks += 1
        for node in self.nodes:
            node_end = node.broker.end_offset if node.broker is not None else node.must_hold
            if node.broker_id:
                node.stale_end = max(node.stale_end, node_end if node_end > end else 0)
                # One that is paused may wake and read what its last master sent, and lost with its power.
                if node.stale_end or node.broker is None or node.broker.process.is_paused:
                    node.parts_at = min(end, node.parts_at)
            node.high = min(node.high, end)
        self.bound, self.is_failing_over = NO_BOUND, False

    def _check_changes(self) -> None:
        """Changes survive at the master in its file, and at a slave that takes its place as far as the log does."""
        if self.is_failing_over:
            is_sync = self.profile.is_sync_master
            self.changes = [one for one in self.changes if is_sync and one.end_offset <= self.bound]
        if self.master.changes < self.promised_change:
            self.problem(f"change {self.promised_change} of the schedule was answered, there is {self.master.changes}")
        for node in self.nodes:
            node.table_high = min(node.table_high, self.master.changes)

    def changed(self, change: Change) -> None:
        """The master answers a change of the schedule, now."""
        self.changes.append(change)
        copies = sum(max(slave.changes, slave.table_high) >= change.number for slave in self.slaves)
        if self.profile.is_sync_master and copies + 1 < self.profile.required:
            self.problem(f"change {change.number} was answered, slaves have {[one.table_high for one in self.slaves]}")

    def _is_lost(self, one: Acked | Seen, end: int, tail: bytes) -> bool:
        """Whether the log does not have a message; what may be missing may also have another in its place."""
        return one.end_offset > end or (one.end_offset > self.bound and one.body not in tail)

    def _tail_behind_bound(self, end: int) -> bytes:
        """What may be another log than the one that was acknowledged, of the record that the bound cuts also the begin.

        A slave that was not there when the master lost its end may have one from before that, and give it.
        """
        broker = self.master.broker
        if broker is None or self.bound >= end:
            return b""
        log = broker.store.master_log()
        at, parts = max(log.min_offset, self.bound - self.profile.segment_bytes), []
        while at < end and (piece := log.piece_at(at, end - at)) is not None:
            parts.append(bytes(piece))
            at += len(piece)
        return b"".join(parts)

    def answered(self, acked: list[Acked], node: Node) -> None:
        """The master says SEND_OK, now."""
        end = acked[-1].end_offset
        self.acked += acked
        if self.profile.is_sync_flush and node.broker is not None and node.broker.store.flushed_offset < end:
            self.problem(f"SEND_OK for {end}, flushed is {node.broker.store.flushed_offset}")
        if self.profile.is_sync_master and self.copies(end) + 1 < self.profile.required:
            self.problem(f"SEND_OK for {end}, slaves have {[slave.high for slave in self.slaves]}")

    def copies(self, end: int) -> int:
        """How many slaves have, or had, the log up to `end`."""
        return sum(slave.reached() >= end for slave in self.slaves)

    def given(self, queue_id: int, offset: int, seen: Seen) -> None:
        """A consumer was given this message."""
        before = self.seen.setdefault((queue_id, offset), seen)
        is_limited = self.profile.is_sync_master and self.profile.least > 1 and seen.end_offset > self.shown_end
        if is_limited and not seen.has_copy:
            self.problem(f"a consumer is given {seen.body[:20]!r} up to {seen.end_offset}, no slave has it")
        if before.body != seen.body and self.profile.is_sync_master and self.profile.is_sync_flush:
            self.problem(f"queue {queue_id} offset {offset}: {before.body[:20]!r} before, {seen.body[:20]!r} now")

    def watch(self) -> None:
        """Mark nodes that have all that was promised as caught up.  Called from time to time."""
        promised, master = self.promised_end, self.master
        if not master.is_open or master.broker is None:
            return
        minimum = master.broker.store.master_log().min_offset
        for node in self.slaves:
            if node.lacks_changes and node.is_open:
                node.lacks_changes = node.changes < self.promised_change
            if node.is_behind and node.is_open and node.broker is not None and not node.stale_end:
                log_minimum = node.broker.store.master_log().min_offset
                if node.broker.end_offset >= promised and log_minimum <= minimum:
                    node.is_behind = False

    def supervise(self, node: Node) -> bool:
        """Whether its process has ended itself, for its disk.  One that refuses its disk's content is a problem."""
        broker = node.broker
        if broker is None or (broker.refusal is None and broker.failure is None):
            return False
        if broker.refusal is not None and not isinstance(broker.refusal, DiskFull):
            self.problem(f"{node.name} refused to start: {broker.refusal}")
        return True

    def heir(self) -> Node | None:
        """The slave that an operator makes the master when it is lost: all slaves run, and the furthest is taken.

        None if one of them is down, lags after a fault of its own, or started empty: that would be a second fault.
        """
        if all(node.is_whole for node in self.slaves):
            return max(self.slaves, key=Node.reached)
        return None
