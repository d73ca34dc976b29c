"""Every mutant can still be planted, and its tests are there.  Whether they see it: `python -m tests.mutants.run`."""

import ast

import pytest

from tests.mutants.definitions import MUTANTS, Mutant
from tests.mutants.run import RESULTS, ROOT, NoMutant, planted

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
