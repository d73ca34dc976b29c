"""Rates of a consumer by topic over the last minute and the last hour.  Pure: callers pass the time.

To count costs a few additions per message.  Samples of the counts are kept; a rate is a difference of two samples.
Source: RocketMQ 5.3.3, `ConsumerStatsManager`, `StatsItem`.
"""

from collections import deque
from dataclasses import dataclass

from sprocket.remoting.bodies.consumption import ConsumeStatus

_MINUTE_S = 60.0
_HOUR_S = 3600.0
_MINUTE_STEP_S = 10.0
_HOUR_STEP_S = 600.0


@dataclass(slots=True)
class TopicCounts:
    """Counts of one topic since the start; callers add to them."""

    pulls: int = 0
    pulls_s: float = 0.0  # total time of the pulls
    pulled: int = 0  # messages
    consumed: int = 0
    consumed_s: float = 0.0  # total time from taking to acknowledging
    failed: int = 0

    def minus(self, other: "TopicCounts") -> "TopicCounts":
        """Return the difference to the earlier `other`."""
        difference = TopicCounts()
        for name in self.__slots__:
            setattr(difference, name, getattr(self, name) - getattr(other, name))
        return difference


class _Samples:
    """Samples of the counts every `step_s`, kept for `span_s`."""

    __slots__ = ("_span_s", "_step_s", "_taken")

    def __init__(self, span_s: float, step_s: float, now: float) -> None:
        self._span_s = span_s
        self._step_s = step_s
        self._taken: deque[tuple[float, TopicCounts]] = deque([(now, TopicCounts())])

    def take(self, now: float, counts: TopicCounts) -> None:
        if now - self._taken[-1][0] >= self._step_s:
            self._taken.append((now, counts.minus(TopicCounts())))
        # The oldest sample is at least as old as the span.
        while len(self._taken) > 1 and now - self._taken[1][0] >= self._span_s:
            self._taken.popleft()

    def since(self, now: float, counts: TopicCounts) -> tuple[TopicCounts, float]:
        """Return the counts within the span, and its seconds."""
        at, then = self._taken[0]
        return counts.minus(then), max(now - at, 1.0)


class _Topic:
    __slots__ = ("counts", "hour", "minute")

    def __init__(self, now: float) -> None:
        self.counts = TopicCounts()
        self.minute = _Samples(_MINUTE_S, _MINUTE_STEP_S, now)
        self.hour = _Samples(_HOUR_S, _HOUR_STEP_S, now)


class ConsumerStats:
    """Rates of one consumer; times are monotonic s."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}

    def of(self, topic: str, now: float) -> TopicCounts:
        """Return the counts of `topic`, to add to."""
        found = self._topics.get(topic)
        return self._of(topic, now).counts if found is None else found.counts

    def pulled(self, topic: str, now: float, messages: int, seconds: float) -> None:
        """Count a pull that took `seconds` and brought `messages`."""
        counts = self.of(topic, now)
        counts.pulls += 1
        counts.pulls_s += seconds
        counts.pulled += messages

    def _of(self, topic: str, now: float) -> _Topic:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _Topic(now)
        return found

    def sample(self, now: float) -> None:
        """Take a sample of the counts; call it every few seconds."""
        for topic in self._topics.values():
            topic.minute.take(now, topic.counts)
            topic.hour.take(now, topic.counts)

    def status(self, topic: str, now: float) -> ConsumeStatus:
        """Return the rates in `topic`."""
        found = self._of(topic, now)
        last, seconds = found.minute.since(now, found.counts)
        hour, _ = found.hour.since(now, found.counts)
        consumed = last if last.consumed else hour
        return ConsumeStatus(
            pull_rt=_mean_ms(last.pulls_s, last.pulls),
            pull_tps=last.pulled / seconds,
            consume_rt=_mean_ms(consumed.consumed_s, consumed.consumed),
            consume_ok_tps=last.consumed / seconds,
            consume_failed_tps=last.failed / seconds,
            consume_failed_msgs=hour.failed,
        )


def _mean_ms(seconds: float, count: int) -> float:
    return seconds * 1000 / count if count else 0.0
