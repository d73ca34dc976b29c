"""The targets of the engine: what each workload should reach beside RocketMQ and the C floor, in one run.

    python -m benchmarks.system.run --targets

Source of the numbers: docs/benchmarks.md, "Targets".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from benchmarks.system.report import Report
from benchmarks.system.workload import Workload

ENGINES: Final = ("sprocket", "apache", "floor")
_OWN: Final = "sprocket"


@dataclass(frozen=True)
class Target:
    """What a ratio of `Report.ratios` should be, with pure Python and with the compiled engine.

    A rate should be at least the number, a latency at most.
    """

    workload: Workload
    ratio: str
    python: float
    native: float

    @property
    def is_upper_bound(self) -> bool:
        return self.ratio.startswith("p99")


_SEND_64: Final = Workload("send", 128, 64)
_SEND_256: Final = Workload("send", 128, 256)
TARGETS: Final = (
    Target(_SEND_64, "rate_over_apache", 3, 8),
    Target(_SEND_64, "rate_over_floor", 0.25, 0.55),
    Target(_SEND_64, "p99_over_apache", 1 / 2, 1 / 6),
    Target(_SEND_256, "rate_over_apache", 4, 10),
    Target(_SEND_256, "rate_over_floor", 0.3, 0.6),
    Target(Workload("send", 128, 1), "rate_over_apache", 2, 3),
    Target(Workload("send", 1024, 64), "rate_over_apache", 2.5, 6),
    Target(Workload("send", 128, 512, 8), "rate_over_apache", 3, 8),
    Target(Workload("pull", 128, 8), "rate_over_apache", 1.5, 3),
    Target(Workload("send", 128, 64, sync_flush=True), "rate_over_apache", 3, 5),
)
WORKLOADS: Final = tuple(dict.fromkeys(target.workload for target in TARGETS))
_WORDS: Final = {
    "rate_over_apache": "rate, times RocketMQ's",
    "rate_over_floor": "rate, share of the floor's",
    "p99_over_apache": "p99, share of RocketMQ's",
}


def target_rows(report: Report, engine: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield workload, ratio, target, measured and reached for the `engine` (python or native) that the broker used."""
    for target in TARGETS:
        wanted = target.native if engine == "native" else target.python
        measured = report.ratios(target.workload.name, _OWN).get(target.ratio)
        if measured is None:
            cells = ("not measured", "")
        else:
            reached = measured <= wanted if target.is_upper_bound else measured >= wanted
            cells = (f"{measured:.2f}", "yes" if reached else "no")
        yield target.workload.name, _WORDS[target.ratio], f"{wanted:.2f}", *cells


def target_table(report: Report, engine: str) -> Table:
    """Return the table that a person reads."""
    table = Table(title=f"targets of the {engine} engine: medians of ratios within this run")
    for heading in ("workload", "ratio", "target", "measured", "reached"):
        table.add_column(heading, justify="right" if heading in ("target", "measured") else "left")
    for row in target_rows(report, engine):
        table.add_row(*row)
    return table
