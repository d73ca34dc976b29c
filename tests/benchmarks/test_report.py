"""Medians, ratios and what becomes JSON."""

import json
import os

from rich.console import Console

from benchmarks.system.process import Memory, cpu_s, memory
from benchmarks.system.report import Measurement, Report, Startup, print_report

MIB = 1 << 20


def measurement(rate: float) -> Measurement:
    return Measurement(rate, 2.0, 10.0, 20.0, 30.0, Memory(50 * MIB, 40 * MIB))


def sample() -> Report:
    report = Report({"processors": "2", "processor": "test"}, "python", 1.0, 3)
    report.measurements["w", "sprocket"] = [measurement(rate) for rate in (90.0, 600.0, 100.0)]
    report.measurements["w", "apache"] = [measurement(rate) for rate in (10.0, 20.0, 90.0)]
    report.startups["sprocket"] = [Startup(0.5, Memory(30 * MIB, 20 * MIB), Memory(25 * MIB, 20 * MIB))]
    report.startups["naive"] = [Startup(None, Memory(30 * MIB, 20 * MIB), None)]
    report.missing["sink"] = "no such thing"
    return report


def test_a_median_is_not_moved_by_one_odd_round() -> None:
    assert sample().medians("w", "sprocket")["rate"] == 100.0


def test_ratios_are_taken_slice_by_slice_and_name_their_control() -> None:
    # 90 / 10, 600 / 20, 100 / 90: what both saw in the same slice.
    assert sample().ratios("w", "sprocket") == {"rate_over_apache": 9.0, "p99_over_apache": 1.0, "cpu_over_apache": 1.0}
    assert sample().ratios("w", "apache") == {}


def test_json_holds_rounds_medians_and_what_was_missing() -> None:
    decoded = json.loads(json.dumps(sample().as_json()))
    assert decoded["workloads"]["w"]["sprocket"]["rates"] == [90.0, 600.0, 100.0]
    assert decoded["startup"]["naive"]["registered_s"] is None
    assert decoded["missing"] == {"sink": "no such thing"}


def test_the_table_shows_every_engine() -> None:
    console = Console(record=True, width=200)
    print_report(console, sample())
    text = console.export_text()
    assert "sprocket" in text
    assert "9.00" in text
    assert "others %" in text
    assert "sink was not measured: no such thing" in text


def test_process_numbers_are_of_this_process() -> None:
    before = cpu_s(os.getpid())
    sum(range(3_000_000))
    assert cpu_s(os.getpid()) >= before
    now = memory(os.getpid())
    assert 0 < now.anonymous_bytes <= now.resident_bytes
