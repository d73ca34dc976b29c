"""Pace of refusals: who is over a limit has to wait, so that a flood of refused requests costs others little."""

from typing import Final

# What each refused request adds to the wait of its sender.  So some 1,000 in a second are refused to one.
REFUSAL_S: Final = 0.001
# No refusal lets its sender wait for longer.
MAX_WAIT_S: Final = 1.0


class RefusalPace:
    """Pace of one sender, or of all who use one resource together.  Times are monotonic."""

    __slots__ = ("until_s",)

    def __init__(self) -> None:
        self.until_s = 0.0  # when all refusals are paid for

    def refused_s(self, now_s: float) -> float:
        """Note one more refusal at `now_s`; return for how long its sender is not to be served, s."""
        self.until_s = max(now_s, self.until_s) + REFUSAL_S
        return min(self.until_s - now_s, MAX_WAIT_S)
