"""Rates and totals, from counters that are read now and then: the message path pays nothing for them.

Source of the names: RocketMQ 5.3.3, `BrokerStats`, `BrokerStatsManager`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sprocket.common.clock import Clock

SAMPLE_PERIOD_S = 10.0
_WINDOW_S = 60.0
_DAY_MS = 86_400_000

Counters = Callable[[], Mapping[str, int]]


class RateWindow:
    """Rates of many counters over the last minute, from samples of all of them."""

    def __init__(self, clock: Clock, counters: Counters) -> None:
        self._clock = clock
        self._counters = counters
        self._samples: deque[tuple[float, dict[str, int]]] = deque()
        self.sample()

    def sample(self) -> None:
        """Read the counters; to be called every `SAMPLE_PERIOD_S`."""
        now = self._clock.monotonic()
        self._samples.append((now, dict(self._counters())))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _WINDOW_S:
            self._samples.popleft()

    def per_second(self, name: str) -> float:
        """Growth of one counter per second between the window's first and last sample; never below 0."""
        (started, first), (ended, last) = self._samples[0], self._samples[-1]
        if ended <= started:
            return 0.0
        growth = last.get(name, 0) - first.get(name, 0)
        return max(0.0, round(growth / (ended - started), 4))


@dataclass(slots=True)
class _Total:
    """A counter at the last two midnights.  The broker's own days begin when it starts."""

    read: Callable[[], int]
    yesterday_morning: int = 0
    today_morning: int = 0


@dataclass
class DailyTotals:
    """Messages put and got, today and yesterday; days are those of UTC."""

    clock: Clock
    put: Callable[[], int]
    got: Callable[[], int]
    _day: int = 0
    _totals: dict[str, _Total] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._day = self.clock.wall_ms() // _DAY_MS
        self._totals = {"Put": _Total(self.put), "Get": _Total(self.got)}

    def sample(self) -> None:
        """Notice that a new day has begun."""
        day = self.clock.wall_ms() // _DAY_MS
        if day != self._day:
            self._day = day
            for total in self._totals.values():
                total.yesterday_morning = total.today_morning
                total.today_morning = total.read()

    def runtime_info(self) -> dict[str, str]:
        """``msgPutTotalTodayNow`` and its relatives."""
        info = {}
        for name, total in self._totals.items():
            info[f"msg{name}TotalYesterdayMorning"] = str(total.yesterday_morning)
            info[f"msg{name}TotalTodayMorning"] = str(total.today_morning)
            info[f"msg{name}TotalTodayNow"] = str(total.read())
        return info
