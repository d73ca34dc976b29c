"""Output that a peer has not taken yet, counted together with the output of all peers."""

from collections.abc import Callable
from typing import Final

from sprocket.common import limits
from sprocket.remoting.channel_counters import ChannelCounters

# Less is not counted: with so little each, ten thousand peers hold a third of the limit for all.
COUNTED_BYTES: Final = 16 * 1024


class UnsentOutput:
    """Unsent output of one connection at the last measurement.  `crowded` is called if all together hold too much."""

    __slots__ = ("_counters", "_crowded", "since", "size_bytes")

    def __init__(self, counters: ChannelCounters, crowded: Callable[[], None] | None) -> None:
        self._counters = counters
        self._crowded = crowded
        self.size_bytes = 0
        self.since: float | None = None  # loop time since when output was always unsent

    def written(self, left_bytes: int, size_bytes: int, now: float) -> None:
        """Count `size_bytes` that were written at loop time `now`, with `left_bytes` of earlier writes unsent."""
        if not left_bytes or self.since is None:
            self.since = now
        grown = left_bytes + size_bytes - self.size_bytes
        self._set(left_bytes + size_bytes)
        if grown > 0 and self._counters.unsent_bytes > limits.MAX_UNSENT_BYTES and self._crowded is not None:
            self._crowded()

    def looked_at(self, size_bytes: int) -> None:
        """Count `size_bytes` as what is unsent now."""
        if not size_bytes:
            self.since = None
        self._set(size_bytes)

    def _set(self, size_bytes: int) -> None:
        self._counters.unsent_bytes += size_bytes - self.size_bytes
        self.size_bytes = size_bytes
