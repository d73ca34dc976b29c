"""What goes wrong in a run, drawn by the seed: processes, power, disks, links, clocks, operators."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.sim.cluster.group import Group, Node
from tests.sim.cluster.liar import Liar

if TYPE_CHECKING:
    from tests.sim.cluster.cluster import Cluster

# How often each fault comes.
_WEIGHTS: Final[dict[str, int]] = {
    "kill": 6,
    "power_cut": 8,
    "power_cut_all": 5,
    "pause": 4,
    "cut_one_way": 4,
    "cut": 4,
    "vanish": 4,
    "reset": 4,
    "slow_link": 3,
    "slow_disk": 3,
    "full_disk": 3,
    "clock_step": 2,
    "retention": 3,
    "empty_slave": 2,
    "lose_master": 6,
    "lose_slave": 1,
    "liar": 2,
}


class Faults:
    """Draws faults and ends them again."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        self._rng = cluster.scheduler.rng
        self.counts: dict[str, int] = {}

    def strike_by_chance(self) -> None:
        """One fault, now."""
        kind = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        group = self._rng.choice(self._cluster.groups)
        self.strike(kind, group, self._rng.choice(group.nodes))

    def strike(self, kind: str, group: Group, node: Node) -> None:
        """This fault, now."""
        self._scheduler.say(f"fault {kind} {node.name}")
        self.counts[kind] = self.counts.get(kind, 0) + 1
        getattr(self, f"_{kind}")(group, node)

    def _later(self, low_s: float, high_s: float, callback: Callable[[], object]) -> None:
        self._scheduler.after(self._rng.uniform(low_s, high_s), callback)

    # Processes and power

    def _kill(self, group: Group, node: Node) -> None:
        self._cluster.kill(group, node)
        self._later(0.1, 4, lambda: group.start(node))

    def _power_cut(self, group: Group, node: Node) -> None:
        self._cluster.cut_power(group, node)
        self._restore(group, node)

    def _power_cut_all(self, group: Group, node: Node) -> None:
        for one in group.nodes:
            self._cluster.cut_power(group, one)
        for one in group.nodes:
            self._later(0.2, 4, lambda one=one: self._cluster.power_on(group, one))  # type: ignore[misc] # a default

    def _restore(self, group: Group, node: Node) -> None:
        """Power comes back; for the master of a group without synced disks a slave may have taken its place.

        In the plain protocol it has to: nothing else brings back what the master lost.
        """
        profile = group.profile
        is_replaced = profile.is_plain or self._rng.random() < 0.5
        if node.broker_id == 0 and profile.is_sync_master and not profile.is_sync_flush and is_replaced:
            self._later(0.5, 2, lambda: self._cluster.fail_over(group, node, needs_heir=False))
        else:
            self._later(0.2, 5, lambda: self._cluster.power_on(group, node))

    def _pause(self, group: Group, node: Node) -> None:
        process = None if node.broker is None else node.broker.process
        if process is not None and not process.is_paused:
            process.pause()
            self._later(0.2, 9, lambda: process.go_on() if process.is_alive else None)

    def _lose_master(self, group: Group, node: Node) -> None:
        master = group.master
        heir = group.heir()
        if heir is None or not master.is_open:
            return
        self._cluster.lose(group, master)
        self._later(0.5, 2, lambda: self._cluster.fail_over(group, master, needs_heir=True))

    def _lose_slave(self, group: Group, node: Node) -> None:
        slave = self._rng.choice(group.slaves)
        self._cluster.lose(group, slave)
        self._later(0.5, 3, lambda: self._cluster.replaced(group, slave))

    def _empty_slave(self, group: Group, node: Node) -> None:
        slave = self._rng.choice(group.slaves)
        self._cluster.kill(group, slave)
        group.wipe(slave)
        self._later(0.5, 3, lambda: group.start(slave))

    # Links

    def _pair(self, group: Group) -> tuple[str, str]:
        first, second = self._rng.sample(group.nodes, 2)
        return first.machine.ip, second.machine.ip

    def _cut_one_way(self, group: Group, node: Node) -> None:
        source, target = self._pair(group)
        self._cluster.network.cut(source, target)
        self._later(0.3, 10, lambda: self._cluster.network.heal(source, target))

    def _cut(self, group: Group, node: Node) -> None:
        source, target = self._pair(group)
        self._cluster.network.cut(source, target)
        self._cluster.network.cut(target, source)

        def heal() -> None:
            self._cluster.network.heal(source, target)
            self._cluster.network.heal(target, source)

        self._later(0.3, 10, heal)

    def _vanish(self, group: Group, node: Node) -> None:
        for connection in self._cluster.network.between(*self._pair(group)):
            connection.vanish()

    def _reset(self, group: Group, node: Node) -> None:
        for connection in self._cluster.network.between(*self._pair(group)):
            connection.reset()

    def _slow_link(self, group: Group, node: Node) -> None:
        source, target = self._pair(group)
        network = self._cluster.network
        network.link(source, target).is_slow = network.link(target, source).is_slow = True

        def heal() -> None:
            network.heal(source, target)
            network.heal(target, source)

        self._later(1, 8, heal)

    def _liar(self, group: Group, node: Node) -> None:
        liar = Liar(self._cluster, group)
        liar.start()

        def leave() -> None:
            liar.process.kill()
            self._cluster.network.process_ended(liar.process)

        self._later(1, 3, leave)

    # Disks and clocks

    def _slow_disk(self, group: Group, node: Node) -> None:
        node.machine.is_slow = True
        self._later(1, 6, lambda: setattr(node.machine, "is_slow", False))

    def _full_disk(self, group: Group, node: Node) -> None:
        node.machine.set_full(True)
        self._later(1, 6, lambda: node.machine.set_full(False))

    def _clock_step(self, group: Group, node: Node) -> None:
        node.machine.wall_step_ms += self._rng.choice((-3_600_000, -5_000, 5_000, 3_600_000))

    def _retention(self, group: Group, node: Node) -> None:
        """The disk fills until old segments go."""
        disk = node.machine.disk
        disk.used = 0.8
        self._later(1, 6, lambda: setattr(disk, "used", 0.1))
