"""Fire times: cron expressions through changes of the clocks, periods, and jitter."""

from datetime import UTC, datetime

import pytest

from broker.schedules.fire_times import BadRule, Cron, Every, jitter_of
from sprocket.remoting.bodies.schedule import Schedule, ScheduleEntry

BERLIN = "Europe/Berlin"


def ms(text: str) -> int:
    """UTC."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def times(rule: Cron, after: str, count: int) -> list[str]:
    found, at = [], ms(after)
    for _ in range(count):
        following = rule.after(at)
        assert following is not None
        at = following
        found.append(datetime.fromtimestamp(at / 1000, UTC).strftime("%m-%d %H:%M"))
    return found


def test_a_time_of_day_keeps_to_the_clocks_of_its_zone() -> None:
    nightly = Cron("0 5 * * *", BERLIN)
    assert times(nightly, "2026-03-27 12:00", 3) == ["03-28 04:00", "03-29 03:00", "03-30 03:00"]
    assert times(nightly, "2026-10-23 12:00", 3) == ["10-24 03:00", "10-25 04:00", "10-26 04:00"]


def test_an_hour_that_does_not_exist_fires_once_at_the_end_of_the_gap() -> None:
    # In Berlin 02:00 is followed by 03:00, which is 01:00 UTC.
    assert times(Cron("30 2 * * *", BERLIN), "2026-03-28 12:00", 2) == ["03-29 01:00", "03-30 00:30"]
    assert times(Cron("0,15,45 2 * * *", BERLIN), "2026-03-28 12:00", 2) == ["03-29 01:00", "03-30 00:00"]
    assert times(Cron("0 2,3 * * *", BERLIN), "2026-03-28 12:00", 2) == ["03-29 01:00", "03-30 00:00"]


def test_an_hour_that_comes_twice_fires_once() -> None:
    assert times(Cron("30 2 * * *", BERLIN), "2026-10-24 12:00", 2) == ["10-25 00:30", "10-26 01:30"]
    # Also for one that begins between the first and the second time.
    assert times(Cron("30 2 * * *", BERLIN), "2026-10-25 00:45", 1) == ["10-26 01:30"]


def test_an_interval_follows_the_time_that_passes() -> None:
    half_hours = Cron("*/30 * * * *", BERLIN)
    assert times(half_hours, "2026-03-29 00:30", 3) == ["03-29 01:00", "03-29 01:30", "03-29 02:00"]
    assert times(half_hours, "2026-10-25 00:00", 3) == ["10-25 00:30", "10-25 01:00", "10-25 01:30"]


@pytest.mark.parametrize("zone", [BERLIN, "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "0,15,45 1,2,3 * * *", "*/30 * * * *", "0 2 * * SUN"])
def test_the_newest_times_are_the_last_of_all(zone: str, expression: str) -> None:
    rule, start, end = Cron(expression, zone), ms("2026-09-20 00:00"), ms("2026-11-20 00:00")
    every, at = [], rule.after(start)
    while at is not None and at <= end:
        every.append(at)
        at = rule.after(at)
    assert rule.newest(start, end, 100_000) == every
    assert rule.newest(start, end, 3) == every[-3:]
    assert rule.newest(every[-2], end, 3) == every[-1:]


def test_the_newest_times_of_a_long_span_are_found_without_the_others() -> None:
    found = Cron("* * * 1 *", BERLIN).newest(0, ms("2026-10-01 00:00"), 3)
    assert found == [ms("2026-01-31 22:57"), ms("2026-01-31 22:58"), ms("2026-01-31 22:59")]


def test_a_period_counts_from_its_anchor() -> None:
    rule = Every(10_000, 5_000)
    assert [rule.after(time) for time in (0, 5_000, 14_999, 15_000)] == [15_000, 15_000, 15_000, 25_000]
    assert rule.newest(15_000, 45_000, 2) == [35_000, 45_000]
    assert rule.newest(0, 25_000, 9) == [15_000, 25_000]
    assert rule.newest(25_000, 30_000, 9) == []


@pytest.mark.parametrize(
    ("expression", "zone", "why"),
    [
        ("* * * *", "UTC", "five fields"),
        ("* * * * * *", "UTC", "five fields"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("1," * 200 + "1 * * * *", "UTC", "at most 256 characters"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        ("0 5 * * *", "Mars/Olympus", "no time zone"),
        ("0 5 * * *", "../etc/passwd", "no time zone"),
        ("0 5 * * *", "", "no time zone"),
    ],
)
def test_a_wrong_rule_is_refused(expression: str, zone: str, why: str) -> None:
    with pytest.raises(BadRule, match=why):
        Cron(expression, zone)


def test_jitter_is_a_fixed_part_of_its_bound() -> None:
    def entry(name: str, jitter_ms: int) -> ScheduleEntry:
        schedule = Schedule(name=name, topic="T", every_millis=60_000, jitter_millis=jitter_ms)
        return ScheduleEntry(schedule=schedule, id="1", anchor_millis=0, since_millis=0)

    fires = range(0, 60_000_000, 60_000)
    found = [jitter_of(entry("a", 10_000), fire) for fire in fires]
    assert found == [jitter_of(entry("a", 10_000), fire) for fire in fires]
    assert found != [jitter_of(entry("b", 10_000), fire) for fire in fires]
    assert 0 <= min(found) < 1_000 and 9_000 < max(found) <= 10_000
    assert {jitter_of(entry("a", 0), fire) for fire in fires} == {0}
