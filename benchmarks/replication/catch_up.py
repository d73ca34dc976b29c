"""How fast an empty slave catches up with its master over loopback, and the CPU that both use for it.

    python -m benchmarks.replication.catch_up [--log-mb 512] [--rounds 3] [--engines sprocket,apache]

A log is written once for each record size.  Each engine's master begins on a copy of it; then slaves with empty stores
follow it, one after the other, the engines in turns with each other and with the control: a plain copy of the same
bytes through a loopback socket into a file.  Catch-up runs from the first acknowledged byte to the last; `readable`
to when the slave's queues hold the last message.  Ratios are taken round by round, medians are shown.
"""

import argparse
import contextlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.replication.pairs import Pair, SlaveState, started, until
from benchmarks.replication.plain_copy import copy
from benchmarks.store.recovery import write_log
from benchmarks.system.engines import EngineMissingError
from benchmarks.system.process import cpu_s, leave_on_sigterm
from store.config.store_config import StoreConfig
from tests.compat import wire

ENGINES = ("sprocket", "apache")
CONTROL = "copy"
TOPICS, QUEUES = 4, 16
# A new slave of RocketMQ begins with the master's last segment, so the log is one.
SEGMENT_BYTES = 1 << 30
_POLL_S = 0.02


class Measured(NamedTuple):
    """MB/s of the log, of readable messages, and seconds of CPU for each GB."""

    rate: float
    readable_rate: float
    master_cpu: float
    slave_cpu: float


def measure_copy(store: Path, log_bytes: int, folder: Path) -> Measured:
    """The control."""
    segment = next((store / "commitlog").iterdir())
    seconds, sender, receiver = copy(segment, log_bytes, folder / "copied")
    rate, gigabytes = log_bytes / seconds / 1e6, log_bytes / 1e9
    return Measured(rate, rate, sender / gigabytes, receiver / gigabytes)


def measure_slave(pair: Pair, folder: Path, messages: int) -> Measured:
    """One new slave."""
    folder = folder / f"slave-of-{pair.engine}"
    with pair.slave(folder, {"mappedFileSizeCommitLog": str(SEGMENT_BYTES)}) as slave:
        first = _await_acked(pair, 1)
        cpu = cpu_s(pair.master.pid), cpu_s(slave.pid)
        began = time.perf_counter()
        last = _await_acked(pair, first.master_end)
        seconds = time.perf_counter() - began
        size_bytes = last.acked - first.acked
        gigabytes = size_bytes / 1e9
        master_cpu = cpu_s(pair.master.pid) - cpu[0]
        wanted = messages // TOPICS // (QUEUES // TOPICS)
        until(lambda: _queue_end(slave.address) >= wanted, "the slave's queues hold all messages", pause_s=_POLL_S)
        readable_s = time.perf_counter() - began
        slave_cpu = cpu_s(slave.pid) - cpu[1]
    shutil.rmtree(folder, ignore_errors=True)
    return Measured(
        size_bytes / seconds / 1e6, size_bytes / readable_s / 1e6, master_cpu / gigabytes, slave_cpu / gigabytes
    )


def _await_acked(pair: Pair, offset: int) -> SlaveState:
    seen: list[SlaveState] = []

    def is_there() -> bool:
        state = pair.state()
        if state is not None and state.acked >= offset:
            seen.append(state)
        return bool(seen)

    until(is_there, f"the slave has acknowledged {offset}", pause_s=_POLL_S)
    return seen[0]


def _queue_end(address: str) -> int:
    answer = wire.invoke(address, wire.GET_MAX_OFFSET, {"topic": "Orders3", "queueId": str(QUEUES // TOPICS - 1)})
    return int(answer.fields["offset"]) if answer.code == 0 else 0


class Rounds(NamedTuple):
    """Result of `measure`: engine -> rounds, and why an engine is missing."""

    measured: dict[str, list[Measured]]
    missing: dict[str, str]


def measure(engines: Sequence[str], record_bytes: int, log_mb: int, rounds: int, folder: Path) -> Rounds:
    """Let slaves of all `engines` catch up in turns, over one log.  Raises ClusterError."""
    config = StoreConfig(store_path_root_dir=folder / "store", mapped_file_size_commit_log=SEGMENT_BYTES)
    log_bytes = log_mb << 20
    messages = write_log(config, record_bytes, log_bytes, QUEUES)
    measured: dict[str, list[Measured]] = {CONTROL: []}
    found = Rounds(measured, {})
    with contextlib.ExitStack() as stack:
        pairs = []
        for engine in engines:
            properties = {"mappedFileSizeCommitLog": str(SEGMENT_BYTES)}
            try:
                pair = stack.enter_context(
                    started(engine, folder / engine, properties, store=config.store_path_root_dir)
                )
            except EngineMissingError as missing:
                found.missing[engine] = str(missing)
                continue
            pairs.append(pair)
            measured[engine] = []
        for _ in range(rounds):
            measured[CONTROL].append(measure_copy(config.store_path_root_dir, log_bytes, folder))
            for pair in pairs:
                measured[pair.engine].append(measure_slave(pair, folder, messages))
    shutil.rmtree(config.store_path_root_dir)
    return found


def share_of_copy(found: Rounds, engine: str) -> float:
    """Return the median of the rates over those of the control, taken round by round."""
    pairs = zip(found.measured[engine], found.measured[CONTROL], strict=True)
    return median(ours.rate / copied.rate for ours, copied in pairs)


def show(record_bytes: int, found: Rounds) -> None:
    """Print a table of medians, and of ratios taken round by round."""
    print(f"records of {record_bytes} B")
    for engine, reason in found.missing.items():
        print(f"{engine} was not measured: {reason}")
    measured = found.measured
    print("| engine | MB/s | x apache | x copy | readable MB/s | x apache | master CPU s/GB | slave CPU s/GB |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    theirs = measured.get("apache", [])
    for engine, rounds in measured.items():
        of_apache = [_ratio(rounds, theirs, at) if engine != "apache" else "" for at in (0, 1)]
        of_copy = _ratio(rounds, measured[CONTROL], 0) if engine != CONTROL else ""
        rate, readable, master, slave = (median(column) for column in zip(*rounds, strict=True))
        cells = (
            f"{rate:,.0f}",
            of_apache[0],
            of_copy,
            f"{readable:,.0f}",
            of_apache[1],
            f"{master:.2f}",
            f"{slave:.2f}",
        )
        print(f"| {engine} | {' | '.join(cells)} |", flush=True)


def _ratio(ours: list[Measured], theirs: list[Measured], at: int) -> str:
    return f"{median(one[at] / two[at] for one, two in zip(ours, theirs, strict=True)):.2f}" if theirs else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log-mb", type=int, default=512, help="less than 1024")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", default="200,1024", help="sizes in bytes")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sprocket-bench-", dir=arguments.folder))
    try:
        for record_bytes in map(int, arguments.records.split(",")):
            engines = arguments.engines.split(",")
            show(record_bytes, measure(engines, record_bytes, arguments.log_mb, arguments.rounds, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    leave_on_sigterm()
    main()
