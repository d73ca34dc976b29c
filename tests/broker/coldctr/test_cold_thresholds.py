"""Thresholds of cold reads of each group, and their adaption."""

from dataclasses import replace

from broker.coldctr.cold_thresholds import ColdThresholds
from broker.config.cold_settings import ColdSettings

SETTINGS = ColdSettings(cg_cold_read_threshold=100, global_cold_read_threshold=1_000)
ADAPTS = replace(SETTINGS, cold_ctr_strategy_enable=True, use_pid_cold_ctr_strategy=False)
PID = replace(SETTINGS, cold_ctr_strategy_enable=True)


def test_a_group_may_read_its_threshold_in_each_round() -> None:
    table = ColdThresholds()
    assert not table.is_exceeded("g", SETTINGS)
    table.note("g", 99, 0)
    assert not table.is_exceeded("g", SETTINGS)
    table.note("g", 1, 10)
    assert table.is_exceeded("g", SETTINGS)
    assert not table.is_exceeded("other", SETTINGS)
    table.end_round(SETTINGS, 5_000)
    assert not table.is_exceeded("g", SETTINGS)
    assert (table.reads["g"].cold_bytes, table.reads["g"].created_ms, table.reads["g"].last_read_ms) == (0, 0, 10)
    assert table.total_bytes == 0


def test_what_an_operator_set_counts_before_the_key() -> None:
    table = ColdThresholds()
    table.set_by_operator["g"] = 300
    table.note("g", 299, 0)
    assert not table.is_exceeded("g", SETTINGS)
    table.note("g", 1, 0)
    assert table.is_exceeded("g", SETTINGS)


def test_together_groups_may_read_the_global_threshold() -> None:
    table = ColdThresholds()
    for number in range(11):
        table.note(f"g{number}", 90, 0)
    assert not table.is_exceeded("g0", SETTINGS)
    table.note("g11", 10, 0)
    assert table.is_exceeded("g0", SETTINGS)
    assert not table.is_exceeded("reads nothing cold", SETTINGS)


def test_a_group_that_reads_nothing_cold_for_a_minute_is_forgotten() -> None:
    table = ColdThresholds()
    table.note("g", 100, 1_000)
    table.adapted["g"] = 500
    table.end_round(ADAPTS, 60_999)
    assert "g" in table.reads
    table.end_round(ADAPTS, 61_000)
    assert table.reads == table.adapted == {}


def test_simple_strategy_raises_who_meets_the_threshold_and_lowers_when_all_read_too_much() -> None:
    table = ColdThresholds()
    table.set_by_operator["fixed"] = 50
    for group in ("g", "fixed", "slow"):
        table.note(group, 99 if group == "slow" else 100, 0)
    table.end_round(ADAPTS, 5_000)
    assert table.adapted == {"g": 150}
    assert table.threshold("g", ADAPTS) == 150
    assert table.threshold("g", SETTINGS) == 100, "without the strategy the key counts"
    table.adapted |= {"a": 1_000, "b": 110, "c": 900, "d": 800}
    table.note("g", 1_001, 6_000)
    table.end_round(ADAPTS, 10_000)
    assert table.adapted == {"g": 150, "a": 800, "b": 110, "c": 720, "d": 640}, "the three highest"
    table.end_round(SETTINGS, 15_000)
    assert table.adapted == {}


def test_a_threshold_is_not_lowered_below_the_key() -> None:
    table = ColdThresholds(adapted={"g": 110})
    table.note("g", 1_001, 0)
    table.end_round(ADAPTS, 5_000)
    assert table.adapted == {"g": 100}


def test_pid_strategy_waits_for_ten_rounds_and_follows_what_all_read() -> None:
    table = ColdThresholds()
    for round_number in range(10):
        table.note("g", 100, round_number * 5_000)
        table.end_round(PID, round_number * 5_000)
        assert ("g" in table.adapted) is (round_number == 9)
    assert table.adapted == {"g": 150}
    # Far above 80 % of the global threshold, for long enough: slower again.
    for round_number in range(10, 20):
        table.note("h", 5_000, round_number * 5_000)
        table.note("g", 1, round_number * 5_000)
        table.end_round(PID, round_number * 5_000)
    assert table.adapted["g"] == 100
