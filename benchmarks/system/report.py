"""The measured numbers: medians over rounds, ratios to the controls, as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.system.engines import VARIANTS
from benchmarks.system.process import Memory

_MIB = 1 << 20
_CONTROLS = ("apache", "naive", "other", "sprocket", "floor")


@dataclass(frozen=True)
class Measurement:
    """One workload on one engine in one round.

    `others` is the share of the machine's processors that neither broker nor generator used, 0 to 1.
    """

    rate: float
    cpu_us: float
    p50_us: float
    p99_us: float
    p999_us: float
    memory: Memory
    others: float = 0.0


@dataclass(frozen=True)
class Startup:
    """From launch to registered with the name server, and memory when idle after it."""

    registered_s: float | None
    broker: Memory
    name_server: Memory | None


@dataclass
class Report:
    """All of one run."""

    machine: dict[str, str]
    loop: str
    seconds: float
    rounds: int
    patience: int = 0
    startups: dict[str, list[Startup]] = field(default_factory=dict)
    measurements: dict[tuple[str, str], list[Measurement]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    stocked: dict[int, set[str]] = field(default_factory=dict)
    warm: set[tuple[int, str]] = field(default_factory=set)

    def medians(self, workload: str, engine: str) -> dict[str, float]:
        """Medians by name; empty when this was not measured."""
        rounds = self.measurements.get((workload, engine), [])
        if not rounds:
            return {}
        return {
            "rate": median(one.rate for one in rounds),
            "cpu_us": median(one.cpu_us for one in rounds),
            "p50_us": median(one.p50_us for one in rounds),
            "p99_us": median(one.p99_us for one in rounds),
            "p999_us": median(one.p999_us for one in rounds),
            "resident_mib": median(one.memory.resident_bytes for one in rounds) / _MIB,
            "anonymous_mib": median(one.memory.anonymous_bytes for one in rounds) / _MIB,
            "others": median(one.others for one in rounds),
        }

    def startup(self, engine: str) -> dict[str, float | None]:
        """Medians of start and idle memory."""
        rounds = self.startups[engine]
        registered = [one.registered_s for one in rounds if one.registered_s is not None]
        servers = [one.name_server.resident_bytes for one in rounds if one.name_server is not None]
        return {
            "registered_s": median(registered) if registered else None,
            "idle_resident_mib": median(one.broker.resident_bytes for one in rounds) / _MIB,
            "idle_anonymous_mib": median(one.broker.anonymous_bytes for one in rounds) / _MIB,
            "name_server_resident_mib": median(servers) / _MIB if servers else None,
        }

    def workloads(self) -> list[str]:
        """Names in the order in which they were measured."""
        return list(dict.fromkeys(workload for workload, _ in self.measurements))

    def engines(self, workload: str) -> list[str]:
        """Who was measured with this workload."""
        return [engine for name, engine in self.measurements if name == workload]

    def controls(self) -> list[str]:
        """What was measured for comparison; Sprocket is that for itself with other settings."""
        found = {engine for _, engine in self.measurements}
        has_variants = bool(found & VARIANTS.keys())
        return [control for control in _CONTROLS if control in found and (control != "sprocket" or has_variants)]

    def as_json(self) -> dict[str, Any]:
        """Everything, the single rounds' rates included."""
        return {
            "machine": self.machine,
            "generator_loop": self.loop,
            "seconds": self.seconds,
            "rounds": self.rounds,
            "startup": {engine: self.startup(engine) for engine in self.startups},
            "workloads": {
                workload: {
                    engine: {
                        **self.medians(workload, engine),
                        "rates": [one.rate for one in self.measurements[workload, engine]],
                        **self.ratios(workload, engine),
                    }
                    for engine in self.engines(workload)
                }
                for workload in self.workloads()
            },
            "missing": self.missing,
            "failures": self.failures,
        }

    def ratios(self, workload: str, engine: str) -> dict[str, float]:
        """This engine over each control, slice by slice: medians of the ratios of rates, p99, and CPU per message."""
        own = self.measurements.get((workload, engine), [])
        ratios = {}
        for control in self.controls():
            pairs = list(zip(own, self.measurements.get((workload, control), []), strict=False))
            if control != engine and pairs:
                ratios[f"rate_over_{control}"] = median(ours.rate / theirs.rate for ours, theirs in pairs)
                ratios[f"p99_over_{control}"] = median(ours.p99_us / max(theirs.p99_us, 1e-9) for ours, theirs in pairs)
                ratios[f"cpu_over_{control}"] = median(ours.cpu_us / max(theirs.cpu_us, 1e-9) for ours, theirs in pairs)
        return ratios


def print_report(console: Console, report: Report) -> None:
    """The tables a person reads."""
    if report.measurements:
        console.print(_workload_table(report))
    if report.startups:
        console.print(_startup_table(report))
    for engine, reason in report.missing.items():
        console.print(f"[yellow]{engine} was not measured: {reason}")
    for failure in report.failures:
        console.print(f"[red]failed: {failure}", markup=True, highlight=False)


def _workload_table(report: Report) -> Table:
    title = (
        f"{report.machine['processors']} x {report.machine['processor']}, generator loop in {report.loop}, "
        f"medians of {report.rounds} slices of {report.seconds:g} s"
    )
    table = Table(title=title)
    table.add_column("workload")
    table.add_column("engine")
    controls = report.controls()
    rates = ["share of the floor" if control == "floor" else f"x {control}" for control in controls]
    cpus = [f"CPU x {control}" for control in controls]
    for heading in ("messages/s", *rates, "p50 us", "p99 us", "p999 us", "CPU us/msg", *cpus, "RSS MiB", "others %"):
        table.add_column(heading, justify="right")
    for workload in report.workloads():
        for engine in report.engines(workload):
            table.add_row(*_row(report, workload, engine))
        table.add_section()
    return table


def _row(report: Report, workload: str, engine: str) -> Sequence[str]:
    numbers = report.medians(workload, engine)
    ratios = report.ratios(workload, engine)

    def cells(figure: str) -> list[str]:
        keys = [f"{figure}_over_{control}" for control in report.controls()]
        return [f"{ratios[key]:.2f}" if key in ratios else "" for key in keys]

    return (
        workload if engine == report.engines(workload)[0] else "",
        engine,
        f"{numbers['rate']:,.0f}",
        *cells("rate"),
        *(f"{numbers[key]:,.0f}" for key in ("p50_us", "p99_us", "p999_us")),
        f"{numbers['cpu_us']:.2f}",
        *cells("cpu"),
        f"{numbers['resident_mib']:,.0f}",
        f"{100 * numbers['others']:.0f}",
    )


def _startup_table(report: Report) -> Table:
    table = Table(title="start and idle memory")
    for heading in ("engine", "registered after s", "broker RSS MiB", "broker anon MiB", "name server RSS MiB"):
        table.add_column(heading, justify="left" if heading == "engine" else "right")
    for engine in report.startups:
        numbers = report.startup(engine)
        cells = ("registered_s", "idle_resident_mib", "idle_anonymous_mib", "name_server_resident_mib")
        table.add_row(engine, *("" if numbers[key] is None else f"{numbers[key]:,.2f}" for key in cells))
    return table
