"""Every mutant can still be planted, and its tests are there.  Whether they see it: `python -m tests.mutants.run`."""

import ast
import re

import pytest

from tests.mutants.definitions import MUTANTS, Mutant
from tests.mutants.run import RESULTS, ROOT, NoMutant, Result, page, planted, verdicts_in

LEAST = 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_its_file(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text()
    changed = planted(source, mutant)
    assert changed != source
    ast.parse(changed)
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


def test_there_are_enough_and_each_has_its_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= LEAST


def test_a_text_that_is_not_there_once_is_an_error() -> None:
    mutant = Mutant("m", "f", "old", "new", "", ())
    for source in ("", "old old"):
        with pytest.raises(NoMutant):
            planted(source, mutant)


def test_the_last_run_left_no_survivor() -> None:
    content = RESULTS.read_text()
    assert "survived" not in content
    assert [mutant.name for mutant in MUTANTS if f"| {mutant.name} |" not in content] == []


def test_the_page_is_what_the_run_writes() -> None:
    """A page edited by hand, or before a definition changed its words, differs."""
    content = RESULTS.read_text()
    date = re.findall(r"^(\d{4}-\d\d-\d\d): ", content, re.MULTILINE)[0]
    assert content == page([], content, date), "run `python -m tests.mutants.run WORDS` for what has changed"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_found_a_mutant_is_one_of_its_tests(mutant: Mutant) -> None:
    [found] = re.findall(r"^`([^`]+)`", verdicts_in(RESULTS.read_text())[mutant.name])
    file, _, rest = found.partition("::")
    if not rest:
        return  # a test that does not end has no name
    assert any(file == test.partition("::")[0] or file.startswith(f"{test}/") for test in mutant.tests), found
    name = rest.split("::")[-1].partition("[")[0]
    assert f"def {name}(" in (ROOT / file).read_text() or "TestCase" in (ROOT / file).read_text(), found


def test_a_run_of_some_keeps_the_verdicts_of_the_others() -> None:
    first, second = MUTANTS[:2]
    before = page(
        [Result(first, "tests/a.py::test_a", 1.0), Result(second, "tests/b.py::test_b", 2.0)], "", "2026-01-01"
    )
    after = page([Result(second, "", 3.0)], before.replace(first.why, "old words"), "2026-01-02")
    assert f"| {first.name} | {first.why} | `tests/a.py::test_a` | 1.0 |" in after
    assert f"| {second.name} | {second.why} | **survived** | 3.0 |" in after
    assert after.splitlines()[2].startswith("2026-01-02: 1 of 2 caught.")
