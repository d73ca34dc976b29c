"""Measures whole brokers: all engines stand side by side and are measured in turns, in short slices.

The speed of a shared machine drifts by a factor of two within minutes.  Slices of the same second see the same
machine, so the ratio of two engines is taken slice by slice, and the median of the ratios is what holds.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.system import engines, generator, process
from benchmarks.system.report import Measurement, Report, Startup
from benchmarks.system.workload import LoadError, Workload
from tests.compat import wire
from tests.compat.cluster import ClusterError

_IDLE_S: Final = 2.0
# A measurement counts as undisturbed up to this share of the machine used by others.
_QUIET: Final = 0.05
_PATIENCE_PAUSE_S: Final = 1.0
# Once per start, so that no engine is measured before its JIT has seen the path, and once per workload.
_START_WARM_UP: Final = Workload("send", 128, 64)
_JVM_WARM_UP_S: Final = {True: 4.0, False: 8.0}
_START_WARM_UP_S: Final = 1.0
_WARM_UP_S: Final = 0.3
# RocketMQ's timer wheel and transactions become faster for seconds, as Java compiles them.
_EXCHANGE_WARM_UP_S: Final = 3.0
# What a topic holds before it is pulled or popped, and how many times that.
_STOCK: Final = {True: 20_000, False: 60_000}
_STOCKED: Final = {"pull": 1, "sql pull": 1, "pop and ack": 18}


def side_by_side(
    report: Report,
    names: Sequence[str],
    workloads: Sequence[Workload],
    *,
    quick: bool,
    sync_flush: bool,
    say: Callable[[str], None],
) -> None:
    """Start all engines, each on a new store; then, workload by workload, one slice of each engine in turns.

    `say` gets a line on what happens now.  What fails or is missing is in the report.
    """
    directory = Path(tempfile.mkdtemp(prefix="sprocket-bench-"))
    try:
        with contextlib.ExitStack() as stack:
            running = {}
            for name in names:
                engine = engines.label(name)
                if engine in report.missing or (engine == "sink" and sync_flush):
                    continue
                say(f"start {engine}")
                try:
                    running[engine] = stack.enter_context(
                        engines.started(name, directory / engine, sync_flush=sync_flush)
                    )
                except engines.EngineMissingError as missing:
                    report.missing[engine] = str(missing)
                    continue
                if not sync_flush:
                    report.startups.setdefault(engine, []).append(_idle(running[engine]))
                _warm_up(running[engine], report, _JVM_WARM_UP_S[quick] if engine == "apache" else _START_WARM_UP_S)
            for workload in workloads:
                for number in range(report.rounds):
                    # Every other round backward, so that a machine that becomes slower does so for all.
                    for engine, one in [*running.items()][:: -1 if number % 2 else 1]:
                        if not one.access.can_do(workload):
                            continue
                        say(f"{workload.name}: {engine}, slice {number + 1} of {report.rounds}")
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
    generator.create_topic(running.address, "bench-warm-up", running.access)
    generator.run(running.address, "bench-warm-up", _START_WARM_UP, seconds, report.loop, running.access)


def _measure(running: engines.Running, workload: Workload, report: Report, *, quick: bool) -> Measurement:
    """Measures once, and again while other processes disturb it and there is patience left; keeps the quietest."""
    topic = f"bench-{workload.kind.replace(' ', '-')}-{workload.body_bytes}"
    if workload.kind in _STOCKED:
        if topic not in report.stocked.setdefault(running.broker_pid, set()):
            count = _STOCK[quick] * _STOCKED[workload.kind]
            with_values = workload.kind == "sql pull"
            generator.store(
                running.address, topic, workload.body_bytes, count, report.loop,
                with_values=with_values, access=running.access,
            )  # fmt: skip
            report.stocked[running.broker_pid].add(topic)
    else:
        generator.create_topic(running.address, topic, running.access)
    warm_up_s = _WARM_UP_S
    if workload.is_exchange and (running.broker_pid, topic) not in report.warm:
        report.warm.add((running.broker_pid, topic))
        warm_up_s = _EXCHANGE_WARM_UP_S
    generator.run(running.address, topic, workload, warm_up_s, report.loop, running.access)
    best = _measure_once(running, topic, workload, report)
    for _ in range(report.patience):
        if best.others <= _QUIET:
            break
        time.sleep(_PATIENCE_PAUSE_S)
        best = min(best, _measure_once(running, topic, workload, report), key=lambda one: one.others)
    return best


def _measure_once(running: engines.Running, topic: str, workload: Workload, report: Report) -> Measurement:
    broker = running.cpu_s()
    own, machine = time.process_time(), process.machine_busy_s()
    result = generator.run(running.address, topic, workload, report.seconds, report.loop, running.access)
    used = running.cpu_s() - broker
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
