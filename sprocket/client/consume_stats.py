"""How fast a consumer works, topic by topic, over the last minute and the last hour.  Pure: it is told the time.

Source: RocketMQ 5.3.3, `ConsumerStatsManager`, `StatsItem`.
"""

from collections import deque

from remoting.bodies.consumption import ConsumeStatus

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_MINUTE_STEP_S = 10.0
_HOUR_STEP_S = 600.0


class RateWindow:
    """Events and a quantity over the last `span_s`, in steps of `step_s`."""

    __slots__ = ("_span_s", "_step_s", "_steps", "_until")

    def __init__(self, span_s: float, step_s: float) -> None:
        self._span_s = span_s
        self._step_s = step_s
        self._steps: deque[list[float]] = deque()  # begun at, count, quantity
        self._until = 0.0

    def add(self, now: float, count: int, quantity: float) -> None:
        if now >= self._until or not self._steps:
            self._until = now + self._step_s
            self._steps.append([now, 0, 0.0])
            self._forget(now)
        step = self._steps[-1]
        step[1] += count
        step[2] += quantity

    def _forget(self, now: float) -> None:
        while self._steps and self._steps[0][0] < now - self._span_s:
            self._steps.popleft()

    def totals(self, now: float) -> tuple[int, float, float]:
        """Count, quantity, and the seconds that they span."""
        self._forget(now)
        if not self._steps:
            return 0, 0.0, 0.0
        count = sum(step[1] for step in self._steps)
        quantity = sum(step[2] for step in self._steps)
        return int(count), quantity, max(now - self._steps[0][0], 1.0)


class _Topic:
    __slots__ = ("consumed", "consumed_hour", "failed", "failed_hour", "pulled", "pulls")

    def __init__(self) -> None:
        self.pulls = RateWindow(_MINUTE_S, _MINUTE_STEP_S)
        self.pulled = RateWindow(_MINUTE_S, _MINUTE_STEP_S)
        self.consumed = RateWindow(_MINUTE_S, _MINUTE_STEP_S)
        self.consumed_hour = RateWindow(_HOUR_S, _HOUR_STEP_S)
        self.failed = RateWindow(_MINUTE_S, _MINUTE_STEP_S)
        self.failed_hour = RateWindow(_HOUR_S, _HOUR_STEP_S)


class ConsumerStats:
    """Rates of one consumer."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}

    def _of(self, topic: str) -> _Topic:
        stats = self._topics.get(topic)
        if stats is None:
            stats = self._topics[topic] = _Topic()
        return stats

    def pulled(self, topic: str, now: float, messages: int, seconds: float) -> None:
        """A pull of `seconds` brought `messages`."""
        stats = self._of(topic)
        stats.pulls.add(now, 1, seconds)
        stats.pulled.add(now, messages, 0.0)

    def consumed(self, topic: str, now: float, seconds: float) -> None:
        """A message was acknowledged `seconds` after the application had got it."""
        stats = self._of(topic)
        stats.consumed.add(now, 1, seconds)
        stats.consumed_hour.add(now, 1, seconds)

    def failed(self, topic: str, now: float) -> None:
        """A message was given back."""
        stats = self._of(topic)
        stats.failed.add(now, 1, 0.0)
        stats.failed_hour.add(now, 1, 0.0)

    def status(self, topic: str, now: float) -> ConsumeStatus:
        """The rates in `topic`."""
        stats = self._of(topic)
        consumed = stats.consumed.totals(now)
        return ConsumeStatus(
            pull_rt=_mean_ms(stats.pulls.totals(now)),
            pull_tps=_per_second(stats.pulled.totals(now)),
            consume_rt=_mean_ms(consumed if consumed[0] else stats.consumed_hour.totals(now)),
            consume_ok_tps=_per_second(consumed),
            consume_failed_tps=_per_second(stats.failed.totals(now)),
            consume_failed_msgs=stats.failed_hour.totals(now)[0],
        )


def _mean_ms(totals: tuple[int, float, float]) -> float:
    return totals[1] * 1000 / totals[0] if totals[0] else 0.0


def _per_second(totals: tuple[int, float, float]) -> float:
    return totals[0] / totals[2] if totals[0] else 0.0
