"""Rates over the last minute."""

import pytest

from sprocket.client.consume_stats import ConsumerStats, RateWindow


def test_events_leave_the_window() -> None:
    window = RateWindow(60, 10)
    for second in range(0, 60, 5):
        window.add(float(second), 2, 1.0)
    assert window.totals(60.0) == (24, 12.0, 60.0)
    count, _, _ = window.totals(90.0)
    assert 10 <= count <= 14
    assert window.totals(200.0) == (0, 0.0, 0.0)


def test_status_of_a_topic() -> None:
    stats = ConsumerStats()
    stats.pulled("T", 100.0, 20, 0.5)
    for second in range(20):
        stats.consumed("T", 100.0 + second, 0.25)
    stats.failed("T", 119.0)
    status = stats.status("T", 120.0)
    assert status.consume_ok_tps == 1.0
    assert status.consume_rt == pytest.approx(250)
    assert (status.pull_rt, status.pull_tps) == (500, 1.0)
    assert (status.consume_failed_tps, status.consume_failed_msgs) == (1.0, 1)
    # After a quiet minute the time per message is that of the hour.
    later = stats.status("T", 300.0)
    assert (later.consume_ok_tps, later.consume_rt, later.consume_failed_msgs) == (0.0, pytest.approx(250), 1)
    assert stats.status("U", 300.0).consume_ok_tps == 0.0
