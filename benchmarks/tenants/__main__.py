"""Times of a good tenant alone, and beside a hostile one, which has a quota.

    python -m benchmarks.tenants [--seconds 600] [--slice 5] [--hostile sends,cold,filters,held,subscriptions]

The hostile one floods, subscribes badly and reads cold data.  Both use one broker.  There are two controls.  One is a
harmless tenant, which sends and pulls at the rate of that quota: what the quota lets it have.  The other is the hostile
tenant at another broker of the same machine: what it costs then is processor time.  The four come by turns, in slices.
The broker's old messages are taken out of the page cache before each slice.
"Broker CPU" is the processor time of the good tenant's broker, in s per s.

The broker has the first processor for itself, the clients and the other broker share the second, and the hostile
tenant is nice: what is measured is the broker, not the machine.  `--shared` leaves all to the system.
`--probe` shows the longest turns of the loop (`benchmarks.tenants.probe`), and for how long the loop worked, in
processor time, from when a read of the good tenant can have come until it was served.  That says something on a busy
machine, too.  It costs some time itself.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.system.process import cpu_s
from benchmarks.tenants.frames import BODY, COLD, FLOOD, GOOD, QUEUES, QUOTA, send_header
from benchmarks.tenants.hostile import HARMLESS, KINDS
from benchmarks.tenants.probe import Period, read
from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.bodies.quota import Quota
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.testing import Broker

ALONE, HARMLESS_BESIDE, CONTROL, BESIDE = PHASES = ("alone", "harmless beside", "hostile elsewhere", "hostile beside")
_WARM_S: Final = 1.0
_AT_ONCE: Final = 500
_SHOWN_PERIODS: Final = 8
_SHOWN_CAUSES: Final = 6
_ROOT: Final = Path(__file__).parents[2]


class ProbedBroker(Broker):
    """A broker on some processors, which records its turns in `file` unless that is None."""

    def __init__(self, properties: dict[str, str], processors: str, file: Path | None) -> None:
        super().__init__(properties=properties)
        self._processors = processors
        self._file = file

    def _command(self) -> list[str]:
        command = super()._command()
        if self._file is not None:
            at = command.index("sprocket_cli")
            command[at : at + 1] = ["benchmarks.tenants.probe", str(self._file)]
            command.remove("-I")
        return ["env", f"PYTHONPATH={_ROOT}", "taskset", "-c", self._processors, *command]


async def prepare(broker: Broker, cold_messages: int, *, has_quota: bool) -> None:
    """Make the topics, the old messages, and the quota of the hostile tenant."""
    for topic in (GOOD, FLOOD, COLD):
        await asyncio.to_thread(broker.create_topic, topic, QUEUES)
    client = RemotingClient()
    for first in range(0, cold_messages, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, cold_messages))
        sends = (
            client.invoke(broker.address, RequestCode.SEND_MESSAGE_V2, send_header(COLD, number), BODY, timeout_s=30)
            for number in numbers
        )
        await asyncio.gather(*sends)
    await client.close()
    if has_quota:
        async with AdminClient(broker.namesrv) as admin:
            await admin.set_quota(broker.address, Quota("namespace:evil", **QUOTA))


def forget_pages(broker: Broker) -> None:
    """Take the broker's log out of the page cache, as if it had not been read for long."""
    for path in sorted((broker.store / "commitlog").iterdir()):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def hostile(broker: Broker, kinds: str, cold_messages: int, counts: Counter[str], warm_s: float) -> Iterator[None]:
    """Let the hostile tenant work at a broker until the end of the block."""
    command = [
        "nice", "-n", "19", sys.executable, "-m", "benchmarks.tenants.hostile", broker.address, kinds,
        str(cold_messages),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()  # it has begun
    time.sleep(warm_s)
    try:
        yield
    finally:
        said, _ = process.communicate()
        counts.update(json.loads(said or "{}"))


def good(broker: Broker, seconds: float, per_second: float) -> dict[str, list[float]]:
    """Run a slice of the good tenant; return its times."""
    command = [sys.executable, "-m", "benchmarks.tenants.good", broker.address, str(seconds), str(per_second)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    times: dict[str, list[float]] = json.loads(done.stdout)
    return times


def percentile(values: list[float], part: float) -> float:
    """Return the value below which `part` of all are; nan without any."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else float("nan")


class Times:
    """Times of each phase, of each slice."""

    def __init__(self) -> None:
        self.slices: dict[str, list[dict[str, list[float]]]] = defaultdict(list)
        self.failed: Counter[str] = Counter()
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.cpu_s: dict[str, float] = defaultdict(float)
        self.seconds: dict[str, float] = defaultdict(float)
        self.windows: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def add(self, phase: str, times: dict[str, list[float]]) -> None:
        """Add a slice."""
        self.failed[phase] += times.pop("failed")  # type: ignore[arg-type]
        self.slices[phase].append(times)

    def of(self, phase: str, kind: str) -> list[float]:
        """Return all times of a phase."""
        return [value for one in self.slices[phase] for value in one[kind]]

    def table(self) -> list[str]:
        """Return the lines of the report."""
        lines = [
            f"{'phase':18} {'kind':14} {'count':>7} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'p99/alone':>9}"
            f" {'harmless':>8}"
        ]
        for kind in ("sends_ms", "deliveries_ms"):
            alone, harmless = (percentile(self.of(one, kind), 0.99) for one in (ALONE, HARMLESS_BESIDE))
            for phase in PHASES:
                values = self.of(phase, kind)
                p50, p99, longest = (percentile(values, part) for part in (0.5, 0.99, 1.0))
                lines.append(
                    f"{phase:18} {kind[:-3]:14} {len(values):7} {p50:8.2f} {p99:8.2f} {longest:8.2f} {p99 / alone:9.2f}"
                    f" {p99 / harmless:8.2f}"
                )
        for phase in PHASES:
            share = self.cpu_s[phase] / self.seconds[phase]
            counts = dict(self.counts[phase])
            lines.append(f"{phase}: failed {self.failed[phase]}, broker CPU {share:.2f}, hostile {counts}")
        return lines


def turn_lines(times: Times, file: Path) -> list[str]:
    """Return the lines about the turns of the broker in each phase."""
    periods, good_reads = read(file)
    lines = []
    for phase in PHASES:
        within = [any(begin <= one[0] < end for begin, end in times.windows[phase]) for one in good_reads]
        waits = [1e3 * took for (_, took), is_in in zip(good_reads, within, strict=True) if is_in]
        p50, p99, longest = (percentile(waits, part) for part in (0.5, 0.99, 1.0))
        lines.append(
            f"{phase}: the loop worked until a good read was served: {p50:.2f} (p50), {p99:.2f} (p99), {longest:.2f} ms"
        )
        found = [one for one in periods if any(begin <= one.began_s < end for begin, end in times.windows[phase])]
        lines += [f"    {_shown(one)}" for one in sorted(found, key=lambda one: -one.cpu_s)[:_SHOWN_PERIODS]]
        for cause, seconds in _by_cause(found)[:_SHOWN_CAUSES]:
            lines.append(f"    of all turns of 1 ms and more: {1e3 * seconds / times.seconds[phase]:.1f} ms/s {cause}")
    return lines


def _by_cause(periods: list[Period]) -> list[tuple[str, float]]:
    sums: dict[str, float] = defaultdict(float)
    for one in periods:
        for cause, seconds in one.causes.items():
            sums[cause] += seconds
    return sorted(sums.items(), key=lambda item: -item[1])


def _shown(one: Period) -> str:
    causes = sorted(one.causes.items(), key=lambda item: -item[1])[:_SHOWN_CAUSES]
    texts = ", ".join(f"{1e3 * seconds:.1f} {cause}" for cause, seconds in causes)
    rest = f"without processor {1e3 * one.delayed_s:.1f}, other threads {1e3 * one.others_s:.1f}"
    return f"turn of {1e3 * one.cpu_s:.1f} ms (in all {1e3 * one.wall_s:.1f}, {rest}): {texts}"


def measure(options: argparse.Namespace, kinds: str, probe: Path | None) -> Times:
    """Start two brokers, and run the slices."""
    times = Times()
    properties = {"brokerFastFailureEnable": "true", "enablePropertyFilter": "true"}
    first, second = ("0-127", "0-127") if options.shared else ("0", "1")
    if not options.shared:
        os.sched_setaffinity(0, {1})
    with ProbedBroker(properties, first, probe) as broker, ProbedBroker(properties, second, None) as other:
        for one in (broker, other):
            asyncio.run(prepare(one, options.cold, has_quota=not options.without_quota))
        targets = {ALONE: None, HARMLESS_BESIDE: broker, CONTROL: other, BESIDE: broker}
        for _ in range(max(1, round(options.seconds / options.slice / len(PHASES)))):
            for phase, target in targets.items():
                for one in (broker, other):
                    forget_pages(one)
                with contextlib.ExitStack() as stack:
                    if target is not None:
                        named = HARMLESS if phase == HARMLESS_BESIDE else kinds
                        stack.enter_context(hostile(target, named, options.cold, times.counts[phase], options.warm))
                    began_s, before_s = time.monotonic(), cpu_s(broker.pid)
                    times.add(phase, good(broker, options.slice, options.rate))
                    times.cpu_s[phase] += cpu_s(broker.pid) - before_s
                    times.seconds[phase] += time.monotonic() - began_s
                    times.windows[phase].append((began_s, time.monotonic()))
    return times


def main(arguments: list[str] | None = None) -> Times:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="of all phases together")
    parser.add_argument("--slice", type=float, default=5)
    parser.add_argument("--rate", type=float, default=200, help="sends of the good tenant per second")
    parser.add_argument("--cold", type=int, default=100_000, help="old messages, 1 KiB each")
    parser.add_argument("--hostile", default=",".join(KINDS), help=", ".join(KINDS))
    parser.add_argument("--each", action="store_true", help="measure each kind for `--seconds`")
    parser.add_argument("--without-quota", action="store_true")
    parser.add_argument("--warm", type=float, default=_WARM_S, help="seconds of the other tenant before each slice")
    parser.add_argument("--shared", action="store_true", help="do not give the broker a processor of its own")
    parser.add_argument("--probe", action="store_true", help="show the turns of the broker's loop")
    options = parser.parse_args(arguments)
    if not {*options.hostile.split(",")} <= {*KINDS}:
        parser.error(f"--hostile: allowed is {', '.join(KINDS)}")
    for kinds in options.hostile.split(",") if options.each else [options.hostile]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "turns.json") if options.probe else None
            times = measure(options, kinds, file)
            print(f"hostile: {kinds}")
            print("\n".join([*times.table(), *(turn_lines(times, file) if file is not None else ())]), flush=True)
    return times


if __name__ == "__main__":
    main()
