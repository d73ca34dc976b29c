"""Limit of calls in a second; pure.

Source: Guava, `RateLimiter`, as RocketMQ 5.5.0's `ClientProcessor` uses it.
"""

from collections.abc import Callable


class RateLimit:
    """Lets `per_second` calls pass in each second; what was not used in one second may be used in the next."""

    def __init__(self, per_second: int, monotonic: Callable[[], float]) -> None:
        self._per_second = per_second
        self._monotonic = monotonic
        self._left = float(per_second)
        self._looked_at = monotonic()

    def passes(self) -> bool:
        """Return whether one more call may pass now, and count it if so."""
        now = self._monotonic()
        grown = self._left + (now - self._looked_at) * self._per_second
        self._left, self._looked_at = min(grown, float(self._per_second)), now
        if self._left < 1:
            return False
        self._left -= 1
        return True
