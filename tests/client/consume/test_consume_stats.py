"""Rates over the last minute and the last hour."""

import pytest

from sprocket.client.consume.consume_stats import ConsumerStats


def work(stats: ConsumerStats, begin: int, end: int) -> None:
    """One message a second, each taking 250 ms; sampled every 5 s."""
    for second in range(begin, end):
        counts = stats.of("T", float(second))
        counts.consumed += 1
        counts.consumed_s += 0.25
        if second % 5 == 0:
            stats.sample(float(second))


def test_rates_begin_with_the_first_message() -> None:
    stats = ConsumerStats()
    counts = stats.of("T", 100.0)
    counts.pulls, counts.pulls_s, counts.pulled = 4, 2.0, 20
    work(stats, 100, 120)
    counts.failed += 1
    status = stats.status("T", 120.0)
    assert status.consume_ok_tps == 1.0
    assert status.consume_rt == pytest.approx(250)
    assert (status.pull_rt, status.pull_tps) == (500, 1.0)
    assert (status.consume_failed_tps, status.consume_failed_msgs) == (0.05, 1)


def test_old_messages_leave_the_minute_and_stay_in_the_hour() -> None:
    stats = ConsumerStats()
    work(stats, 100, 400)
    assert stats.status("T", 400.0).consume_ok_tps == pytest.approx(1.0, rel=0.05)
    for second in range(400, 600, 5):
        stats.sample(float(second))
    quiet = stats.status("T", 600.0)
    # After a quiet minute the time per message is that of the hour.
    assert (quiet.consume_ok_tps, quiet.consume_rt) == (0.0, pytest.approx(250))
    for second in range(600, 6000, 5):
        stats.sample(float(second))
    assert stats.status("T", 6000.0).consume_rt == 0.0


def test_topic_without_messages() -> None:
    assert ConsumerStats().status("U", 300.0).consume_ok_tps == 0.0
