"""Rates and totals from counters that are sampled periodically, so that they cost nothing per message.

Source of the names and spans: RocketMQ 5.3.3, `BrokerStats`, `BrokerStatsManager`, `StatsItem`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from sprocket.common.clock import Clock
from sprocket.common.figures import Declared, Figure

SAMPLE_PERIOD_S = 10.0
_DAY_MS = 86_400_000

Counters = Callable[[], Mapping[str, int]]


class Span(Enum):
    """Interval of samples, and time that they cover, seconds.  Source: `StatsItem`."""

    MINUTE = (SAMPLE_PERIOD_S, 60.0)
    HOUR = (600.0, 3_600.0)
    DAY = (3_600.0, 86_400.0)


@dataclass(slots=True)
class _Samples:
    """Samples of all counters within one span."""

    span: Span
    taken: deque[tuple[float, Mapping[str, int]]] = field(default_factory=deque)

    def take(self, now: float, counters: Mapping[str, int]) -> None:
        every_s, reach_s = self.span.value
        if self.span is not Span.MINUTE and self.taken and now - self.taken[-1][0] < every_s:
            return
        self.taken.append((now, counters))
        while len(self.taken) > 2 and self.taken[1][0] <= now - reach_s:
            self.taken.popleft()


class RateWindow:
    """Growth of many counters in the last minute, hour and day, from samples."""

    def __init__(self, clock: Clock, counters: Counters) -> None:
        self._clock = clock
        self._counters = counters
        # No sample is taken here, because the counted tables may not be loaded yet.
        self._samples = {span: _Samples(span) for span in Span}

    def sample(self) -> None:
        """Sample the counters; must be called every `SAMPLE_PERIOD_S`."""
        now, counters = self._clock.monotonic(), dict(self._counters())
        for samples in self._samples.values():
            samples.take(now, counters)

    def __contains__(self, name: str) -> bool:
        """Whether the counter exists."""
        taken = self._samples[Span.MINUTE].taken
        return bool(taken) and name in taken[-1][1]

    def growth(self, name: str, span: Span) -> tuple[int, float]:
        """Return the growth of one counter, never below 0, and the number of seconds in which it grew."""
        taken = self._samples[span].taken
        if not taken:
            return 0, 0.0
        (started, first), (ended, last) = taken[0], taken[-1]
        return max(0, last.get(name, 0) - first.get(name, 0)), ended - started

    def per_second(self, name: str) -> float:
        """Return the growth of one counter per second in the last minute."""
        growth, seconds = self.growth(name, Span.MINUTE)
        return round(growth / seconds, 4) if seconds > 0 else 0.0


@dataclass(slots=True)
class _Total:
    """Values of a counter at the last two midnights; at the start of the broker if that was later."""

    read: Callable[[], int]
    yesterday_morning: int = 0
    today_morning: int = 0


@dataclass
class DailyTotals:
    """Messages put and got, today and yesterday, in UTC."""

    clock: Clock
    put: Callable[[], int]
    got: Callable[[], int]
    _day: int = 0
    _totals: dict[str, _Total] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._day = self.clock.wall_ms() // _DAY_MS
        self._totals = {"Put": _Total(self.put), "Get": _Total(self.got)}

    def sample(self) -> None:
        """Store the totals at the start of a new day."""
        day = self.clock.wall_ms() // _DAY_MS
        if day != self._day:
            self._day = day
            for total in self._totals.values():
                total.yesterday_morning = total.today_morning
                total.today_morning = total.read()

    def figures(self) -> list[Declared]:
        """Return ``msgPutTotalTodayNow`` and the related figures."""
        return [*_daily("Put", "put", self._totals["Put"]), *_daily("Get", "read", self._totals["Get"])]


def _daily(name: str, verb: str, total: _Total) -> list[Declared]:
    messages = f"messages {verb} since the start, up to"
    return [
        Figure(
            f"msg{name}TotalYesterdayMorning", f"{messages} yesterday's midnight (UTC)", lambda: total.yesterday_morning
        ),
        Figure(f"msg{name}TotalTodayMorning", f"{messages} last midnight (UTC)", lambda: total.today_morning),
        Figure(f"msg{name}TotalTodayNow", f"{messages} now", total.read),
    ]
