"""The rows of the table of targets, and when a row is reached."""

from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.system.workload import EXCHANGES, SHAPES, Workload

Engine = Literal["python", "native"]
ENGINES: Final[tuple[Engine, ...]] = ("python", "native")


@dataclass(frozen=True)
class Target:
    """One figure of one workload, and what it should be with each engine; None is no target.

    `measurement` measures it, and calls it `figure`.  A figure should be at least the number, with `is_upper_bound` at
    most.
    """

    workload: str
    words: str
    measurement: str
    figure: str
    python: float | None
    native: float | None
    is_upper_bound: bool = False

    def wanted(self, engine: Engine) -> float | None:
        """Return the target of an engine."""
        return self.python if engine == "python" else self.native

    def is_reached(self, engine: Engine, measured: float) -> bool | None:
        """Return whether `measured` reaches the target; None if there is no target."""
        wanted = self.wanted(engine)
        if wanted is None:
            return None
        return measured <= wanted if self.is_upper_bound else measured >= wanted


_SENDS_OF_1K: Final = Workload("send", 1024, 64)
_SENDS_OF_8: Final = Workload("send", 128, 512, 8)
_PULLS: Final = Workload("pull", 128, 8)
_SYNC_FLUSH: Final = Workload("send", 128, 64, sync_flush=True)
_KINDS: Final = {kind.replace(" ", "-"): Workload(kind, 128, 64) for kind in EXCHANGES}
# The workloads of whole brokers that have targets, by the name of their measurement: one run with all of them.
WORKLOADS: Final[dict[str, tuple[Workload, ...]]] = {
    "shapes": SHAPES,
    "send-1k": (_SENDS_OF_1K,),
    "send-8x64": (_SENDS_OF_8,),
    "pull": (_PULLS,),
    "sync-flush": (_SYNC_FLUSH,),
    **{name: (workload,) for name, workload in _KINDS.items()},
}
_TIMES: Final = "rate, times RocketMQ's"


def figure_of(workload: Workload, ratio: str) -> str:
    """Return the name of a figure: a ratio of `Report.ratios` of one workload."""
    return f"{workload.name}: {ratio}"


def _rate(measurement: str, workload: Workload, native: float, python: float | None = None) -> Target:
    return Target(workload.name, _TIMES, measurement, figure_of(workload, "rate_over_apache"), python, native)


_SHAPE: Final = {(shape.kind, shape.connections, shape.slots): shape for shape in SHAPES}


def _share(kind: str, connections: int, each: int, native: float) -> Target:
    """Return the target of a shape of applications: its share of the C floor's rate."""
    shape = _SHAPE[kind, connections, each]
    figure = figure_of(shape, "rate_over_floor")
    return Target(shape.name, "rate, share of the floor's", "shapes", figure, None, native)


_SENDS: Final = _SHAPE["send", 1, 64]
_COPY: Final = "rate, share of a plain copy's"
_PARQUET: Final = "time, times Parquet's"
TARGETS: Final = (
    _share("send", 1, 256, 0.75),
    _share("send", 1, 64, 0.6),
    _share("send", 16, 4, 0.58),
    _share("send", 16, 1, 0.55),
    _share("send", 64, 1, 0.55),
    _share("send", 1, 1, 0.5),
    _share("pull", 16, 1, 0.65),
    _rate("shapes", _SHAPE["send", 1, 256], 10),
    _rate("shapes", _SENDS, 8, 1),
    Target(
        _SENDS.name, "p99, share of RocketMQ's", "shapes", figure_of(_SENDS, "p99_over_apache"), None, 1 / 6,
        is_upper_bound=True,
    ),
    _rate("shapes", _SHAPE["send", 1, 1], 3),
    _rate("send-1k", _SENDS_OF_1K, 6),
    _rate("send-8x64", _SENDS_OF_8, 8),
    _rate("pull", _PULLS, 3),
    _rate("sync-flush", _SYNC_FLUSH, 5),
    Target("send 128 B, 1x64, SYNC_MASTER", "rate, share of ASYNC's", "sync-master", "share", None, 0.8),
    *(_rate(name, workload, 3) for name, workload in _KINDS.items()),
    Target("slave catch-up, 200 B", _COPY, "catch-up-200", "share", None, 0.3),
    Target("slave catch-up, 1 KiB", _COPY, "catch-up-1k", "share", None, 0.6),
    Target("recovery with ConsumeQueues rebuilt, 200 B", "GB/s", "recovery-200", "gb_per_s", None, 1.0),
    Target("recovery with ConsumeQueues rebuilt, 1 KiB", "GB/s", "recovery-1k", "gb_per_s", None, 1.5),
    Target("opening 50,000 queues", "s", "open", "seconds", None, 2, is_upper_bound=True),
    Target("Spark, all rows", _PARQUET, "spark", "all_rows", None, 0.8, is_upper_bound=True),
    Target("Spark, group by topic and tags", _PARQUET, "spark", "group_by", None, 1.2, is_upper_bound=True),
    Target("our client, send_many", "messages/s", "client", "send_many", None, 150_000),
    Target("our client, consume and ack", "messages/s", "client", "consume", None, 300_000),
    Target("start of a broker", "s until registered", "start", "registered_s", 0.5, 0.5, is_upper_bound=True),
    Target("idle broker", "MiB resident", "start", "resident_mib", 60, 60, is_upper_bound=True),
)  # fmt: skip
MEASUREMENTS: Final = tuple(dict.fromkeys(target.measurement for target in TARGETS))
