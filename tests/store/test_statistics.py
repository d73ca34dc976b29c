"""Figures of the store that are counted in classes."""

from types import SimpleNamespace

import pytest

from sprocket.common.figures import values
from store.statistics import StoreStatistics
from tests.clock import ManualClock


def statistics() -> StoreStatistics:
    cold = SimpleNamespace(damaged_records=0, damaged_reads=0)
    reader = SimpleNamespace(found_times=0, missed_times=0, transferred_messages=0, cold=cold)
    return StoreStatistics(ManualClock(), reader)  # type: ignore[arg-type]  # only the counters are read


def latencies(figures: StoreStatistics) -> tuple[float, float]:
    info = values(figures.figures())
    return float(info["putLatency99"]), float(info["putLatency999"])


def test_no_appends_took_no_time() -> None:
    assert latencies(statistics()) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("slow", "seconds", "within", "within_more"),
    [
        (0, 0.0, (0.0, 1.0), (0.0, 1.0)),
        (5, 0.120, (0.0, 1.0), (100.0, 200.0)),
        (50, 0.120, (100.0, 200.0), (100.0, 200.0)),
        (50, 60.0, (10_000.0, 10_000.0), (10_000.0, 10_000.0)),
    ],
)
def test_latency_lies_in_the_class_of_its_share(
    slow: int, seconds: float, within: tuple[float, float], within_more: tuple[float, float]
) -> None:
    figures = statistics()
    figures.put(1000 - slow, 100, 0.0002)
    if slow:
        figures.put(slow, 100, seconds)
    of_99, of_999 = latencies(figures)
    assert within[0] <= of_99 <= within[1]
    assert within_more[0] <= of_999 <= within_more[1]


def test_latency_is_that_of_the_last_minute() -> None:
    figures = statistics()
    figures.put(100, 100, 3.5)
    assert latencies(figures)[0] > 3_000
    for _ in range(61):
        figures.sample()
    figures.put(100, 100, 0.0001)
    assert latencies(figures)[0] <= 1
