"""A storm: clients of one program send and consume many kinds at once, while consumers come and go and brokers stop.

The program (Java's `compat.storm.Storm`, or another that obeys the same orders and prints the same lines) does as it
is told on standard input; here is who tells it, and who stops the brokers.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.checkers.consumption import Disturbance
from tests.checkers.history import Got, Histories, History
from tests.compat import wire
from tests.compat.cluster import CLUSTER_NAME, ApacheCluster, Cluster, Server, SprocketCluster
from tests.compat.maven import ROOT
from tests.compat.storms.clients import PERIOD_MS
from tests.compat.storms.kinds import BY_NAME, SECOND, Storm, is_through

QUEUES = 4
_SET_MESSAGE_REQUEST_MODE = 401
STEP_LIMIT_S = 60.0
_POLL_S = 0.05
_END_LIMIT_S = 10.0
_S = 1_000_000
_USUAL_RESTART_US = 3 * _S
# Messages of each kind that both sides of a change have at least, however slow the machine is.
_SOME = 25
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
    """How long each part lasts at least, in seconds, and how fast this client gets over a change."""

    calm_s: float = 4.0
    between_s: float = 3.0
    last_s: float = 6.0
    # How much longer a part lasts until each kind has shown what the part is for.
    patience_s: float = 60.0
    drain_s: float = 60.0
    # A client that misses a notice rebalances after 20 s, on a slow machine later.
    settling_s: float = 45.0
    # The client's interval of commits and the broker's of 5 s, and some more.
    memory_s: float = 15.0
    calm_after_s: float = 5.0
    is_sent_once: bool = True

    def storm(self, disturbances: Sequence[Disturbance]) -> Storm:
        """What the checks are to know.  How slow this machine is, the restarts have shown."""
        slowest_us = max(each.ended_us - each.began_us for each in disturbances)
        factor = max(1.0, slowest_us / _USUAL_RESTART_US)
        return Storm(
            disturbances,
            memory_us=round(self.memory_s * factor * _S),
            settling_us=round(self.settling_s * factor * _S),
            calm_after_us=round(self.calm_after_s * factor * _S),
            is_sent_once=self.is_sent_once,
        )


WEATHER = Weather()
# The Go client's intervals are constants: heartbeats and routes every 30 s, rebalance every 20 s. An orderly consumer
# keeps the locks of queues that it gives up, so that the next one waits until they expire after 60 s. That is waited
# for at the end, once.
GO_WEATHER = Weather(last_s=30.0, patience_s=5.0, drain_s=90.0, settling_s=90.0, memory_s=25.0, calm_after_s=32.0)

# As Go's; it sends again by itself what was not answered.
CPP_WEATHER = replace(GO_WEATHER, is_sent_once=False)


class Program:
    """A running program: orders go in, its journal comes out into `histories`, all it says into a file."""

    def __init__(self, command: Sequence[str], histories: Histories, home: Path) -> None:
        self._histories = histories
        self._phases: list[str] = []
        self._output = home / "journal.txt"
        self._errors = home / "errors.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)},
                cwd=home,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._output.open("wb") as output:
            for line in self._process.stdout:
                output.write(line)
                if line.startswith(b"PHASE\t"):
                    self._phases.append(line.split(b"\t")[1].decode())
                else:
                    self._histories.feed(line.decode(errors="replace"))

    def tell(self, order: str) -> None:
        """Raises BrokenPipeError when the program has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n".encode())
        self._process.stdin.flush()

    def await_phase(self, name: str) -> None:
        """Raises StormError when the program ends, or says nothing of this phase within `STEP_LIMIT_S`."""
        deadline = time.monotonic() + STEP_LIMIT_S
        while name not in self._phases:
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = self._output.read_text(errors="replace")[-2000:]
                errors = self._errors.read_text(errors="replace")[-3000:]
                raise StormError(f"not {name}, status {self._process.poll()}:\n{tail}\n{errors}")
            time.sleep(_POLL_S)
        self._phases.remove(name)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP, if it runs."""
        if self._process.poll() is None:
            self._process.send_signal(number)

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
        """Counts, for whom a problem makes curious."""
        history = self.histories[kind]
        given = {got.key for got in history.got}
        return (
            f"{len(history.sent)} sent, {len(history.acknowledged)} acknowledged, "
            f"{len(given)} given, {len(history.got)} deliveries"
        )

    def assert_right(self, kind: str) -> None:
        """Raises AssertionError that names the kind and its messages."""
        problems = self.problems(kind)
        what = [f"{kind}: {self.summary(kind)}; {len(problems)} problems", *problems[:20]]
        assert not problems, "\n".join(what)


@dataclass
class Cast:
    """Who plays some kinds: the program that sends and starts the first consumer, and the one that joins later."""

    kinds: Sequence[str]
    histories: Histories
    first: Program
    second: Program

    @property
    def programs(self) -> list[Program]:
        return [self.first] if self.first is self.second else [self.first, self.second]


@dataclass
class Orchestra:
    """Who conducts a storm over a cluster of two brokers: all casts meet the same restarts."""

    cluster: Cluster
    casts: Sequence[Cast]
    weather: Weather
    disturbances: list[Disturbance] = field(default_factory=list)

    def conduct(self) -> list[Report]:
        """A report for each cast.  Raises StormError."""
        for cast in self.casts:
            for program in cast.programs:
                program.await_phase("ready")
        self._all("start", "started")
        self._all("send")
        self._go_on(self.weather.calm_s, _SOME, lambda got: True)
        with self._disturbance("join"):
            self._all("join", "joined", lambda cast: cast.second)
        self._go_on(self.weather.between_s, 1, lambda got: got.consumer == SECOND)
        stopped, killed = self.cluster.brokers
        self._restart(stopped, "stop", lambda: stopped.stop())
        self._restart(killed, "kill", killed.kill)
        with self._disturbance("leave"):
            self._all("leave", "left")
        self._go_on(self.weather.last_s, _SOME, self._since_the_last)
        self._all("stop", "stopped")
        self._drain()
        storm = self.weather.storm(self.disturbances)
        return [Report(cast.histories, storm) for cast in self.casts]

    def _since_the_last(self, got: Got) -> bool:
        return got.began_us > self.disturbances[-1].ended_us

    def _go_on(self, min_s: float, count: int, wanted: Callable[[Got], bool]) -> None:
        """Go on for `min_s`, then until `count` wanted messages of each kind were given; the checks find losses."""
        time.sleep(min_s)
        waiting = self._histories()
        deadline = time.monotonic() + self.weather.patience_s
        while time.monotonic() < deadline and waiting:
            waiting = [each for each in waiting if sum(map(wanted, tuple(each.got))) < count]
            time.sleep(_POLL_S)

    def _histories(self) -> list[History]:
        return [cast.histories[kind] for cast in self.casts for kind in cast.kinds]

    def _all(self, order: str, phase: str = "", who: Callable[[Cast], Program] = lambda cast: cast.first) -> None:
        """Tell one program of each cast, and wait until all are through."""
        for cast in self.casts:
            who(cast).tell(order)
        for cast in self.casts:
            if phase:
                who(cast).await_phase(phase)

    def _drain(self) -> None:
        """What is missing at the end of the patience, the checks will say."""
        waiting = self._histories()
        deadline = time.monotonic() + self.weather.drain_s
        while time.monotonic() < deadline and waiting:
            waiting = [history for history in waiting if not is_through(history)]
            time.sleep(_POLL_S)
        time.sleep(1.0)
        for cast in self.casts:
            for program in cast.programs:
                program.end()

    def _restart(self, broker: Server, name: str, end: Callable[[], object]) -> None:
        with self._disturbance(name, broker.name):
            end()
            broker.start()
            self.cluster.await_registered(broker)
        self._go_on(
            self.weather.between_s, 1, lambda got: got.place.broker == broker.name and self._since_the_last(got)
        )

    @contextmanager
    def _disturbance(self, name: str, broker: str | None = None) -> Iterator[None]:
        began = time.time_ns() // 1_000
        yield
        self.disturbances.append(Disturbance(name, began, time.time_ns() // 1_000, broker))


def create_topics(cluster: Cluster, run: str, kinds: Sequence[str]) -> None:
    """The topic of each kind on both brokers, and that of dead letters, for which not every client waits.

    The group that pops is told so, as `mqadmin setConsumeMode` does.
    """
    for broker in cluster.brokers:
        for kind in kinds:
            wire.create_topic(broker.address, f"S-{run}-{kind}", QUEUES)
        if "retry" in kinds:
            wire.create_topic(broker.address, f"%DLQ%SG-{run}-retry", 1)
        if "pop" in kinds:
            mode = {"topic": f"S-{run}-pop", "consumerGroup": f"SG-{run}-pop", "mode": "POP", "popShareQueueNum": 0}
            answer = wire.invoke(broker.address, _SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode())
            if answer.code != 0:
                raise wire.WireError(f"request mode: code {answer.code}, {answer.remark}")


def storm_cluster(directory: Path) -> Cluster:
    """Two brokers, not started; Apache RocketMQ's with COMPAT_AGAINST=apache."""
    kind = ApacheCluster if os.environ.get("COMPAT_AGAINST") == "apache" else SprocketCluster
    return kind(directory / "servers", brokers=2, properties=PROPERTIES)


def name_clusters_like_brokers(cluster: Cluster) -> None:
    """Before the start: each message then says by its property CLUSTER which broker it is of."""
    for broker in cluster.brokers:
        configuration = broker.directory / "broker.conf"
        text = configuration.read_text()
        configuration.write_text(text.replace(f"={CLUSTER_NAME}\n", f"={broker.name}\n"))


@dataclass(frozen=True)
class Role:
    """A program that is to be started: its command, and where it writes what it writes."""

    command: Sequence[str]
    home: Path


def start_storm(cluster: Cluster, roles: Sequence[tuple[Sequence[str], Role, Role]], weather: Weather) -> list[Report]:
    """One storm from its topics to its reports: of each cast its kinds, who begins and who joins; may be the same.

    Raises StormError.
    """
    casts = []
    try:
        for kinds, first, second in roles:
            casts.append(_start_cast(cluster, kinds, first, second))
        return Orchestra(cluster, casts, weather).conduct()
    finally:
        for cast in casts:
            for program in cast.programs:
                program.end()


def _start_cast(cluster: Cluster, kinds: Sequence[str], first: Role, second: Role) -> Cast:
    """The name of the first one's home marks the topics."""
    run = first.home.name
    create_topics(cluster, run, kinds)
    histories = Histories(kinds)
    arguments = [cluster.name_server_address, run, str(PERIOD_MS), *kinds]
    begins = Program([*first.command, *arguments], histories, first.home)
    joins = begins if second is first else Program([*second.command, *arguments], histories, second.home)
    return Cast(kinds, histories, begins, joins)
