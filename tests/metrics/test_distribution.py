"""Counts by bucket."""

from hypothesis import given
from hypothesis import strategies as st

from sprocket.metrics.distribution import Distribution, Distributions

_BOUNDARIES = (10, 100, 1000)


@given(st.lists(st.integers(0, 5000), min_size=1))
def test_many_at_once_is_one_after_another(values: list[int]) -> None:
    together, alone = Distribution(_BOUNDARIES), Distribution(_BOUNDARIES)
    together.add_all(values)
    for value in values:
        alone.add(value)
    assert (together.counts, together.count, together.total) == (alone.counts, alone.count, alone.total)
    assert together.counts[0] == sum(value <= 10 for value in values)


def test_growth_since_a_copy() -> None:
    found = Distributions(_BOUNDARIES)
    found.add(("T",), 5, times=3)
    before = found.of(("T",)).copy()
    found.add(("T",), 50)
    grown = found.of(("T",)).minus(before)
    assert (grown.counts, grown.count, grown.total) == ([0, 1, 0, 0], 1, 50)
    assert before.count == 3
