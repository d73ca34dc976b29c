"""The command measures the rows that its file lacks, each in a process with its engine."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.targets import __main__ as command
from benchmarks.targets.measure import _MEASURES, Effort, NotMeasuredError, measure
from benchmarks.targets.results import Outcome
from benchmarks.targets.target import MEASUREMENTS, Engine


class Recorder:
    """Takes the place of the measuring process."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Engine, Effort]] = []

    def __call__(self, name: str, engine: Engine, effort: Effort) -> Outcome:
        self.calls.append((name, engine, effort))
        return Outcome({"seconds": 1.5})


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr(command, "_in_a_process", found)
    return found


def run(path: Path, *arguments: str) -> str:
    done = CliRunner().invoke(command.main, ["--json", str(path), *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_rows_that_the_file_has_are_not_measured_again(tmp_path: Path, recorder: Recorder) -> None:
    path = tmp_path / "targets.json"
    run(path, "--only", "open", "--engine", "both", "--rounds", "2", "--seconds", "0.5")
    effort = Effort(2, 0.5)
    assert recorder.calls == [("open", "python", effort), ("open", "native", effort)]
    text = run(path, "--only", "open", "--engine", "native")
    assert len(recorder.calls) == 2
    assert "1.50" in text
    run(path, "--only", "open", "--engine", "native", "--again")
    assert [call[:2] for call in recorder.calls[2:]] == [("open", "native")]


def test_each_measurement_runs_once_for_all_its_rows(tmp_path: Path, recorder: Recorder) -> None:
    run(tmp_path / "targets.json", "--engine", "native")
    assert [call[0] for call in recorder.calls] == list(MEASUREMENTS)


def test_show_measures_nothing(tmp_path: Path, recorder: Recorder) -> None:
    text = run(tmp_path / "targets.json", "--show", "--markdown", "--engine", "python", "--only", "catch-up")
    assert recorder.calls == []
    assert text.count("not measured") == 2


def test_rows_are_chosen_by_their_measurement_or_workload() -> None:
    assert {target.measurement for target in command.chosen(["catch-up", "50,000 queues"])} == {
        "catch-up-200", "catch-up-1k", "open",
    }  # fmt: skip


def test_an_unknown_row_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    done = CliRunner().invoke(command.main, ["--json", str(tmp_path / "t.json"), "--only", "no such row"])
    assert done.exit_code == 2
    assert "no such row" in done.output
    assert "catch-up-200" in done.output


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    path.write_text("{")
    done = CliRunner().invoke(command.main, ["--json", str(path)])
    assert done.exit_code == 1
    assert str(path) in done.output


def test_every_measurement_has_a_function() -> None:
    assert set(_MEASURES) == set(MEASUREMENTS)


@pytest.mark.parametrize("error", [NotMeasuredError("there is no Java"), ImportError("there is no Java")])
def test_what_is_missing_is_in_the_outcome(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(effort: Effort) -> None:
        raise error

    monkeypatch.setitem(_MEASURES, "open", fail)
    outcome = measure("open", Effort())
    assert (outcome.figures, outcome.missing) == ({}, "there is no Java")


def test_a_measuring_process_has_the_engine_and_its_failure_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    # No such engine: the process fails before it measures.
    outcome = command._in_a_process("open", "odd", Effort())  # type: ignore[arg-type]
    assert outcome.missing.startswith("failed with status 1")
