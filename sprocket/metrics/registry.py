"""All metrics of one server, and their values at the moment of an export."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from itertools import islice
from typing import Final

from sprocket.common.invariant import invariant
from sprocket.common.next_turn import in_turns
from sprocket.metrics.declared import Metric, Reading, Value
from sprocket.metrics.distribution import Distribution

logger = logging.getLogger(__name__)

DEFAULT_LIMIT: Final = 50_000
# Series that one step reads.
_STEP_SERIES: Final = 256


class MetricRegistry:
    """Metrics that the parts of a server declare.

    `labels` returns the labels of the server, `prepares` are awaited before an export, to compute what takes long.
    No metric exports more than `limit` series; more are dropped, with a line in the log the first time.
    """

    def __init__(
        self,
        metrics: Iterable[Metric],
        labels: Callable[[], Mapping[str, str]],
        *,
        prepares: Iterable[Callable[[], Awaitable[None]]] = (),
        limit: Callable[[], int] = lambda: DEFAULT_LIMIT,
    ) -> None:
        self.metrics = tuple(metrics)
        self._labels = labels
        self._prepares = tuple(prepares)
        self._limit = limit
        self._cut: set[str] = set()
        twice = [name for name, count in Counter(metric.name for metric in self.metrics).items() if count > 1]
        invariant(not twice, f"metrics are declared twice: {twice}")

    async def read(self) -> AsyncIterator[Reading]:
        """Yield the values of each metric now; so many objects should not exist at the same time."""
        for prepare in self._prepares:
            await prepare()
        labels = dict(self._labels())
        for metric in self.metrics:
            yield await in_turns(self._reading(metric, labels))

    def _reading(self, metric: Metric, server: dict[str, str]) -> Generator[None, None, Reading]:
        points: list[tuple[Mapping[str, str], Value]] = []
        limit = self._limit()
        # Most values are those of tables, which may change while they are read.
        read = metric.read() if metric.is_still else list(islice(metric.read(), limit + 1))
        for number, (values, value) in enumerate(read, 1):
            if not number % _STEP_SERIES:
                yield
            if len(points) >= limit:
                if metric.name not in self._cut:
                    self._cut.add(metric.name)
                    logger.warning("event=metric_series_dropped metric=%s limit=%d", metric.name, limit)
                break
            still = value.copy() if isinstance(value, Distribution) else value
            own = {name: text for name, text in zip(metric.labels, values, strict=True) if text}
            points.append((server | own, still))
        return Reading(metric.name, metric.kind, metric.says, metric.unit, points)
