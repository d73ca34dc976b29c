"""A peer that is read more slowly, because it sends more than it may."""

import asyncio
from collections.abc import Callable
from typing import Final

# How long after it the age of what is read says nothing of the load.
_AFTER_S: Final = 2.0


class SlowReads:
    """Time before which a peer is not read.  `read_on` is called when it has passed."""

    __slots__ = ("_is_on", "_loop", "_read_on", "_until_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, read_on: Callable[[], None]) -> None:
        self._loop = loop
        self._read_on = read_on
        self._until_s = 0.0
        self._is_on = False

    def wait(self, seconds: float) -> None:
        """Wait for some seconds from now, or for as long as before if that is longer."""
        self._until_s = max(self._until_s, self._loop.time() + seconds)
        if not self._is_on:
            self._is_on = True
            self._loop.call_later(seconds, self._look)

    def __bool__(self) -> bool:
        """Whether the time has yet to pass."""
        return self._is_on

    @property
    def was_on(self) -> bool:
        """Whether it is so short ago that what is read now has waited for it."""
        return self._until_s > 0 and self._loop.time() < self._until_s + _AFTER_S

    def _look(self) -> None:
        left_s = self._until_s - self._loop.time()
        if left_s > 0:
            self._loop.call_later(left_s, self._look)
        else:
            self._is_on = False
            self._read_on()
