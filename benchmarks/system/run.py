"""`python -m benchmarks.system.run`: all engines stand side by side and are measured in turns, in short slices.

The speed of a shared machine drifts by a factor of two within minutes.  Slices of the same second see the same
machine, so the ratio of two engines is taken slice by slice, and the median of the ratios is what holds.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from benchmarks.system import engines, generator, page_cache, process, targets
from benchmarks.system.frames import QUEUES
from benchmarks.system.report import Measurement, Report, Startup, print_report
from benchmarks.system.workload import EXCHANGES, LoadError, Workload
from sprocket.engine.choice import ENGINE
from tests.compat import wire
from tests.compat.cluster import ClusterError

_IDLE_S = 2.0
_FILE_COLUMNS = 180
# A measurement counts as undisturbed up to this share of the machine used by others.
_QUIET = 0.05
_PATIENCE_PAUSE_S = 1.0
# Once per start, so that no engine is measured before its JIT has seen the path, and once per workload.
_START_WARM_UP = Workload("send", 128, 64)
_START_WARM_UP_S = {True: 4.0, False: 8.0}
_WARM_UP_S = 0.3
# What a topic holds before it is pulled or popped, and how many times that.
_STOCK = {True: 20_000, False: 60_000}
_STOCKED = {"pull": 1, "sql pull": 1, "pop and ack": 3}

QUICK = (
    Workload("send", 128, 1),
    Workload("send", 128, 64),
    Workload("pull", 128, 1),
    Workload("send", 128, 1, sync_flush=True),
    Workload("send", 128, 64, sync_flush=True),
)
FULL = (
    *(Workload("send", size, outstanding) for size in (128, 1024) for outstanding in (1, 64, 256)),
    *(Workload("send", size, outstanding, 8) for size in (128, 1024) for outstanding in (64, 256)),
    Workload("send", 128, 64, serialization=wire.ROCKETMQ),
    *(Workload("pull", size, outstanding) for size in (128, 1024) for outstanding in (1, 4)),
    Workload("pull", 128, 8, 8),
    Workload("send", 128, 1, sync_flush=True),
    Workload("send", 128, 64, sync_flush=True),
)


KINDS = tuple(Workload(kind, 128, 64) for kind in EXCHANGES)


@click.command()
@click.option("--kinds", is_flag=True, help="Transactions, delayed messages, SQL pulls, pops, in place of plain ones.")
@click.option(
    "--targets", "is_for_targets", is_flag=True, help="The workloads of the engine's targets, and which it reached."
)
@click.option("--quick", is_flag=True, help="The few workloads that the targets name, in shorter slices.")
@click.option("--engines", "names", help="Which, in this order.  [default: all; with --targets those that they name]")
@click.option("--seconds", type=float, help="Length of a slice.  [default: 1 quick, 2 full]")
@click.option("--rounds", type=int, help="Slices of each engine and workload.  [default: 5 quick, 7 full]")
@click.option("--loop", type=click.Choice(generator.LOOPS), default="auto", help="The load generator's inner loop.")
@click.option("--patience", default=0, help="Repeat a disturbed measurement up to so often; keep the quietest.")
@click.option("--only", default="", help="Only workloads whose name holds this text.")
@click.option(
    "--full-cache", is_flag=True, help="Fill the page cache first, so that new pages of a log replace old ones."
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all numbers here; - is stdout.")
def main(
    kinds: bool,
    is_for_targets: bool,
    quick: bool,
    names: str | None,
    seconds: float | None,
    rounds: int | None,
    loop: str,
    patience: int,
    only: str,
    full_cache: bool,
    json_path: Path | None,
) -> None:
    """Measures whole brokers under load, beside a naive asyncio broker and Apache RocketMQ."""
    signal.signal(signal.SIGTERM, _Stop())
    to_stderr = json_path == Path("-")
    console = Console(stderr=to_stderr, width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    usual = targets.ENGINES if is_for_targets else engines.ENGINES
    chosen = [*usual] if names is None else [name.strip() for name in names.split(",") if name.strip()]
    unknown = sorted(set(chosen) - set(engines.ENGINES))
    if unknown:
        raise click.BadParameter(f"no engine {', '.join(unknown)}; there are {', '.join(engines.ENGINES)}")
    all_workloads = targets.WORKLOADS if is_for_targets else KINDS if kinds else QUICK if quick else FULL
    workloads = [one for one in all_workloads if only in one.name]
    seconds = seconds or (1.0 if quick else 2.0)
    rounds = rounds or (5 if quick else 7)
    report = Report(process.machine(), generator.loop_name(loop), seconds, rounds, patience)
    try:
        for sync_flush in (False, True):
            some = [one for one in workloads if one.sync_flush == sync_flush]
            if some:
                with page_cache.filled(page_cache.free_bytes() if full_cache else 0):
                    _side_by_side(console, report, chosen, some, quick=quick, sync_flush=sync_flush)
    finally:
        print_report(console, report)
        if is_for_targets:
            console.print(targets.target_table(report, ENGINE.name))
        _write_json(report, json_path)
    if report.failures:
        raise SystemExit(1)


class _Stop:
    """On the first SIGTERM: leave, and so stop all servers; a second one must not disturb that."""

    def __init__(self) -> None:
        self._stopping = False

    def __call__(self, *_: object) -> None:
        if not self._stopping:
            self._stopping = True
            sys.exit(128 + signal.SIGTERM)


def _side_by_side(
    console: Console,
    report: Report,
    names: Sequence[str],
    workloads: Sequence[Workload],
    *,
    quick: bool,
    sync_flush: bool,
) -> None:
    """Start all engines, each on a new store; then, workload by workload, one slice of each engine in turns."""
    directory = Path(tempfile.mkdtemp(prefix="sprocket-bench-"))
    try:
        with console.status("start") as status, contextlib.ExitStack() as stack:
            running = {}
            for engine in names:
                if engine in report.missing or (engine == "sink" and sync_flush):
                    continue
                status.update(f"start {engine}")
                try:
                    running[engine] = stack.enter_context(
                        engines.started(engine, directory / engine, sync_flush=sync_flush)
                    )
                except engines.EngineMissingError as missing:
                    report.missing[engine] = str(missing)
                    continue
                if not sync_flush:
                    report.startups.setdefault(engine, []).append(_idle(running[engine]))
                _warm_up(running[engine], report, _START_WARM_UP_S[quick])
            for workload in workloads:
                for number in range(report.rounds):
                    for engine, one in running.items():
                        status.update(f"{workload.name}: {engine}, slice {number + 1} of {report.rounds}")
                        measured = _measure(one, workload, report, quick=quick)
                        report.measurements.setdefault((workload.name, engine), []).append(measured)
    except (LoadError, ClusterError, OSError, wire.WireError) as failure:
        report.failures.append(str(failure))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _idle(running: engines.Running) -> Startup:
    time.sleep(_IDLE_S)
    name_server = process.memory(running.name_server_pid) if running.name_server_pid else None
    return Startup(running.registered_s, process.memory(running.broker_pid), name_server)


def _warm_up(running: engines.Running, report: Report, seconds: float) -> None:
    wire.create_topic(running.address, "bench-warm-up", QUEUES)
    generator.run(running.address, "bench-warm-up", _START_WARM_UP, seconds, report.loop)


def _measure(running: engines.Running, workload: Workload, report: Report, *, quick: bool) -> Measurement:
    """Measures once, and again while other processes disturb it and there is patience left; keeps the quietest."""
    topic = f"bench-{workload.kind.replace(' ', '-')}-{workload.body_bytes}"
    if workload.kind in _STOCKED:
        if topic not in report.stocked.setdefault(running.broker_pid, set()):
            count = _STOCK[quick] * _STOCKED[workload.kind]
            with_values = workload.kind == "sql pull"
            generator.store(running.address, topic, workload.body_bytes, count, report.loop, with_values=with_values)
            report.stocked[running.broker_pid].add(topic)
    else:
        wire.create_topic(running.address, topic, QUEUES)
    generator.run(running.address, topic, workload, _WARM_UP_S, report.loop)
    best = _measure_once(running, topic, workload, report)
    for _ in range(report.patience):
        if best.others <= _QUIET:
            break
        time.sleep(_PATIENCE_PAUSE_S)
        best = min(best, _measure_once(running, topic, workload, report), key=lambda one: one.others)
    return best


def _measure_once(running: engines.Running, topic: str, workload: Workload, report: Report) -> Measurement:
    own, broker, machine = time.process_time(), process.cpu_s(running.broker_pid), process.machine_busy_s()
    result = generator.run(running.address, topic, workload, report.seconds, report.loop)
    used = process.cpu_s(running.broker_pid) - broker
    others = process.machine_busy_s() - machine - used - (time.process_time() - own)
    return Measurement(
        rate=result.rate,
        cpu_us=used * 1e6 / max(1, result.messages),
        p50_us=result.percentile_us(0.5),
        p99_us=result.percentile_us(0.99),
        p999_us=result.percentile_us(0.999),
        memory=process.memory(running.broker_pid),
        others=max(0.0, others / result.elapsed_s / (os.cpu_count() or 1)),
    )


def _write_json(report: Report, path: Path | None) -> None:
    if path is None:
        return
    text = json.dumps(report.as_json(), indent=2)
    if path == Path("-"):
        click.echo(text)
    else:
        path.write_text(text + "\n")


if __name__ == "__main__":
    main()
