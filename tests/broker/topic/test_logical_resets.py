"""A reset in a logical queue waits for one pull of its group, and not for good."""

from broker.topic.logical_resets import LogicalPlace, LogicalResets
from tests.clock import ManualClock

PLACE = LogicalPlace("g", "Orders", 0)


def test_a_reset_is_taken_once() -> None:
    resets = LogicalResets(ManualClock())
    resets.put(PLACE, 7)
    resets.put(PLACE, 5)
    assert resets.get(LogicalPlace("other", "Orders", 0)) is None
    assert (resets.get(PLACE), resets.take(PLACE), resets.take(PLACE)) == (5, 5, None)


def test_a_reset_that_nobody_takes_ends() -> None:
    clock = ManualClock()
    resets = LogicalResets(clock)
    resets.put(PLACE, 0)
    clock.advance(599)
    assert resets.get(PLACE) == 0
    clock.advance(2)
    assert (resets.get(PLACE), resets.take(PLACE)) == (None, None)
