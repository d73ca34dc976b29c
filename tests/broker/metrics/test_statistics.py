import pytest

from broker.metrics.statistics import DailyTotals, RateWindow, Span
from broker.monitoring.broker_figures import readable
from sprocket.common.figures import values
from tests.clock import ManualClock


def test_rate_is_that_of_the_last_minute() -> None:
    clock, counters = ManualClock(), {"T": 0}
    window = RateWindow(clock, lambda: counters)
    assert window.per_second("T") == 0.0
    for _ in range(12):
        clock.advance(10)
        counters["T"] += 50
        window.sample()
    assert window.per_second("T") == pytest.approx(5.0)
    for _ in range(7):
        clock.advance(10)
        window.sample()
    assert window.per_second("T") == 0.0
    assert window.per_second("Unknown") == 0.0


def test_counter_that_shrinks_has_no_rate() -> None:
    clock, counters = ManualClock(), {"T": 500}
    window = RateWindow(clock, lambda: counters)
    clock.advance(10)
    counters.clear()
    window.sample()
    assert window.per_second("T") == 0.0


def test_what_was_there_at_the_start_has_not_grown() -> None:
    clock, counters = ManualClock(), dict[str, int]()
    window = RateWindow(clock, lambda: counters)
    counters["T"] = 1_000_000
    for _ in range(2):
        clock.advance(10)
        window.sample()
    assert window.per_second("T") == 0.0


def test_growth_of_minute_hour_and_day() -> None:
    clock, counters = ManualClock(), {"T": 0}
    window = RateWindow(clock, lambda: counters)
    for _ in range(6 * 60 * 30):
        clock.advance(10)
        counters["T"] += 1
        window.sample()
    assert window.growth("T", Span.MINUTE) == (6, 60.0)
    assert window.growth("T", Span.HOUR) == (360, 3_600.0)
    assert window.growth("T", Span.DAY) == (8_640, 86_400.0)
    assert ("T" in window, "U" in window) == (True, False)
    kept = {id(counters) for samples in window._samples.values() for _, counters in samples.taken}
    assert len(kept) <= 7 + 7 + 25


def test_totals_turn_at_midnight() -> None:
    clock, put = ManualClock(), [0]
    totals = DailyTotals(clock, lambda: put[0], lambda: 7)
    put[0] = 10
    totals.sample()
    for put[0] in (20, 30):
        clock.advance(86_400)
        totals.sample()
    info = values(totals.figures())
    assert info["msgPutTotalYesterdayMorning"] == "20"
    assert info["msgPutTotalTodayMorning"] == "30"
    assert info["msgPutTotalTodayNow"] == "30"
    assert info["msgGetTotalTodayNow"] == "7"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_readable_sizes(size: int, text: str) -> None:
    assert readable(size) == text
