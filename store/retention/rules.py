"""Rules of retention: when to clean, how full is too full, which segment may be removed.  No disk, no thread.

Source: RocketMQ 5.3.3, `CleanCommitLogService`, `MappedFileQueue.deleteExpiredFileByTime`, `UtilAll.isItTimeToDo`.
One rule differs.  The age of a segment is not the modification time of its file, which a copy or a restored backup
changes.  It is the store timestamp of its last record, approximated by the first record of the next segment.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from sprocket.common.clock import Clock
from store.config.store_config import StoreConfig, delete_hours

_HOUR_MS: Final = 3_600_000
# Lower configured ratios are raised to these, as in RocketMQ.  Its upper bounds, 90 and 85, do not apply here.
_MIN_WARNING: Final = 0.35
_MIN_FORCED: Final = 0.30
_MIN_MAX_USED: Final = 0.10
# Sends are accepted again when the disk is this much below the ratio at which they were refused.
HYSTERESIS: Final = 0.02
# Segments after the oldest to ask for a time, while each begins with a time in the future.
LOOK_AHEAD: Final = 16
# A step of the clock forward is accepted after this time, s.
_STEP_HOLDS_S: Final = 3600.0
_STEP_MS: Final = 60_000


class Reason(StrEnum):
    """Reason to remove segments."""

    MANUAL = "manual"
    TIME = "time"
    SPACE = "space"
    # The disk is nearly full: segments of any age.
    FORCED = "forced"


class DiskUse(NamedTuple):
    """Used share, 0 to 1, of the file systems of the log and of the queues; negative if unknown."""

    log: float
    queues: float

    @property
    def highest(self) -> float:
        """The larger of the two shares."""
        return max(self.log, self.queues)


class Watermarks(NamedTuple):
    """Used shares of the disk, 0 to 1, at which something happens."""

    max_used: float
    forced: float
    warning: float

    @classmethod
    def of(cls, config: StoreConfig) -> "Watermarks":
        """Return the marks of a configuration."""
        return cls(
            max(_MIN_MAX_USED, config.disk_max_used_space_ratio / 100),
            max(_MIN_FORCED, config.disk_space_clean_forcibly_ratio / 100),
            max(_MIN_WARNING, config.disk_space_warning_level_ratio / 100),
        )

    def refuses(self, use: DiskUse, refused: bool) -> bool:
        """Return whether sends are refused, given whether they were refused so far."""
        return use.highest > self.warning - (HYSTERESIS if refused else 0.0)


class Segment(NamedTuple):
    """Oldest segment: its bounds in the log, and the facts that decide whether it may be removed."""

    start: int
    end: int
    is_expired: bool
    # The lowest offset that a lease holds; None without one.
    held_from: int | None
    flushed_offset: int
    wrote_offset: int
    # The lowest offset that compaction, the archive or the list of queues has not taken in; None without one.
    needed_from: int | None = None


def is_delete_hour(config: StoreConfig, now_ms: int) -> bool:
    """Return whether this is an hour of deleteWhen, in the machine's time zone (`UtilAll.isItTimeToDo`)."""
    return datetime.fromtimestamp(now_ms / 1000).hour in delete_hours(config.delete_when)


def reason_to_clean(config: StoreConfig, use: DiskUse, now_ms: int, manual: bool) -> Reason | None:
    """Return why to clean now, the strongest reason first; None without one.  Hours are in the machine's time zone."""
    marks = Watermarks.of(config)
    if use.highest > min(marks.forced, marks.warning) and config.clean_file_forcibly_enable:
        return Reason.FORCED
    if manual:
        return Reason.MANUAL
    if is_delete_hour(config, now_ms):
        return Reason.TIME
    # A disk whose use is unknown counts as full, as in RocketMQ.
    if min(use) < 0 or use.highest > marks.max_used:
        return Reason.SPACE
    return None


def is_removable(segment: Segment, reason: Reason) -> bool:
    """Return whether the oldest segment may be removed.

    Never the last one, and never one that is not on the disk or whose successor is not, or with messages that
    compaction, the archive or the list of queues has not taken in, even if the disk is full: then sends are refused.
    Without its records and its entry in the list, a queue would give its last offsets a second time after a crash.  A
    lease keeps it unless the disk is nearly full.
    """
    if segment.end >= segment.wrote_offset or segment.end >= segment.flushed_offset:
        return False
    if segment.needed_from is not None and segment.needed_from < segment.end:
        return False
    if reason is Reason.FORCED:
        return True
    held = segment.held_from is not None and segment.held_from < segment.end
    return segment.is_expired and not held


def is_expired(now_ms: int, reserved_hours: int, times: Sequence[Callable[[], int]]) -> bool:
    """Return whether the oldest segment's last record is older than `reserved_hours`.

    `times` return the store timestamps, ms, with which that segment and the next ones begin; -1 without one.  The
    second approximates the last record.  If it lies in the future, a clock was ahead, and the next one is asked.  The
    first must be as old, so a clock that was behind for a while expires nothing.
    """
    limit = now_ms - reserved_hours * _HOUR_MS
    own, *later = times
    for time in later[:LOOK_AHEAD]:
        time_ms = time()
        if time_ms <= now_ms:
            return 0 <= time_ms <= limit and (own() <= limit or own() > now_ms)
    return False


class RetentionClock:
    """Clock against which ages are measured.

    A wall clock that jumps forward must not delete young messages.  A step of more than a minute counts only after an
    hour, so that people or NTP can correct it.  A step back counts at once and keeps messages longer.  `last_ms` is a
    time that was accepted before, perhaps on another machine.
    """

    def __init__(self, clock: Clock, last_ms: int | None = None) -> None:
        self._clock = clock
        self._last_s = clock.monotonic()
        self._last_ms = clock.wall_ms() if last_ms is None else last_ms
        self._stepped_s: float | None = None

    def now_ms(self) -> int:
        """Return the accepted time, ms since the epoch."""
        now_s, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        expected_ms = self._last_ms + round((now_s - self._last_s) * 1000)
        if wall_ms <= expected_ms + _STEP_MS:
            self._stepped_s = None
        elif self._stepped_s is None:
            self._stepped_s = now_s
        if self._stepped_s is not None and now_s - self._stepped_s < _STEP_HOLDS_S:
            wall_ms = expected_ms
        else:
            self._stepped_s = None
        self._last_s, self._last_ms = now_s, wall_ms
        return wall_ms
