"""What was measured survives a stop of the run."""

from pathlib import Path

import pytest

from benchmarks.targets.results import BadResultsError, Outcome, Results


def test_outcomes_are_there_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "targets.json"
    outcome = Outcome({"rate": 2.5}, {"rate": 9.0}, "", (1.0, 2.5), "2026-11-27 11:00")
    Results(path).put("native", "pull", outcome)
    again = Results(path)
    assert again.get("native", "pull") == outcome
    assert again.get("python", "pull") is None
    assert again.get("native", "open") is None


def test_a_row_that_failed_is_measured_again(tmp_path: Path) -> None:
    results = Results(tmp_path / "targets.json")
    assert not results.has_figures("native", "pull")
    results.put("native", "pull", Outcome(missing="there is no Java"))
    assert not results.has_figures("native", "pull")
    results.put("native", "pull", Outcome({"rate": 2.5}))
    assert results.has_figures("native", "pull")


def test_one_engine_keeps_the_rows_of_the_other(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    Results(path).put("native", "pull", Outcome({"rate": 2.5}))
    Results(path).put("python", "pull", Outcome({"rate": 1.5}))
    assert [Results(path).get(engine, "pull") for engine in ("native", "python")] == [
        Outcome({"rate": 2.5}),
        Outcome({"rate": 1.5}),
    ]


@pytest.mark.parametrize("content", ["", "[]", '{"native": 3}', '{"native": {"pull": {"odd": 1}}}', "{"])
def test_a_file_of_something_else_is_refused_and_left(tmp_path: Path, content: str) -> None:
    path = tmp_path / "targets.json"
    path.write_text(content)
    with pytest.raises(BadResultsError, match=r"targets\.json"):
        Results(path)
    assert path.read_text() == content
