"""Time of the loop for each caller: what is free, and for how long who takes more is not read."""

import pytest

from broker.quota.work_budget import BURST_S, MAX_CALLERS, SHARE, WorkBudget
from tests.clock import ManualClock


def test_little_work_is_free_and_more_is_paid_with_waiting() -> None:
    clock = ManualClock()
    clock.advance(1000)
    budget = WorkBudget(clock)
    assert budget.spend("a", BURST_S) == 0
    assert not budget.is_spent("a")
    assert budget.spend("a", 0.01) == pytest.approx(0.01 / SHARE)
    assert budget.is_spent("a") and not budget.is_spent("b")
    assert budget.spend("b", 0.01) == 0, "each caller has its own share"
    clock.advance(0.01 / SHARE)
    assert not budget.is_spent("a")
    assert budget.spend("a", 0.001) <= 0.001 / SHARE + 1e-9


def test_many_connections_of_one_caller_get_no_more_than_one() -> None:
    budget = WorkBudget(ManualClock())
    waits = [budget.spend("a", 0.01) for _ in range(100)]
    assert waits[-1] >= (100 * 0.01 - BURST_S) / SHARE - 1e-6


def test_callers_are_forgotten_when_there_are_too_many() -> None:
    budget = WorkBudget(ManualClock())
    assert budget.spend("first", 2 * BURST_S) > 0
    for number in range(MAX_CALLERS):
        budget.spend(str(number), 0)
    assert budget.spend("first", 0) == 0
