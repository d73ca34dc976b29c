"""The rows of the table of targets, and when a row is reached."""

from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.system.workload import EXCHANGES, Workload

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


# The workloads of whole brokers that have targets, by the name of their measurement.
WORKLOADS: Final = {
    "send-64": Workload("send", 128, 64),
    "send-256": Workload("send", 128, 256),
    "send-1": Workload("send", 128, 1),
    "send-1k": Workload("send", 1024, 64),
    "send-8x64": Workload("send", 128, 512, 8),
    "pull": Workload("pull", 128, 8),
    "sync-flush": Workload("send", 128, 64, sync_flush=True),
    **{kind.replace(" ", "-"): Workload(kind, 128, 64) for kind in EXCHANGES},
}
_RATE: Final = "rate_over_apache"
_TIMES: Final = "rate, times RocketMQ's"


def _rate(measurement: str, python: float, native: float) -> Target:
    return Target(WORKLOADS[measurement].name, _TIMES, measurement, _RATE, python, native)


_COPY: Final = "rate, share of a plain copy's"
_PARQUET: Final = "time, times Parquet's"
TARGETS: Final = (
    _rate("send-64", 3, 8),
    Target(WORKLOADS["send-64"].name, "rate, share of the floor's", "send-64", "rate_over_floor", 0.25, 0.55),
    Target(
        WORKLOADS["send-64"].name, "p99, share of RocketMQ's", "send-64", "p99_over_apache", 1 / 2, 1 / 6,
        is_upper_bound=True,
    ),
    _rate("send-256", 4, 10),
    Target(WORKLOADS["send-256"].name, "rate, share of the floor's", "send-256", "rate_over_floor", 0.3, 0.6),
    _rate("send-1", 2, 3),
    _rate("send-1k", 2.5, 6),
    _rate("send-8x64", 3, 8),
    _rate("pull", 1.5, 3),
    _rate("sync-flush", 3, 5),
    Target("send 128 B, 64 outstanding, SYNC_MASTER", "rate, share of ASYNC's", "sync-master", "share", 0.7, 0.8),
    *(_rate(kind.replace(" ", "-"), 1.5, 3) for kind in EXCHANGES),
    Target("slave catch-up, 200 B", _COPY, "catch-up-200", "share", None, 0.3),
    Target("slave catch-up, 1 KiB", _COPY, "catch-up-1k", "share", None, 0.6),
    Target("recovery with ConsumeQueues rebuilt, 200 B", "GB/s", "recovery-200", "gb_per_s", None, 1.0),
    Target("recovery with ConsumeQueues rebuilt, 1 KiB", "GB/s", "recovery-1k", "gb_per_s", None, 1.5),
    Target("opening 50,000 queues", "s", "open", "seconds", 3, 2, is_upper_bound=True),
    Target("Spark, all rows", _PARQUET, "spark", "all_rows", 1.1, 0.8, is_upper_bound=True),
    Target("Spark, group by topic and tags", _PARQUET, "spark", "group_by", 2.5, 1.2, is_upper_bound=True),
    Target("our client, send_many", "messages/s", "client", "send_many", 60_000, 150_000),
    Target("our client, consume and ack", "messages/s", "client", "consume", 120_000, 300_000),
    Target("start of a broker", "s until registered", "start", "registered_s", 0.5, 0.5, is_upper_bound=True),
    Target("idle broker", "MiB resident", "start", "resident_mib", 60, 60, is_upper_bound=True),
)  # fmt: skip
MEASUREMENTS: Final = tuple(dict.fromkeys(target.measurement for target in TARGETS))
