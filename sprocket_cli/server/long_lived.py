"""Objects that live long, kept out of Python's full garbage collections.

A full collection looks at every object that can be part of a cycle, and holds all requests meanwhile: 10 to 40 ms with
the 1,000 idle clients of a proxy, 60 to 280 ms in a broker with 60,000 held pulls.  It finds next to nothing, because
reference counting has freed what has ended.  So none starts by itself.  What is old is looked at when it is little, and
frozen when it is much.  Frozen objects are not looked at, and are freed by reference counting as before.
"""

import gc
from typing import Final

from sprocket.common.clock import Clock, SystemClock

# A look at so many objects takes a few ms.
_MAX_OBJECTS: Final = 10_000
# So many younger collections come before Python starts a full one: it never does.
_NEVER: Final = 2**31 - 1
# A search takes at most this part of the time, so that it is not felt at p99.9.
_SHARE: Final = 1 / 1000
# But it comes when there are so many times as many objects.
_MOST: Final = 8


class LongLived:
    """Everything that exists at creation, and later what is old, is frozen.

    Cycles among frozen objects are not found.  So all are searched once when there are twice as many as there were at
    the last search, or at any time since: cycles keep about as many objects as live.  If searches would take more than
    a 1,000th of the time, the next one waits until there are eight times as many.  Objects are counted, not bytes.
    """

    def __init__(self, max_objects: int = _MAX_OBJECTS, clock: Clock | None = None) -> None:
        self._max_objects = max_objects
        self._clock = SystemClock() if clock is None else clock
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        self._searched = self._freeze()
        self._next_search_s = 0.0

    @staticmethod
    def _freeze() -> int:
        gc.freeze()
        return gc.get_freeze_count()

    def look(self) -> None:
        """Freeze what is old if that is more than `max_objects`, or free its cycles; to be called every few seconds."""
        if len(gc.get_objects(generation=2)) <= self._max_objects:
            gc.collect()
            return
        frozen = self._freeze()
        now_s = self._clock.monotonic()
        if frozen > (2 if now_s >= self._next_search_s else _MOST) * self._searched:
            gc.unfreeze()
            gc.collect()
            self._searched = frozen = self._freeze()
            ended_s = self._clock.monotonic()
            self._next_search_s = ended_s + (ended_s - now_s) / _SHARE
        self._searched = min(self._searched, frozen)
