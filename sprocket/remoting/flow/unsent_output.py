"""What one peer has not taken yet of what was written for it, counted with that of all others."""

from collections.abc import Callable
from typing import Final

from sprocket.common import limits
from sprocket.remoting.channel_counters import ChannelCounters

# What is less is not worth the counting: ten thousand peers together hold a third of what all may.
COUNTED_BYTES: Final = 16 * 1024


class UnsentOutput:
    """That of one connection, as it was when it was looked at last.  `crowded` is called when all hold too much."""

    __slots__ = ("_counters", "_crowded", "since", "size_bytes")

    def __init__(self, counters: ChannelCounters, crowded: Callable[[], None] | None) -> None:
        self._counters = counters
        self._crowded = crowded
        self.size_bytes = 0
        self.since: float | None = None  # loop time since when there was always something

    def written(self, left_bytes: int, size_bytes: int, now: float) -> None:
        """`size_bytes` were added, at loop time `now`, to what was left of earlier writes."""
        if not left_bytes or self.since is None:
            self.since = now
        grown = left_bytes + size_bytes - self.size_bytes
        self._set(left_bytes + size_bytes)
        if grown > 0 and self._counters.unsent_bytes > limits.MAX_UNSENT_BYTES and self._crowded is not None:
            self._crowded()

    def looked_at(self, size_bytes: int) -> None:
        """So much is left now."""
        if not size_bytes:
            self.since = None
        self._set(size_bytes)

    def _set(self, size_bytes: int) -> None:
        self._counters.unsent_bytes += size_bytes - self.size_bytes
        self.size_bytes = size_bytes
