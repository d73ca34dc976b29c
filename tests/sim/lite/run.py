"""A run of simulated failover with lite topics: what must hold at its end.

- Each group gets every acknowledged message of each lite topic, whichever of its clients, brokers and masters go;
- it gets those of one lite topic in the order of their sends, and no more while some are invisible;
- what is acknowledged in time does not come again, unless the broker has restarted or another one leads;
- all lite topics expire when nobody sends any more, with the offsets of groups.
"""

from dataclasses import replace
from typing import Final

from tests.sim.cluster.machine import Machine
from tests.sim.failover.run import MODES, Outcome, Run, play
from tests.sim.failover.sim_replica import Mode
from tests.sim.lite.clients import LiteClients

LITE_MODES: Final = tuple(replace(mode, name=f"lite_{mode.name}", has_lite=True) for mode in MODES if mode.keeps_all)
_READING_S: Final = 60.0
_EXPIRY_S: Final = 150.0
# Only some seeds wait for the expiry, which takes as long as the rest.
_EXPIRING: Final = 4
# The master is killed once in each run, beside all chance.
_KILL_S: Final = (3.0, 6.0)
_DOWN_S: Final = (0.2, 6.0)


class LiteRun(Run):
    """Everything of one run."""

    module = "lite"

    def play(self) -> Outcome:
        home = Machine("10.3.0.2", self.scheduler, self._network)
        self._clients = LiteClients(home, [machine.ip for machine in self._homes], self._place)
        self.scheduler.after(self.scheduler.rng.uniform(*_KILL_S), self._kill_master)
        return super().play()

    def _kill_master(self) -> None:
        for machine in self._homes:
            if machine.process and self._replicas[machine.ip].is_leading:
                self._faults["kill of the master"] += 1
                self._kill(machine)
                self.scheduler.after(self.scheduler.rng.uniform(*_DOWN_S), self._start, machine)
                return

    def _place(self, ip: str) -> object:
        replica = self._replicas.get(ip)
        return id(replica), max(self._elected, default=0)

    def _rest(self) -> None:
        clients = self._clients
        clients.is_sending = False
        until_s = self.scheduler.now + _READING_S
        while clients.missing() and self.scheduler.now < until_s and not self.scheduler.errors:
            self.scheduler.run_until(self.scheduler.now + 1.0)
        self._problems += [*clients.problems, *clients.missing(), *clients.disordered()]
        if not any(clients.acked.values()):
            self._problems.append(f"no message of a lite topic was acknowledged: {clients.answers}")
        super()._rest()
        master = next((one.broker for one in self._replicas.values() if one.is_leading), None)
        if master is None or self._problems or self._seed % _EXPIRING:
            return
        self.scheduler.run_until(self.scheduler.now + _EXPIRY_S)
        master = next((one.broker for one in self._replicas.values() if one.is_leading), None)
        if master is None or master.store.light_queue_count or any(master.offsets.topics_of("Shared")):
            self._problems.append("lite topics have not expired, or offsets of groups are left")


def play_lite(seed: int, mode: Mode | None = None) -> Outcome:
    """The run of a seed."""
    return play(seed, mode or LITE_MODES[seed % len(LITE_MODES)], LiteRun)
