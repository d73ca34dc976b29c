"""A month of a broker with an archive, killed each day; `tests.sim.archive.soak` plays many."""

import pytest

from tests.sim.archive.month import play_month


@pytest.mark.parametrize("seed", [1, 3])
def test_a_month_of_kills_loses_and_doubles_no_message(seed: int) -> None:
    month = play_month(seed)
    assert month.problems == []
    # It was a month with kills, and with reads from the archive.
    assert month.faults["kill"] > 5
    assert month.dropped_files > 5
    assert month.archived_reads > 100
