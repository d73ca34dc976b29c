"""What replication costs senders: SYNC_MASTER beside ASYNC_MASTER, with a slave and without, and beside others.

The others are RocketMQ's SYNC_MASTER, and the C floor with a slave that does the least.

    python -m benchmarks.replication.sends [--rounds 5] [--seconds 1] [--outstanding 1,64,256] [--no-apache]

All clusters run side by side and are measured in turns, in short slices; ratios are taken slice by slice, medians are
shown.  CPU is that of master and slave; the floor's slave is not counted.
"""

import argparse
import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.replication.pairs import started
from benchmarks.system import engines, generator
from benchmarks.system.frames import QUEUES
from benchmarks.system.process import cpu_s, leave_on_sigterm
from benchmarks.system.workload import Workload
from tests.compat import wire
from tests.compat.cluster import Server

TOPIC = "bench-replication"
_WARM_UP_S = 4.0
_BODY_BYTES = 128


@dataclass(frozen=True)
class Kind:
    """One cluster: whose, the master's role, and whether it has a slave."""

    name: str
    engine: str
    role: str
    has_slave: bool


KINDS = (
    Kind("sprocket alone", "sprocket", "ASYNC_MASTER", False),
    Kind("sprocket async", "sprocket", "ASYNC_MASTER", True),
    Kind("sprocket sync", "sprocket", "SYNC_MASTER", True),
    Kind("apache sync", "apache", "SYNC_MASTER", True),
    Kind("floor async", "floor", "ASYNC_MASTER", True),
    Kind("floor sync", "floor", "SYNC_MASTER", True),
)


class Measured(NamedTuple):
    """Messages a second, microseconds, and microseconds of CPU for each message, of the master and of the slave."""

    rate: float
    p50_us: float
    p99_us: float
    master_cpu_us: float
    slave_cpu_us: float


class Running(NamedTuple):
    """A cluster that runs."""

    master: Server
    slave: Server | None

    def measure(self, outstanding: int, seconds: float) -> Measured:
        return measure_sends(self.master, self.slave, outstanding, seconds)


def measure_sends(master: Server, slave: Server | None, outstanding: int, seconds: float) -> Measured:
    """Send for `seconds`, with `outstanding` messages at a time."""
    before = _cpu(master, slave)
    result = generator.run(master.address, TOPIC, Workload("send", _BODY_BYTES, outstanding), seconds, "auto")
    after = _cpu(master, slave)
    per_message = 1e6 / max(1, result.messages)
    return Measured(
        result.rate,
        result.percentile_us(0.5),
        result.percentile_us(0.99),
        (after[0] - before[0]) * per_message,
        (after[1] - before[1]) * per_message,
    )


def warm_up(master: Server) -> None:
    """Send until everything is compiled, mapped and allocated."""
    wire.create_topic(master.address, TOPIC, QUEUES)
    generator.run(master.address, TOPIC, Workload("send", _BODY_BYTES, 64), _WARM_UP_S, "auto")


def _cpu(master: Server, slave: Server | None) -> tuple[float, float]:
    return cpu_s(master.pid), cpu_s(slave.pid) if slave is not None else 0.0


@contextlib.contextmanager
def running(kind: Kind, folder: Path) -> Iterator[Running]:
    """The cluster, its slave in step.  Raises EngineMissingError, ClusterError."""
    if kind.engine == "floor":
        with engines.single("floor", folder / kind.name.replace(" ", "-"), kind.role) as server:
            warm_up(server)
            yield Running(server, None)
        return
    properties = {"brokerRole": kind.role}
    if kind.engine == "apache":
        # Its default is 1, with which SYNC_MASTER waits for nobody.
        properties["inSyncReplicas"] = "2"
    name = kind.name.replace(" ", "-")
    with started(kind.engine, folder / name, properties) as pair, contextlib.ExitStack() as stack:
        slave = None
        if kind.has_slave:
            slave = stack.enter_context(pair.slave(folder / f"{name}-slave"))
            pair.await_connected(slave)
        warm_up(pair.master)
        if slave is not None:
            pair.await_in_step(slave)
        yield Running(pair.master, slave)


class Slices(NamedTuple):
    """Result of `measure`: outstanding -> kind -> slices, and why a kind is missing."""

    measured: dict[int, dict[str, list[Measured]]]
    missing: dict[str, str]


def measure(kinds: Sequence[Kind], outstanding: Sequence[int], rounds: int, seconds: float, folder: Path) -> Slices:
    """Measure all kinds in turns, in slices of `seconds`.  Raises ClusterError."""
    found = Slices({}, {})
    with contextlib.ExitStack() as stack:
        clusters = {}
        for kind in kinds:
            try:
                clusters[kind.name] = stack.enter_context(running(kind, folder))
            except engines.EngineMissingError as missing:
                found.missing[kind.name] = str(missing)
        for count in outstanding:
            slices = found.measured[count] = {name: [] for name in clusters}
            for _ in range(rounds):
                for name, one in clusters.items():
                    slices[name].append(one.measure(count, seconds))
    return found


def rate_ratio(ours: Sequence[Measured], theirs: Sequence[Measured]) -> float:
    """Return the median of the ratios of rates, taken slice by slice."""
    return median(one.rate / two.rate for one, two in zip(ours, theirs, strict=True))


def show(slices_of: Slices) -> None:
    """Print a table of medians, and of ratios taken slice by slice."""
    for name, reason in slices_of.missing.items():
        print(f"{name} was not measured: {reason}")
    print(
        "| outstanding | cluster | messages/s | x async | x apache | p50 us | p99 us | master us | slave us | added |"
    )
    print("|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for outstanding, slices in slices_of.measured.items():
        for name, rounds in slices.items():
            rate, p50, p99, master, slave = (median(column) for column in zip(*rounds, strict=True))
            of_async = _ratio(rounds, slices.get(f"{name.split()[0]} async", slices["sprocket async"]))
            of_apache = _ratio(rounds, slices.get("apache sync", []))
            added = median(one.p50_us - two.p50_us for one, two in zip(rounds, slices["sprocket async"], strict=True))
            numbers = f"{rate:,.0f} | {of_async} | {of_apache} | {p50:,.0f} | {p99:,.0f} | {master:.1f} | {slave:.1f}"
            print(f"| {outstanding} | {name} | {numbers} | {added:,.0f} |", flush=True)


def _ratio(ours: list[Measured], theirs: list[Measured]) -> str:
    return f"{rate_ratio(ours, theirs):.2f}" if theirs else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--outstanding", default="1,64,256")
    parser.add_argument("--no-apache", action="store_true")
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sprocket-bench-", dir=arguments.folder))
    try:
        kinds = [kind for kind in KINDS if kind.engine != "apache" or not arguments.no_apache]
        outstanding = [int(count) for count in arguments.outstanding.split(",")]
        show(measure(kinds, outstanding, arguments.rounds, arguments.seconds, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    leave_on_sigterm()
    main()
