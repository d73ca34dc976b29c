"""What a schedule does next: on time, late, after an outage, with a clock that jumps."""

from typing import Any

from broker.schedules.timing import LATE_MS, Timing
from sprocket.remoting.bodies.schedule import CatchUp, Schedule, ScheduleEntry

PERIOD = 100_000


def entry(**changes: Any) -> ScheduleEntry:
    schedule = Schedule(**{"name": "n", "topic": "T", "every_millis": PERIOD} | changes)
    return ScheduleEntry(schedule=schedule, id="1", anchor_millis=0, since_millis=0)


def fires(timing: Timing, now_ms: int) -> list[int]:
    """The numbers of the periods that fire at `now_ms`."""
    found = []
    while timing.is_due(now_ms):
        assert timing.next_ms is not None
        found.append(timing.next_ms // PERIOD)
        timing.fired()
    return found


def test_each_time_fires_once_when_it_is_due() -> None:
    timing = Timing(entry(), 0)
    assert fires(timing, PERIOD - 1) == []
    assert fires(timing, PERIOD) == [1]
    assert fires(timing, PERIOD + 1) == []
    assert fires(timing, 2 * PERIOD + LATE_MS) == [2]


def test_after_an_outage_the_policy_says_what_fires() -> None:
    now = 10 * PERIOD + LATE_MS + 1
    assert fires(Timing(entry(catch_up=CatchUp.NONE), 0), now) == []
    assert fires(Timing(entry(catch_up=CatchUp.LAST), 0), now) == [10]
    assert fires(Timing(entry(catch_up=CatchUp.ALL), 0), now) == list(range(1, 11))
    assert fires(Timing(entry(catch_up=CatchUp.ALL, max_catch_up=3), 0), now) == [8, 9, 10]
    for policy in CatchUp:
        timing = Timing(entry(catch_up=policy), 0)
        fires(timing, now)
        assert fires(timing, 11 * PERIOD) == [11]


def test_a_time_that_is_a_little_late_fires_with_each_policy() -> None:
    for policy in (CatchUp.NONE, CatchUp.LAST):
        assert fires(Timing(entry(catch_up=policy), 0), 10 * PERIOD + LATE_MS) == [10]


def test_what_is_made_up_for_is_not_dropped_while_the_topic_refuses_it() -> None:
    timing, now = Timing(entry(catch_up=CatchUp.ALL, max_catch_up=3), 0), 10 * PERIOD + LATE_MS + 1
    assert timing.is_due(now)
    assert fires(timing, now + 2 * LATE_MS)[:3] == [8, 9, 10]


def test_a_clock_that_is_set_back_repeats_nothing() -> None:
    timing = Timing(entry(), 0)
    assert fires(timing, 5 * PERIOD) == [5]
    assert fires(timing, 2 * PERIOD) == []
    assert fires(timing, 6 * PERIOD) == [6]


def test_with_jitter_the_order_of_the_fire_times_stays() -> None:
    timing = Timing(entry(jitter_millis=PERIOD), 0)
    found: list[int] = []
    for now in range(0, 100 * PERIOD, 1000):
        new = fires(timing, now)
        assert all(number * PERIOD <= now for number in new)
        found += new
    assert found == list(range(1, len(found) + 1)) and len(found) >= 98


def test_with_jitter_a_late_time_is_measured_from_when_it_was_due() -> None:
    timing = Timing(entry(jitter_millis=PERIOD, catch_up=CatchUp.NONE), 0)
    now = 10 * PERIOD
    for number in fires(timing, now):
        assert Timing(entry(jitter_millis=PERIOD), (number - 1) * PERIOD).due_ms > now - LATE_MS  # type: ignore[operator]
