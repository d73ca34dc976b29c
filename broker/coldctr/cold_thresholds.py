"""Cold bytes that each group has read and may read, and the adaption of its threshold.  Pure: times are arguments.

Source: RocketMQ 5.3.3, `ColdDataCgCtrService`, `SimpleColdCtrStrategy`, `PIDAdaptiveColdCtrStrategy`.
RocketMQ finds a group's adapted threshold by a pattern that matches every character; here it is found by the group.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from broker.config.cold_settings import ColdSettings

ADAPTIVE: Final = "||adaptive"
# A group without a cold read for this long is removed.
_IDLE_MS: Final = 60_000
_MAX_DECELERATED: Final = 3
_RAISED, _LOWERED = 1.5, 0.8
# PID controller: number of rounds that it looks back, goal as a share of the global threshold, three weights.
_ROUNDS, _GOAL = 10, 0.8
_KP, _KI, _KD = 0.5, 0.3, 0.2


@dataclass(slots=True)
class ColdReads:
    """Bytes that one group has read in this round; times in ms."""

    cold_bytes: int
    last_read_ms: int
    created_ms: int


@dataclass(slots=True)
class ColdThresholds:
    """Table of groups.  `set_by_operator` has thresholds in bytes; `end_round` ends a round."""

    reads: dict[str, ColdReads] = field(default_factory=dict)
    set_by_operator: dict[str, int] = field(default_factory=dict)
    adapted: dict[str, int] = field(default_factory=dict)
    total_bytes: int = 0
    # Bytes by which each of the last rounds stayed below the goal.
    _below: deque[int] = field(default_factory=lambda: deque(maxlen=_ROUNDS))

    def threshold(self, group: str, settings: ColdSettings) -> int:
        """Return the cold bytes that the group may read in a round."""
        found = self.set_by_operator.get(group)
        if found is None and settings.cold_ctr_strategy_enable:
            found = self.adapted.get(group)
        return settings.cg_cold_read_threshold if found is None else found

    def is_exceeded(self, group: str, settings: ColdSettings) -> bool:
        """Whether the group has reached its threshold in this round."""
        reads = self.reads.get(group)
        if reads is None:
            return False
        if reads.cold_bytes >= self.threshold(group, settings):
            return True
        return self.total_bytes >= settings.global_cold_read_threshold

    def forget_reads(self) -> None:
        """Forget what groups have read."""
        self.reads.clear()
        self.total_bytes = 0

    def note(self, group: str, cold_bytes: int, now_ms: int) -> None:
        """Add cold bytes that the group has read."""
        self.total_bytes += cold_bytes
        reads = self.reads.get(group)
        if reads is None:
            self.reads[group] = ColdReads(cold_bytes, now_ms, now_ms)
        else:
            reads.cold_bytes += cold_bytes
            reads.last_read_ms = now_ms

    def end_round(self, settings: ColdSettings, now_ms: int) -> None:
        """Remove idle groups, adapt thresholds, and reset the counters."""
        adapts = settings.cold_ctr_strategy_enable
        if adapts:
            self._below.append(int(settings.global_cold_read_threshold * _GOAL) - self.total_bytes)
        else:
            self.adapted.clear()
            self._below.clear()
        is_over = self.total_bytes > settings.global_cold_read_threshold
        for group, reads in list(self.reads.items()):
            if now_ms >= reads.last_read_ms + _IDLE_MS:
                del self.reads[group]
                self.adapted.pop(group, None)
            elif adapts and not is_over and reads.cold_bytes >= self.threshold(group, settings):
                self._promote(group, settings)
            reads.cold_bytes = 0
        if adapts:
            self._decelerate(settings, is_over=is_over)
        self.total_bytes = 0

    def _promote(self, group: str, settings: ColdSettings) -> None:
        """Raise the threshold of a group that has reached it."""
        if group not in self.set_by_operator and (not settings.use_pid_cold_ctr_strategy or self._tendency() > 0):
            self.adapted[group] = int(self.threshold(group, settings) * _RAISED)

    def _decelerate(self, settings: ColdSettings, *, is_over: bool) -> None:
        """Lower the highest adapted thresholds, if all groups together read too much."""
        if not (self._tendency() < 0 if settings.use_pid_cold_ctr_strategy else is_over):
            return
        highest = sorted(self.adapted, key=lambda group: -self.adapted[group])
        for group in [group for group in highest if group not in self.set_by_operator][:_MAX_DECELERATED]:
            self.adapted[group] = max(settings.cg_cold_read_threshold, int(self.adapted[group] * _LOWERED))

    def _tendency(self) -> float:
        """Return the controller's output: above 0 groups may read more, below 0 less; 0 in the first rounds."""
        below = self._below
        if len(below) < _ROUNDS:
            return 0.0
        return _KP * below[-1] + _KI * sum(below) + _KD * (below[-1] - below[-2])
