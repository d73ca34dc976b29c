"""Fire times of a schedule.  Pure: clock and log are elsewhere.  All times are ms since the epoch.

A cron expression is read as Debian's cron reads it.  If its minute and hour do not begin with ``*``, it names times of
day.  One that the clocks skip in spring fires once, at the end of the gap.  One that comes twice in autumn fires once,
the first time.  With ``*`` in front it is an interval, which follows the time that passes, through both changes.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Final, Protocol
from zlib import crc32
from zoneinfo import ZoneInfo

from sprocket.remoting.bodies.schedule import ScheduleEntry

_FIELDS: Final = 5
_MS_PER_S: Final = 1000
# More than what a change of the clocks moves.
_MARGIN_MS: Final = 2 * 3_600_000
_SPARE: Final = 4
_MAX_EXPRESSION_CHARS: Final = 256
# datetime ends with the year 9999.
_LAST_MS: Final = 253_370_000_000_000


class BadRule(ValueError):
    """Text that is no cron expression, or no time zone."""


class Rule(Protocol):
    """An ordered set of fire times."""

    def after(self, time_ms: int) -> int | None:
        """Return the first fire time after `time_ms`; None without one in the next 50 years."""

    def newest(self, after_ms: int, until_ms: int, count: int) -> list[int]:
        """Return the last `count` fire times in (`after_ms`, `until_ms`], in order."""


class Every:
    """Every `period_ms`, counted from `anchor_ms`."""

    def __init__(self, period_ms: int, anchor_ms: int) -> None:
        self._period_ms = period_ms
        self._anchor_ms = anchor_ms

    def after(self, time_ms: int) -> int | None:
        time_ms = max(time_ms, self._anchor_ms)
        return time_ms + self._period_ms - (time_ms - self._anchor_ms) % self._period_ms

    def newest(self, after_ms: int, until_ms: int, count: int) -> list[int]:
        last = (until_ms - self._anchor_ms) // self._period_ms
        first = max(last - count + 1, (max(after_ms, self._anchor_ms) - self._anchor_ms) // self._period_ms + 1)
        return [self._anchor_ms + number * self._period_ms for number in range(first, last + 1)]


class Cron:
    """Times of a cron expression in a time zone.  Raises BadRule."""

    def __init__(self, expression: str, time_zone: str) -> None:
        from cronsim import CronSim, CronSimError  # a broker without cron schedules does without it

        if len(expression) > _MAX_EXPRESSION_CHARS:
            raise BadRule(f"a cron expression has at most {_MAX_EXPRESSION_CHARS} characters")
        if len(expression.split()) != _FIELDS:
            raise BadRule(f"cron {expression[:64]!r} has not five fields: minute, hour, day, month, day of the week")
        try:
            self._zone = ZoneInfo(time_zone)
        except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
            raise BadRule(f"{time_zone[:64]!r} is no time zone; write a name such as Europe/Berlin or UTC") from None
        try:
            CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise BadRule(f"cron {expression[:64]!r}: {error}") from None
        self._found_from = partial(CronSim, expression)

    def _times(self, time_ms: int) -> Iterator[int]:
        """Yield the fire times after `time_ms`, in order."""
        start = datetime.fromtimestamp(time_ms // _MS_PER_S, UTC).astimezone(self._zone)
        last = time_ms
        for found in self._found_from(start):
            fire_ms = round(found.timestamp()) * _MS_PER_S
            # Two times of day in one gap are one fire time.  In the second of two equal hours, times of the first come.
            if fire_ms > last:
                last = fire_ms
                yield fire_ms

    def after(self, time_ms: int) -> int | None:
        return next(self._times(time_ms), None) if 0 <= time_ms < _LAST_MS else None

    def newest(self, after_ms: int, until_ms: int, count: int) -> list[int]:
        """As in `Rule`.  However long the time is, only as many fire times are looked at as are asked for."""
        start = max(after_ms, self._begin(after_ms, until_ms, count + _SPARE) - _MARGIN_MS)
        found: deque[int] = deque(maxlen=count)
        for fire_ms in self._times(start):
            if fire_ms > until_ms:
                break
            found.append(fire_ms)
        return list(found)

    def _begin(self, after_ms: int, until_ms: int, count: int) -> int:
        """Return about when the last `count` fire times in (`after_ms`, `until_ms`] begin.

        Backward, cronsim does not find the same times around each change of the clocks.
        """
        end = datetime.fromtimestamp(until_ms // _MS_PER_S + 1, UTC).astimezone(self._zone)
        fire_ms = after_ms
        for found in islice(self._found_from(end, reverse=True), count):
            fire_ms = round(found.timestamp()) * _MS_PER_S
            if fire_ms <= after_ms:
                break
        else:
            return fire_ms
        return after_ms


def rule_of(entry: ScheduleEntry) -> Rule:
    """Return the rule of a schedule.  Raises BadRule."""
    schedule = entry.schedule
    if schedule.cron:
        return Cron(schedule.cron, schedule.time_zone)
    return Every(schedule.every_millis, entry.anchor_millis)


def jitter_of(entry: ScheduleEntry, fire_ms: int) -> int:
    """Return how long after `fire_ms` the message is sent, ms: the same on every replica and after every restart."""
    schedule = entry.schedule
    return crc32(f"{schedule.name}@{fire_ms}".encode()) % (schedule.jitter_millis + 1)
