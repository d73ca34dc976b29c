"""Turns of the event loop: what one may take, and how long the current read waited for others."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from sprocket.common.clock import Clock, SystemClock
from sprocket.common.next_turn import SLICE_S

# Part of a slice for a peer that sends more than it may, and for what is left of all such together.
SLOW_PART: Final = 0.1


class Turn:
    """One turn of an event loop, in which all connections that are ready are read one after the other.

    Belongs to all connections of a server.  What a connection cannot do in a slice of `slice_s`, it does in later
    turns, in turns with the others.
    """

    __slots__ = ("_began", "_is_scheduled", "_loop", "_slow_works", "_works", "now", "slice_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock | None = None, slice_s: float = SLICE_S) -> None:
        self._loop = loop
        # Not the loop's time, which may stand still during a turn.
        self.now = (clock or SystemClock()).monotonic
        self.slice_s = slice_s
        self._began: float | None = None
        self._works: OrderedDict[Callable[[float], bool], None] = OrderedDict()
        self._slow_works: OrderedDict[Callable[[float], bool], None] = OrderedDict()
        self._is_scheduled = False

    def waited_s(self, now: float) -> float:
        """Return how long the turn has run at monotonic `now`, s.  The first call begins the turn."""
        if self._began is None:
            self._began = now
            # Runs after everything that is ready now.
            self._loop.call_soon(self._end)
        return now - self._began

    def _end(self) -> None:
        self._began = None

    def share(self, work: Callable[[float], bool], *, is_slow: bool = False) -> None:
        """Call `work` in the next turns, until it returns False: nothing is left.

        It gets the monotonic time at which its slice ends.  All works of a turn share one slice; slow ones a tenth.
        """
        (self._slow_works if is_slow else self._works)[work] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        try:
            self._run_some(self._works, self.slice_s)
            self._run_some(self._slow_works, self.slice_s * SLOW_PART)
        finally:
            self._is_scheduled = bool(self._works or self._slow_works)
            if self._is_scheduled:
                self._loop.call_soon(self._run)

    def _run_some(self, works: OrderedDict[Callable[[float], bool], None], slice_s: float) -> None:
        ends_at = self.now() + slice_s
        for _ in range(len(works)):
            work, _ = works.popitem(last=False)
            if work(ends_at):
                works[work] = None
            if self.now() >= ends_at:
                break
