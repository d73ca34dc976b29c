"""A storm: clients of one program send and consume many kinds at once, while consumers come and go and brokers stop.

The program (Java's `compat.storm.Storm`, or another that obeys the same orders and prints the same lines) does as it
is told on standard input; here is who tells it, and who stops the brokers.
"""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.checkers.consumption import Disturbance
from tests.checkers.history import Histories, History
from tests.compat import wire
from tests.compat.clients import PERIOD_MS
from tests.compat.cluster import ApacheCluster, Cluster, Server, SprocketCluster
from tests.compat.kinds import BY_NAME, Storm, is_through

QUEUES = 4
STEP_LIMIT_S = 60.0
_POLL_S = 0.05
_END_LIMIT_S = 10.0
_S = 1_000_000
# A storm's brokers: nothing acknowledged may be lost by SIGKILL; transactions are asked about soon.
PROPERTIES = {
    "flushDiskType": "SYNC_FLUSH",
    "enablePropertyFilter": "true",
    "transactionCheckInterval": "5000",
    "transactionTimeOut": "3000",
}


class StormError(Exception):
    """The program ended, or did not do what it was told; the text holds the end of its output."""


@dataclass(frozen=True)
class Weather:
    """How long each part lasts, in seconds, and how fast this client gets over a change."""

    calm_s: float = 5.0
    between_s: float = 4.0
    last_s: float = 10.0
    drain_s: float = 60.0
    settling_s: float = 8.0
    # The client's interval of commits and the broker's of 5 s, and some more on a busy machine.
    memory_s: float = 15.0
    calm_after_s: float = 5.0
    # Whether the program is told before a broker ends: see what it does then.
    has_pauses: bool = False

    def storm(self, disturbances: Sequence[Disturbance]) -> Storm:
        """What the checks are to know."""
        return Storm(
            disturbances, round(self.memory_s * _S), round(self.settling_s * _S), round(self.calm_after_s * _S)
        )


JAVA_WEATHER = Weather()
# The Go client's intervals are constants: heartbeats and routes every 30 s, rebalance every 20 s.
GO_WEATHER = Weather(last_s=32.0, drain_s=90.0, settling_s=32.0, memory_s=25.0, calm_after_s=32.0, has_pauses=True)


class Program:
    """A running program: orders go in, its journal comes out into `histories`, all it says into a file."""

    def __init__(
        self, command: Sequence[str], histories: Histories, home: Path, environment: Mapping[str, str]
    ) -> None:
        self.histories = histories
        self._output = home / "journal.txt"
        with (home / "errors.txt").open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=dict(environment), cwd=home
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._output.open("wb") as output:
            for line in self._process.stdout:
                output.write(line)
                self.histories.feed(line.decode(errors="replace"))

    def tell(self, order: str) -> None:
        """Raises BrokenPipeError when the program has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n".encode())
        self._process.stdin.flush()

    def await_phase(self, name: str) -> None:
        self.await_true(lambda: name in self.histories.phases, STEP_LIMIT_S, f"is not {name}")

    def await_true(self, ready: Callable[[], bool], limit_s: float, what: str) -> None:
        """Raises StormError when the program ends, or `ready` does not hold within `limit_s`."""
        deadline = time.monotonic() + limit_s
        while not ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = self._output.read_text(errors="replace")[-2000:]
                raise StormError(f"{what}, status {self._process.poll()}:\n{tail}")
            time.sleep(_POLL_S)

    def end(self) -> None:
        """No more lines come after this."""
        if self._process.poll() is None:
            with suppress(BrokenPipeError):
                self.tell("exit")
            try:
                self._process.wait(_END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._reader.join(_END_LIMIT_S)


@dataclass
class Report:
    """The histories of one storm, and what is wrong with each kind."""

    histories: Histories
    storm: Storm

    def problems(self, kind: str) -> list[str]:
        return BY_NAME[kind].check(self.histories[kind], self.storm)

    def summary(self, kind: str) -> str:
        history: History = self.histories[kind]
        given = {got.key for got in history.got}
        return (
            f"{len(history.sent)} sent, {len(history.acknowledged)} acknowledged, "
            f"{len(given)} given, {len(history.got)} deliveries"
        )


@dataclass
class Orchestra:
    """Who conducts one storm over a cluster of two brokers."""

    cluster: Cluster
    program: Program
    weather: Weather
    disturbances: list[Disturbance] = field(default_factory=list)

    def conduct(self, kinds: Sequence[str]) -> Report:
        for phase, order in (("ready", "start"), ("started", "send")):
            self.program.await_phase(phase)
            self.program.tell(order)
        time.sleep(self.weather.calm_s)
        with self._disturbance("join"):
            self.program.tell("join")
            self.program.await_phase("joined")
        time.sleep(self.weather.between_s)
        stopped, killed = self.cluster.brokers
        self._restart(stopped, "stop", lambda: stopped.stop())
        time.sleep(self.weather.between_s)
        self._restart(killed, "kill", killed.kill)
        time.sleep(self.weather.between_s)
        with self._disturbance("leave"):
            self.program.tell("leave")
            self.program.await_phase("left")
        time.sleep(self.weather.last_s)
        self.program.tell("stop")
        self.program.await_phase("stopped")
        return self._drain(kinds)

    def _drain(self, kinds: Sequence[str]) -> Report:
        """What is missing at the end of the patience, the checks will say."""
        histories = self.program.histories
        deadline = time.monotonic() + self.weather.drain_s
        while time.monotonic() < deadline and not all(is_through(histories[kind]) for kind in kinds):
            time.sleep(_POLL_S)
        time.sleep(1.0)
        self.program.end()
        return Report(histories, self.weather.storm(self.disturbances))

    def _restart(self, broker: Server, name: str, end: Callable[[], object]) -> None:
        if self.weather.has_pauses:
            self.program.histories.phases.pop("paused", None)
            self.program.tell("pause")
            self.program.await_phase("paused")
        with self._disturbance(name, broker.name):
            end()
            broker.start()
            self.cluster.await_registered(broker)
        if self.weather.has_pauses:
            self.program.tell("resume")

    @contextmanager
    def _disturbance(self, name: str, broker: str | None = None) -> Iterator[None]:
        began = time.time_ns() // 1_000
        yield
        self.disturbances.append(Disturbance(name, began, time.time_ns() // 1_000, broker))


def create_topics(cluster: Cluster, run: str, kinds: Sequence[str]) -> None:
    """The topic of each kind on both brokers, and that of dead letters, for which not every client waits."""
    for broker in cluster.brokers:
        for kind in kinds:
            wire.create_topic(broker.address, f"S-{run}-{kind}", QUEUES)
        if "retry" in kinds:
            wire.create_topic(broker.address, f"%DLQ%SG-{run}-retry", 1)


def storm_cluster(directory: Path) -> Cluster:
    """Two brokers, not started; Apache RocketMQ's with COMPAT_AGAINST=apache."""
    kind = ApacheCluster if os.environ.get("COMPAT_AGAINST") == "apache" else SprocketCluster
    return kind(directory / "servers", brokers=2, properties=PROPERTIES)


def start_storm(cluster: Cluster, command: Sequence[str], kinds: Sequence[str], home: Path, weather: Weather) -> Report:
    """One storm from its topics to its report; `home` takes what the program writes, and its name marks the topics.

    Raises StormError.
    """
    run = home.name
    create_topics(cluster, run, kinds)
    arguments = [*command, cluster.name_server_address, run, str(PERIOD_MS), *kinds]
    program = Program(arguments, Histories(kinds), home, {**os.environ, "HOME": str(home)})
    try:
        return Orchestra(cluster, program, weather).conduct(kinds)
    finally:
        program.end()
