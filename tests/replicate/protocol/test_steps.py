"""Order of the steps of a failover."""

from collections.abc import Callable

import pytest

from replicate.protocol.steps import (
    Facts,
    Pair,
    Phase,
    StepRefused,
    begin_return,
    copies_messages,
    copies_offsets,
    fail_over,
    finish_return,
    newest,
)

_PEACE = Pair("a", "a")
_COMPLETE = Facts(True, 0, 0)


def test_a_whole_circle_ends_as_it_began() -> None:
    over = fail_over(_PEACE, "b", _COMPLETE, source_is_lost=False, at_ms=1)
    returning = begin_return(over, _COMPLETE, at_ms=2)
    home = finish_return(returning, _COMPLETE, at_ms=3)
    assert [pair.active for pair in (over, returning, home)] == ["b", "b", "a"]
    assert [pair.epoch for pair in (over, returning, home)] == [1, 2, 3]
    assert home.phase is Phase.STEADY


def test_after_a_failover_the_old_side_is_not_copied_until_it_returns() -> None:
    over = fail_over(_PEACE, "b", Facts(False, None), source_is_lost=True, at_ms=1)
    assert [copies_messages(over, side) for side in "ab"] == [False, True]
    returning = begin_return(over, _COMPLETE, at_ms=2)
    assert [copies_messages(returning, side) for side in "ab"] == [True, True]
    assert [copies_offsets(returning, side) for side in "ab"] == [False, True]
    home = finish_return(returning, _COMPLETE, at_ms=3)
    for peace in (None, home):
        assert [copies_offsets(peace, side) for side in "ab"] == [True, True]


def test_the_higher_epoch_counts() -> None:
    over = fail_over(_PEACE, "b", _COMPLETE, source_is_lost=False, at_ms=1)
    assert newest(_PEACE, None, over) is over
    assert newest(None, None) is None


@pytest.mark.parametrize(
    ("facts", "lost", "advice"),
    [
        (Facts(True, 3), False, "wait until"),
        (Facts(True, None), False, "--source-lost"),
        (Facts(True, 0, source_moves=True), False, "stop its producers"),
        (Facts(True, 0), True, "not lost"),
    ],
)
def test_a_failover_says_what_is_missing(facts: Facts, lost: bool, advice: str) -> None:
    with pytest.raises(StepRefused, match=advice):
        fail_over(_PEACE, "b", facts, source_is_lost=lost, at_ms=1)


def test_steps_out_of_order_are_refused_with_the_right_one() -> None:
    over = fail_over(_PEACE, "b", _COMPLETE, source_is_lost=False, at_ms=1)
    returning = begin_return(over, _COMPLETE, at_ms=2)
    steps: tuple[Callable[[], Pair], ...] = (
        lambda: fail_over(_PEACE, "a", _COMPLETE, source_is_lost=False, at_ms=1),
        lambda: fail_over(over, "a", _COMPLETE, source_is_lost=False, at_ms=1),
        lambda: begin_return(_PEACE, _COMPLETE, at_ms=1),
        lambda: begin_return(over, Facts(False, None), at_ms=1),
        lambda: begin_return(returning, _COMPLETE, at_ms=1),
        lambda: finish_return(_PEACE, _COMPLETE, at_ms=1),
        lambda: finish_return(over, _COMPLETE, at_ms=1),
        lambda: finish_return(returning, Facts(True, 0, 2), at_ms=1),
        lambda: finish_return(returning, Facts(True, 0, None), at_ms=1),
        lambda: finish_return(returning, Facts(True, 1, 0), at_ms=1),
    )
    for step in steps:
        with pytest.raises(StepRefused, match=r"; "):
            step()
