"""Pauses between attempts that grow."""

import math

from sprocket.client.connection.wakeup import pause


class Backoff:
    """Pauses of `first_s` at first, each twice as long as the one before, and `max_s` at most."""

    def __init__(self, first_s: float = 0.05, max_s: float = 1.0) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self.next_s = first_s  # the next pause

    async def pause(self, limit_s: float = math.inf) -> None:
        """Pause, for at most `limit_s`; the next pause is longer."""
        await pause(min(self.next_s, limit_s))
        self.next_s = min(self.next_s * 2, self._max_s)

    def reset(self) -> None:
        """Begin again: an attempt succeeded."""
        self.next_s = self._first_s
