"""Producers that send and wait, consumers that read from master and slaves; both find brokers by asking the cluster."""

from typing import TYPE_CHECKING, Final

from tests.sim.cluster.group import Acked, Change, Group, Node, Seen
from tests.sim.cluster.profile import QUEUES
from tests.sim.cluster.sim_broker import OK, SimBroker

if TYPE_CHECKING:
    from tests.sim.cluster.cluster import Cluster

_TIMEOUT_S: Final = 4.0
_FIXED_BYTES: Final = 100


class Producer:
    """Sends one batch after the other to one group.  An answer that does not come in time is given up."""

    def __init__(self, cluster: "Cluster", group: Group, number: int) -> None:
        self._cluster = cluster
        self._group = group
        self._number = number
        self._ip = f"10.1.0.{number}"
        self._sent = 0
        self._turn = 0
        self.outcomes: dict[str, int] = {}

    def start(self) -> None:
        self._next()

    def _next(self) -> None:
        self._turn += 1
        scheduler = self._cluster.scheduler
        scheduler.after(scheduler.rng.expovariate(1 / self._cluster.send_interval_s), self._send)

    def _bodies(self) -> list[bytes]:
        rng = self._cluster.scheduler.rng
        bodies = []
        for _ in range(1 if rng.random() < 0.7 else rng.randint(2, 4)):
            self._sent += 1
            name = b"p%d-%06d|" % (self._number, self._sent)
            bodies.append(name.ljust(self._body_bytes(), b"x"))
        return bodies

    def _body_bytes(self) -> int:
        rng, profile = self._cluster.scheduler.rng, self._group.profile
        if profile.fixed_body:
            return _FIXED_BYTES
        # Some are larger than what a master sends at once.
        return rng.randint(1500, 3000) if rng.random() < 0.1 else rng.randint(12, 400)

    def _send(self) -> None:
        if self._cluster.is_over:
            return
        scheduler, network, node = self._cluster.scheduler, self._cluster.network, self._group.master
        queue_id, bodies, turn = scheduler.rng.randrange(QUEUES), self._bodies(), self._turn
        broker = node.broker
        if broker is not None:
            network.tell(
                self._ip, node.machine.ip, broker.process.call_soon, self._arrive, broker, node, queue_id, bodies, turn
            )
        scheduler.after(_TIMEOUT_S, self._answered, turn, "TIMEOUT")

    def _arrive(self, broker: SimBroker, node: Node, queue_id: int, bodies: list[bytes], turn: int) -> None:
        def reply(outcome: str, positions: list[tuple[int, int, int]]) -> None:
            if outcome == OK:
                acked = [
                    Acked(body, queue_id, offset, place, place + size)
                    for body, (offset, place, size) in zip(bodies, positions, strict=True)
                ]
                self._group.answered(acked, node)
            self._cluster.scheduler.say(f"answer {self._number} {bodies[0][:10].decode()} {outcome} {positions[-1:]}")
            self._cluster.network.tell(node.machine.ip, self._ip, self._answered, turn, outcome)

        broker.send(queue_id, bodies, reply)

    def _answered(self, turn: int, outcome: str) -> None:
        if turn == self._turn:
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
            self._next()


class Operator:
    """Changes the schedule of one group, again and again."""

    def __init__(self, cluster: "Cluster", group: Group) -> None:
        self._cluster = cluster
        self._group = group
        self._ip = f"10.3.0.{group.number}"
        self._number = 0

    def start(self) -> None:
        scheduler = self._cluster.scheduler
        scheduler.after(scheduler.rng.expovariate(1.0), self._change)

    def _change(self) -> None:
        if self._cluster.is_over:
            return
        self._number += 1
        node, network = self._group.master, self._cluster.network
        if node.broker is not None:
            network.tell(
                self._ip, node.machine.ip, node.broker.process.call_soon, self._arrive, node.broker, self._number
            )
        self.start()

    def _arrive(self, broker: SimBroker, number: int) -> None:
        def reply(error: str | None, end_offset: int) -> None:
            self._cluster.scheduler.say(f"change {number} {error or OK}")
            if error is None:
                self._group.changed(Change(number, end_offset))

        broker.set_schedule(number, reply)


class Consumer:
    """Reads the queues of one group, from master and slaves as chance has it."""

    def __init__(self, cluster: "Cluster", group: Group, number: int) -> None:
        self._cluster = cluster
        self._group = group
        self._ip = f"10.2.0.{number}"
        self._next = [0] * QUEUES

    def start(self) -> None:
        scheduler = self._cluster.scheduler
        scheduler.after(scheduler.rng.uniform(0.1, 0.9), self._pull)

    def _pull(self) -> None:
        if self._cluster.is_over:
            return
        scheduler, network = self._cluster.scheduler, self._cluster.network
        node = scheduler.rng.choice([self._group.master, *self._group.nodes])
        queue_id = scheduler.rng.randrange(QUEUES)
        broker = node.broker
        if broker is not None:
            network.tell(self._ip, node.machine.ip, broker.process.call_soon, self._arrive, broker, node, queue_id)
        self.start()

    def _arrive(self, broker: SimBroker, node: Node, queue_id: int) -> None:
        def reply(found: list[tuple[int, int, bytes]] | None) -> None:
            for offset, end, body in found or ():
                if not node.stale_end:
                    has_copy = self._group.copies(end) > 0
                    self._group.given(queue_id, offset, Seen(body, end, not broker.is_master, has_copy))
                self._next[queue_id] = offset + 1

        # Sometimes again from the beginning, to see whether it is still the same.
        if self._cluster.scheduler.rng.random() < 0.04:
            self._next[queue_id] = 0
        broker.pull(queue_id, max(self._next[queue_id], broker.store.min_offset("Orders", queue_id)), reply)
