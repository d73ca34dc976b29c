"""The table of targets says what a run reached."""

import pytest

from benchmarks.system.process import Memory
from benchmarks.system.report import Measurement, Report
from benchmarks.system.targets import TARGETS, target_rows


def measurement(rate: float, p99_us: float) -> Measurement:
    return Measurement(rate, 2.0, 10.0, p99_us, 3000.0, Memory(1, 1))


def report() -> Report:
    found = Report({"processors": "2", "processor": "test"}, "c", 1.0, 1)
    name = TARGETS[0].workload.name
    found.measurements[name, "sprocket"] = [measurement(500.0, 40.0)]
    found.measurements[name, "apache"] = [measurement(100.0, 100.0)]
    found.measurements[name, "floor"] = [measurement(1000.0, 10.0)]
    return found


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("python", [("3.00", "5.00", "yes"), ("0.25", "0.50", "yes"), ("0.50", "0.40", "yes")]),
        ("native", [("8.00", "5.00", "no"), ("0.55", "0.50", "no"), ("0.17", "0.40", "no")]),
    ],
)
def test_rates_are_at_least_and_latencies_at_most(engine: str, expected: list[tuple[str, str, str]]) -> None:
    assert [row[2:] for row in target_rows(report(), engine)][:3] == expected


def test_what_was_not_measured_is_said() -> None:
    rows = list(target_rows(report(), "native"))
    assert len(rows) == len(TARGETS)
    assert {row[3:] for row in rows[3:]} == {("not measured", "")}
