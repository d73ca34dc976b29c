"""A machine: an address, a wall clock, a disk that survives processes and loses what was not synced with the power."""

from collections.abc import Callable
from typing import Final

from sprocket.common.errors import DiskFull
from tests.sim.cluster.network import Network
from tests.sim.cluster.process import Process
from tests.sim.cluster.scheduler import Event, Scheduler
from tests.sim.sim_disk import Fault, SimDisk
from tests.sim.sim_image import Subset, Survivors

_START_MS: Final = 1_700_000_000_000
# How long a worker's turn takes until its outcome is known, s; and on a slow disk.
_TURN: Final = (0.0001, 0.004)
_SLOW_TURN: Final = (0.1, 1.5)


class Machine:
    """One machine.  `process` is what runs on it now."""

    def __init__(self, ip: str, scheduler: Scheduler, network: Network) -> None:
        self.ip = ip
        self.scheduler = scheduler
        self.network = network
        self.disk = SimDisk(scheduler.rng.randrange(1 << 30))
        self.wall_step_ms = 0
        self.is_slow = False
        self.is_full = False
        self.process: Process | None = None
        self.starts = 0
        self._disks = 0
        self.files: dict[str, bytes] = {}  # small ones, by name; each write is synced

    # sprocket.common.clock.Clock

    def wall_ms(self) -> int:
        return _START_MS + int(self.scheduler.now * 1000) + self.wall_step_ms

    def monotonic(self) -> float:
        return self.scheduler.now

    # Processes

    def start_process(self) -> Process:
        assert self.process is None
        self.starts += 1
        self.process = Process(f"{self.ip}#{self.starts}", self.ip, self.scheduler, self.network)
        return self.process

    def kill(self) -> None:
        """SIGKILL; the page cache stays."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            self.network.process_ended(process)
            self.scheduler.trace.mix(self.disk.trace)
        self.disk.kill()

    def cut_power(self) -> Survivors:
        """Everything ends; of what was not synced chance keeps a part, with torn pages."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
        self.network.power_lost(self.ip)
        rng = self.scheduler.rng
        survivors = rng.choice(list(Survivors))
        self.scheduler.trace.mix(self.disk.trace)
        self.disk = self.disk.crash(Subset(survivors, rng.randrange(1 << 30)))
        self.set_full(self.is_full)
        return survivors

    @property
    def has_power(self) -> bool:
        return self.ip not in self.network.without_power

    def power_on(self) -> None:
        self.network.power_back(self.ip)

    @property
    def store_id(self) -> str:
        """What tells the stores of all machines and disks apart."""
        return f"{self.ip}/{self._disks}".encode().hex().ljust(32, "0")

    def replace_disk(self) -> None:
        """A new and empty one."""
        self._disks += 1
        self.files.clear()
        self.disk = SimDisk(self.scheduler.rng.randrange(1 << 30))
        self.set_full(False)

    def set_full(self, is_full: bool) -> None:
        """Whether there is no room for a new file, nor for what makes one longer."""
        self.is_full = is_full
        self.disk.fault = self._no_room if is_full else None

    def _no_room(self, kind: str, path: object) -> Fault | None:
        return Fault(DiskFull) if kind in ("create", "write_small") else None

    def turn_s(self) -> float:
        return self.scheduler.rng.uniform(*(_SLOW_TURN if self.is_slow else _TURN))


class SimWorker:
    """A thread of the store, taking its turns as events of its process."""

    def __init__(self, threads: "Threads", turn: Callable[[], bool], interval_s: float | None) -> None:
        self._threads = threads
        self._turn = turn
        self._interval_s = interval_s
        self._is_running = False
        self._is_awake = False
        self._timer: Event | None = None

    def start(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._wait()

    def wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            if self._is_running:
                self._threads.process.call_later(self._threads.machine.turn_s(), self._run)

    def pace(self, interval_s: float | None) -> None:
        self._interval_s = interval_s

    def stop(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if self._is_awake:
            self._threads.process.call_later(self._threads.machine.turn_s(), self._run)
        elif self._interval_s is not None:
            self._timer = self._threads.process.call_later(self._interval_s, self._run)

    def _run(self) -> None:
        if not self._is_running:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._is_awake = False
        self._is_running = self._turn()
        if self._is_running and not self._is_awake:
            self._wait()


class Threads:
    """The threads of one process, and the queue of what they hand to its owner thread."""

    def __init__(self, machine: Machine, process: Process) -> None:
        self.machine = machine
        self.process = process
        self._last_notice = 0.0

    def worker(self, name: str, turn: Callable[[], bool], interval_s: float | None = None) -> SimWorker:
        return SimWorker(self, turn, interval_s)

    def notify(self, callback: Callable[[], None]) -> None:
        """In the owner thread, in the order in which it was handed over; the work that ended took its time."""
        self._last_notice = max(self._last_notice, self.process.scheduler.now + self.machine.turn_s())
        self.process.call_at(self._last_notice, callback)
