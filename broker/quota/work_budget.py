"""Time of the event loop that one caller may have for requests whose work no other quota bounds.

Such are heartbeats, and reads with an SQL filter.  Who exceeds the share is read more slowly, so
many connections of one caller get no more than one.
"""

from collections import OrderedDict
from typing import Final

from sprocket.common.clock import Clock

# Part of the loop's time for each caller, and what one that was idle may have at once.
SHARE: Final = 0.1
BURST_S: Final = 0.02
MAX_CALLERS: Final = 4096


class WorkBudget:
    """Time that callers have had.  Lives in the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._now_s = clock.monotonic
        # Caller -> monotonic time at which all that it has had is paid for; the last ones of `MAX_CALLERS`.
        self._paid_at_s: OrderedDict[str, float] = OrderedDict()

    def is_spent(self, caller: str) -> bool:
        """Return whether a caller has had more than its share."""
        return self._paid_at_s.get(caller, 0.0) > self._now_s()

    def spend(self, caller: str, seconds: float) -> float:
        """Charge a caller with work that took some seconds; return for how long it is not to be read, s."""
        now_s = self._now_s()
        paid_at_s = max(self._paid_at_s.pop(caller, 0.0), now_s - BURST_S / SHARE) + seconds / SHARE
        if len(self._paid_at_s) >= MAX_CALLERS:
            self._paid_at_s.popitem(last=False)
        self._paid_at_s[caller] = paid_at_s
        return max(0.0, paid_at_s - now_s)
