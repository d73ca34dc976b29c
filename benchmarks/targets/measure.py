"""Measures one row of the table, in this process and with its engine.

`python -m benchmarks.targets` runs each measurement in a process of its own, because the engine is chosen when a
process starts.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.client import run as client_run
from benchmarks.client.worker_process import WorkerProcess
from benchmarks.replication import catch_up, sends
from benchmarks.store import open_time, recovery
from benchmarks.system import generator, page_cache, process
from benchmarks.system.measure import side_by_side
from benchmarks.system.report import Report
from benchmarks.system.workload import Workload
from benchmarks.targets.results import Outcome
from benchmarks.targets.target import WORKLOADS, figure_of
from sprocket.engine.choice import ENGINE
from store.config.store_config import StoreConfig
from tests.compat.cluster import LARGE_FILES, ClusterError, SprocketCluster

_BROKERS: Final = ("sprocket", "apache")
_CATCH_UP_LOG_MB: Final = 256
_RECOVERY_LOG_BYTES: Final = 256 << 20
_RECOVERY_QUEUES: Final = 16
_OPEN_QUEUES: Final = 50_000
_CLIENT: Final = ("send_many", "consume")
_SPARK_LOG_BYTES: Final = 1 << 30
_SPARK_QUERIES: Final = {"all rows, 9 columns": "all_rows", "all by topic and tags": "group_by"}


class Figures(NamedTuple):
    """What was measured, and the same of the C floor: the least that a broker can do."""

    measured: dict[str, float]
    floor: dict[str, float]


class NotMeasuredError(Exception):
    """Something that the measurement needs is missing or failed; the text says what."""


@dataclass(frozen=True)
class Effort:
    """How long to measure: `rounds` of each engine in turns, a slice of `seconds` each where slices have a length.

    `full_cache` fills the page cache first (`benchmarks.system.page_cache`).
    """

    rounds: int = 5
    seconds: float = 1.0
    full_cache: bool = False


def measure(name: str, effort: Effort) -> Outcome:
    """Measure one of `target.MEASUREMENTS`; what prevents that is in the outcome."""
    before = os.getloadavg()[0]
    try:
        figures = _MEASURES[name](effort)
    except (NotMeasuredError, ClusterError, ImportError) as missing:
        figures, reason = Figures({}, {}), str(missing)
    else:
        reason = ""
    taken_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    return Outcome(figures.measured, figures.floor, reason, (before, os.getloadavg()[0]), taken_at)


def _brokers(name: str, effort: Effort) -> Figures:
    workloads = WORKLOADS[name]
    first = workloads[0]
    report = Report(process.machine(), generator.loop_name("auto"), effort.seconds, effort.rounds)
    engines = _BROKERS if first.is_exchange else (*_BROKERS, "floor")
    with page_cache.filled(page_cache.free_bytes() if effort.full_cache else 0):
        side_by_side(report, engines, workloads, quick=True, sync_flush=first.sync_flush, say=lambda _: None)
    problems = [*(f"{engine}: {reason}" for engine, reason in report.missing.items()), *report.failures]
    own = _ratios(report, workloads, "sprocket")
    # Without RocketMQ, the floor still gives its share.
    if report.failures or not own:
        raise NotMeasuredError("; ".join(problems) or "no engine to compare with")
    return Figures(own, _ratios(report, workloads, "floor"))


def _ratios(report: Report, workloads: Sequence[Workload], engine: str) -> dict[str, float]:
    return {
        figure_of(workload, ratio): value
        for workload in workloads
        for ratio, value in report.ratios(workload.name, engine).items()
    }


def _start(effort: Effort) -> Figures:
    report = Report(process.machine(), "none", effort.seconds, effort.rounds)
    # As at a user's: the first start keeps the bytecode of its modules, which takes as long to make as all the rest.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(effort.rounds):
        side_by_side(report, ["sprocket"], [], quick=True, sync_flush=False, say=lambda _: None)
    if report.failures:
        raise NotMeasuredError("; ".join(report.failures))
    found = report.startup("sprocket")
    registered_s, resident_mib = found["registered_s"], found["idle_resident_mib"]
    assert registered_s is not None
    assert resident_mib is not None
    return Figures({"registered_s": registered_s, "resident_mib": resident_mib}, {})


def _sync_master(effort: Effort) -> Figures:
    kinds = [kind for kind in sends.KINDS if kind.engine != "apache" and kind.has_slave]
    with tempfile.TemporaryDirectory(prefix="sprocket-bench-") as folder:
        slices = sends.measure(kinds, [64], effort.rounds, effort.seconds, Path(folder)).measured[64]
    floor = {}
    if "floor sync" in slices:
        floor["share"] = sends.rate_ratio(slices["floor sync"], slices["floor async"])
    return Figures({"share": sends.rate_ratio(slices["sprocket sync"], slices["sprocket async"])}, floor)


def _catch_up(record_bytes: int, effort: Effort) -> Figures:
    with tempfile.TemporaryDirectory(prefix="sprocket-bench-") as folder:
        found = catch_up.measure(["sprocket"], record_bytes, _CATCH_UP_LOG_MB, effort.rounds, Path(folder))
    return Figures({"share": catch_up.share_of_copy(found, "sprocket")}, {})


def _recovery(record_bytes: int, effort: Effort) -> Figures:
    with tempfile.TemporaryDirectory(prefix="sprocket-bench-") as folder:
        config = StoreConfig(store_path_root_dir=Path(folder), mapped_file_size_commit_log=recovery.SEGMENT_BYTES)
        recovery.write_log(config, record_bytes, _RECOVERY_LOG_BYTES, _RECOVERY_QUEUES)
        runs = [recovery.recover(config, by_record=False) for _ in range(effort.rounds)]
    clock = median(run.log_bytes / run.clock_seconds for run in runs) / 1e9
    return Figures({"gb_per_s": clock, "gb_per_cpu_s": median(run.log_bytes / run.seconds for run in runs) / 1e9}, {})


def _open(effort: Effort) -> Figures:
    with tempfile.TemporaryDirectory(prefix="sprocket-bench-") as folder:
        config = StoreConfig(
            store_path_root_dir=Path(folder) / "store", mapped_file_size_commit_log=open_time.SEGMENT_BYTES
        )
        open_time.write_queues(config, _OPEN_QUEUES)
        opened = open_time.measure_open(config, "clean", rounds=effort.rounds, is_realtime=False)
    return Figures({"seconds": median(one.clock_s for one in opened), "cpu_s": median(one.cpu_s for one in opened)}, {})


def _spark(effort: Effort) -> Figures:
    # Here, because PySpark may be missing.
    from benchmarks.spark import run
    from benchmarks.spark.data import write_store
    from benchmarks.spark.queries import QUERIES
    from spark.session import close, session

    spark = session("local[2]", "benchmark", {"spark.driver.memory": "2g"})
    figures = {}
    try:
        with tempfile.TemporaryDirectory(prefix="sprocket-bench-") as folder:
            run.check_room(Path(folder), _SPARK_LOG_BYTES)
            data = write_store(Path(folder) / "store", _SPARK_LOG_BYTES)
            parquet = Path(folder) / "parquet"
            run.write_parquet(spark, data, parquet)
            for query in QUERIES:
                if query.name in _SPARK_QUERIES:
                    times = run.rounds_of(spark, query, data, parquet, effort.rounds)
                    figures[_SPARK_QUERIES[query.name]] = median(log / other for log, other in zip(*times, strict=True))
    except run.NoRoom as error:
        raise NotMeasuredError(str(error)) from error
    finally:
        close(spark)
    return Figures(figures, {})


def _client(effort: Effort) -> Figures:
    root = Path(__file__).resolve().parents[2]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sprocket-bench-")))
        cluster = stack.enter_context(SprocketCluster(folder / "cluster", properties=LARGE_FILES))
        client = client_run.started(root, ENGINE.name, cluster.name_server_address, [])
        stack.callback(client.stop)
        client.measured("control", 60_000)
        return Figures({name: _client_rate(client, name, client_run.WORKLOADS[name], effort) for name in _CLIENT}, {})


def _client_rate(client: WorkerProcess, name: str, count: int, effort: Effort) -> float:
    """Return the median rate; the first round warms up."""
    return median([client.measured(name, count)["rate"] for _ in range(effort.rounds + 1)][1:])


_MEASURES: Final[dict[str, Callable[[Effort], Figures]]] = {
    **{name: partial(_brokers, name) for name in WORKLOADS},
    "sync-master": _sync_master,
    "catch-up-200": partial(_catch_up, 200),
    "catch-up-1k": partial(_catch_up, 1024),
    "recovery-200": partial(_recovery, 200),
    "recovery-1k": partial(_recovery, 1024),
    "open": _open,
    "spark": _spark,
    "client": _client,
    "start": _start,
}
