"""The table of targets says what was reached, and why a row is empty."""

import re
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.targets.results import Outcome, Results
from benchmarks.targets.table import markdown_table, number, rich_table, rows
from benchmarks.targets.target import MEASUREMENTS, TARGETS, Engine, Target

RATE = Target("send", "times RocketMQ's", "send-64", "rate", 3, 8)
LATENCY = Target("send", "p99", "send-64", "p99", 1 / 2, 1 / 6, is_upper_bound=True)
NATIVE_ONLY = Target("catch-up", "share", "catch-up", "share", None, 0.3)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    found = Results(tmp_path / "targets.json")
    for engine in ("python", "native"):
        found.put(
            engine,
            "send-64",
            Outcome({"rate": 5.0, "p99": 0.4}, {"rate": 7.5}, load=(1.4, 2.0), taken_at="2026-11-27 10:00"),
        )
    return found


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("python", [("5.00", "3.00", "yes", "7.50", "1 to 2"), ("0.40", "0.50", "yes", "", "1 to 2")]),
        (
            "native",
            [
                ("5.00", "8.00", "no: the floor does not reach it", "7.50", "1 to 2"),
                ("0.40", "0.17", "no", "", "1 to 2"),
            ],
        ),
    ],
)
def test_rates_are_at_least_and_latencies_at_most(
    results: Results, engine: Engine, expected: list[tuple[str, ...]]
) -> None:
    assert [tuple(row[2:]) for row in rows(results, engine, [RATE, LATENCY])] == expected


def test_a_floor_that_reaches_the_target_is_no_excuse(results: Results) -> None:
    results.put("native", "send-64", Outcome({"rate": 5.0}, {"rate": 9.0}))
    assert next(rows(results, "native", [RATE])).reached == "no"


@pytest.mark.parametrize(("measured", "reached"), [(3.0, "yes"), (2.99, "no")])
def test_a_figure_equal_to_its_target_reaches_it(results: Results, measured: float, reached: str) -> None:
    results.put("python", "send-64", Outcome({"rate": measured, "p99": 0.5}))
    assert [row.reached for row in rows(results, "python", [RATE, LATENCY])] == [reached, "yes"]


def test_a_row_without_a_target_is_shown_and_not_judged(results: Results) -> None:
    results.put("python", "catch-up", Outcome({"share": 0.1}))
    row = next(rows(results, "python", [NATIVE_ONLY]))
    assert (row.measured, row.wanted, row.reached) == ("0.10", "-", "-")


def test_an_empty_row_says_why(results: Results) -> None:
    assert next(rows(results, "native", [NATIVE_ONLY])).reached == "not measured"
    results.put("native", "catch-up", Outcome(missing="there is no Java"))
    assert next(rows(results, "native", [NATIVE_ONLY])).reached == "there is no Java"


def test_a_figure_that_a_control_lacked_is_not_measured(results: Results) -> None:
    # The floor ran, RocketMQ did not.
    results.put("native", "send-64", Outcome({"rate_over_floor": 0.6}))
    assert next(rows(results, "native", [RATE])).reached == "not measured"


def test_the_markdown_has_the_engines_beside_each_other(results: Results) -> None:
    results.put("native", "catch-up", Outcome({"share": 0.35}, taken_at="2026-11-27 11:00"))
    lines = markdown_table(results, ["native", "python"], [RATE, NATIVE_ONLY]).splitlines()
    assert lines == [
        "| workload | figure | native | target | reached | floor | python | target | reached | floor |",
        "|---|---|--:|--:|---|--:|--:|--:|---|--:|",
        "| send | times RocketMQ's | 5.00 | 8.00 | no: the floor does not reach it | 7.50 | 5.00 | 3.00 | yes | 7.50 |",
        "| catch-up | share | 0.35 | 0.30 | yes |  |  | - | not measured |  |",
        "",
        "Measured from 2026-11-27 10:00 to 2026-11-27 11:00, load averages 0.0 to 2.0.",
    ]


def test_a_table_of_nothing_says_so(tmp_path: Path) -> None:
    text = markdown_table(Results(tmp_path / "targets.json"), ["native"], TARGETS)
    assert text.count("not measured") == len(TARGETS)
    assert text.endswith("Nothing was measured.")


def test_both_tables_have_all_rows(results: Results) -> None:
    assert len(markdown_table(results, ["native", "python"], TARGETS).splitlines()) == 4 + len(TARGETS)
    console = Console(record=True, width=300)
    console.print(rich_table(results, "native", TARGETS))
    text = console.export_text()
    assert all(target.workload in text for target in TARGETS)


def test_no_two_rows_are_one() -> None:
    assert len({(target.workload, target.words) for target in TARGETS}) == len(TARGETS)
    assert len({(target.measurement, target.figure) for target in TARGETS}) == len(TARGETS)


@pytest.mark.parametrize(("value", "text"), [(0.166, "0.17"), (12.34, "12.3"), (150_000.0, "150,000")])
def test_figures_have_the_digits_that_they_deserve(value: float, text: str) -> None:
    assert number(value) == text


def test_every_row_of_a_measurement_has_a_name_without_spaces() -> None:
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in MEASUREMENTS)
