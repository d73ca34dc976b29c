"""What an export reads."""

import pytest

from sprocket.common.errors import InvariantError
from sprocket.metrics.declared import Kind, Metric, gauge
from sprocket.metrics.distribution import Distribution
from sprocket.metrics.registry import MetricRegistry


async def test_labels_of_the_server_come_first_and_empty_ones_are_left_out() -> None:
    metric = Metric("m", Kind.GAUGE, "says", lambda: [(("T", ""), 3)], ("topic", "is_retry"))
    (reading,) = [one async for one in MetricRegistry([metric], lambda: {"cluster": "C"}).read()]
    assert reading.points == [({"cluster": "C", "topic": "T"}, 3)]


async def test_no_more_series_than_the_limit() -> None:
    metric = Metric("m", Kind.COUNTER, "says", lambda: [((str(n),), n) for n in range(10)], ("n",))
    (reading,) = [one async for one in MetricRegistry([metric], dict, limit=lambda: 4).read()]
    assert [value for _, value in reading.points] == [0, 1, 2, 3]


async def test_what_was_read_does_not_change() -> None:
    sizes = Distribution((1,))
    registry = MetricRegistry([Metric("m", Kind.HISTOGRAM, "says", lambda: [((), sizes)])], dict)
    (reading,) = [one async for one in registry.read()]
    sizes.add(1)
    (_, value) = reading.points[0]
    assert isinstance(value, Distribution)
    assert value.count == 0


async def test_prepares_run_before_the_values_are_read() -> None:
    found: list[int] = []

    async def prepare() -> None:
        found.append(1)

    registry = MetricRegistry([gauge("m", "says", lambda: len(found))], dict, prepares=[prepare])
    assert [one.points[0][1] for _ in range(2) async for one in registry.read()] == [1, 2]


def test_two_metrics_of_one_name() -> None:
    with pytest.raises(InvariantError, match="twice"):
        MetricRegistry([gauge("m", "says", lambda: 1)] * 2, dict)
