"""Decisions of retention, without disk or thread."""

from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from sprocket.common.errors import ConfigError
from store.config.store_config import StoreConfig, delete_hours
from store.retention.rules import (
    LOOK_AHEAD,
    DiskUse,
    Reason,
    RetentionClock,
    Segment,
    Watermarks,
    is_expired,
    is_removable,
    reason_to_clean,
)
from tests.clock import ManualClock

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
HOUR = datetime.fromtimestamp(NOW_MS / 1000).hour
CONFIG = StoreConfig(delete_when=f"{(HOUR + 12) % 24:02}")


@pytest.mark.parametrize(
    ("used", "manual", "reason"),
    [
        (0.5, False, None),
        (0.75, False, None),
        (0.76, False, Reason.SPACE),
        (0.86, False, Reason.FORCED),
        (0.86, True, Reason.FORCED),
        (0.5, True, Reason.MANUAL),
        (-1.0, False, Reason.SPACE),
    ],
)
@pytest.mark.parametrize("queues_are_full", [False, True])
def test_why_to_clean(used: float, manual: bool, reason: Reason | None, queues_are_full: bool) -> None:
    use = DiskUse(0.1, used) if queues_are_full else DiskUse(used, 0.1)
    assert reason_to_clean(CONFIG, use, NOW_MS, manual) is reason


def test_the_hour_of_the_day() -> None:
    config = StoreConfig(delete_when=f"{(HOUR + 1) % 24:02};{HOUR:02}")
    use = DiskUse(0.5, 0.5)
    assert reason_to_clean(config, use, NOW_MS, False) is Reason.TIME
    assert reason_to_clean(config, use, NOW_MS + HOUR_MS, False) is Reason.TIME
    assert reason_to_clean(config, use, NOW_MS + 2 * HOUR_MS, False) is None


def test_forced_cleaning_can_be_switched_off() -> None:
    config = replace(CONFIG, clean_file_forcibly_enable=False)
    assert reason_to_clean(config, DiskUse(0.99, 0.1), NOW_MS, False) is Reason.SPACE


@pytest.mark.parametrize("text", ["", "24", "-1", "4h", "04;", "04,05", "٣"])
def test_hours_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="deleteWhen"):
        delete_hours(text)
    with pytest.raises(ConfigError, match="deleteWhen"):
        StoreConfig(delete_when=text).check()


def test_low_ratios_are_raised_as_in_rocketmq_and_high_ones_hold() -> None:
    low = StoreConfig(
        disk_max_used_space_ratio=0, disk_space_clean_forcibly_ratio=0, disk_space_warning_level_ratio=0
    )  # fmt: skip
    assert Watermarks.of(low) == (0.10, 0.30, 0.35)
    assert not Watermarks.of(StoreConfig(disk_space_warning_level_ratio=100)).refuses(DiskUse(1.0, 1.0), False)


def test_sends_are_taken_again_only_when_there_is_some_room() -> None:
    marks = Watermarks.of(CONFIG)
    assert not marks.refuses(DiskUse(0.90, 0.0), False)
    assert marks.refuses(DiskUse(0.901, 0.0), False)
    assert marks.refuses(DiskUse(0.0, 0.885), True)
    assert not marks.refuses(DiskUse(0.88, 0.88), True)


OLD = Segment(0, 100, True, None, 1000, 1000)


@pytest.mark.parametrize("reason", list(Reason))
def test_an_expired_segment_goes_for_any_reason(reason: Reason) -> None:
    assert is_removable(OLD, reason)


@pytest.mark.parametrize(
    ("changes", "ordinary", "forced"),
    [
        ({"is_expired": False}, False, True),
        ({"held_from": 99}, False, True),
        ({"held_from": 100}, True, True),
        ({"wrote_offset": 100}, False, False),  # the last segment, or the one before an empty one
        ({"flushed_offset": 100}, False, False),
        ({"flushed_offset": 101}, True, True),
    ],
)
def test_what_holds_a_segment(changes: dict[str, Any], ordinary: bool, forced: bool) -> None:
    segment = OLD._replace(**changes)
    assert [is_removable(segment, reason) for reason in (Reason.TIME, Reason.SPACE, Reason.MANUAL)] == [ordinary] * 3
    assert is_removable(segment, Reason.FORCED) is forced


LIMIT_MS = NOW_MS - 72 * HOUR_MS
OLD_MS, YOUNG_MS, FUTURE_MS = LIMIT_MS - HOUR_MS, LIMIT_MS + HOUR_MS, NOW_MS + 10_000 * HOUR_MS


@pytest.mark.parametrize(
    ("times", "expired"),
    [
        ([OLD_MS, LIMIT_MS], True),
        ([OLD_MS, LIMIT_MS + 1], False),
        ([OLD_MS, -1], False),  # nothing after it
        ([OLD_MS], False),
        ([OLD_MS, YOUNG_MS, OLD_MS], False),
        # A clock that was ahead for a while keeps nothing for ever, and expires nothing.
        ([OLD_MS, FUTURE_MS, FUTURE_MS, OLD_MS], True),
        ([FUTURE_MS, OLD_MS], True),
        ([OLD_MS, FUTURE_MS, YOUNG_MS], False),
        ([OLD_MS, FUTURE_MS, -1], False),
        # A clock that was slow for a while expires nothing.
        ([YOUNG_MS, OLD_MS], False),
        ([YOUNG_MS, 0], False),
    ],
)
def test_age_is_that_of_the_record_behind(times: list[int], expired: bool) -> None:
    assert is_expired(NOW_MS, 72, [partial(int, time) for time in times]) is expired


def test_few_segments_are_looked_at() -> None:
    asked = []

    def time() -> int:
        asked.append(1)
        return FUTURE_MS

    assert not is_expired(NOW_MS, 72, [time] * 100)
    assert len(asked) == LOOK_AHEAD


def test_a_step_of_the_clock_forward_counts_only_after_an_hour() -> None:
    clock = ManualClock()
    start = clock.wall_ms()
    retention = RetentionClock(clock)
    clock.step_wall(365 * 24 * HOUR_MS)
    for minutes in range(60):
        assert retention.now_ms() == start + minutes * 60_000
        clock.advance(60)
    assert retention.now_ms() == clock.wall_ms()


def test_a_step_that_is_put_right_leaves_nothing_behind() -> None:
    clock = ManualClock()
    retention = RetentionClock(clock)
    clock.step_wall(2 * HOUR_MS)
    retention.now_ms()
    clock.advance(1800)
    clock.step_wall(-2 * HOUR_MS)
    assert retention.now_ms() == clock.wall_ms()
    clock.step_wall(2 * HOUR_MS)
    clock.advance(1800)
    assert retention.now_ms() == clock.wall_ms() - 2 * HOUR_MS


def test_a_step_back_counts_at_once() -> None:
    clock = ManualClock()
    retention = RetentionClock(clock)
    clock.step_wall(-5 * HOUR_MS)
    assert retention.now_ms() == clock.wall_ms()
