"""Minimum wait of the current read: the time since the event loop read the first connection of this turn."""

import asyncio

from sprocket.common.clock import Clock, SystemClock


class Turn:
    """One turn of an event loop, in which all connections that are ready are read one after the other.

    Belongs to all connections of a server.
    """

    __slots__ = ("_began", "_loop", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock | None = None) -> None:
        self._loop = loop
        # Not the loop's time, which may stand still during a turn.
        self.now = (clock or SystemClock()).monotonic
        self._began: float | None = None

    def waited_s(self, now: float) -> float:
        """Return how long the turn has run at monotonic `now`, s.  The first call begins the turn."""
        if self._began is None:
            self._began = now
            # Runs after everything that is ready now.
            self._loop.call_soon(self._end)
        return now - self._began

    def _end(self) -> None:
        self._began = None
