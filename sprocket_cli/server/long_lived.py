"""Objects that live long, kept out of Python's full garbage collections.

A full collection looks at every object that can be part of a cycle, and holds all requests meanwhile: 10 to 40 ms with
the 1,000 idle clients of a proxy, once a second while others send.  It finds next to nothing, because reference
counting has freed what has ended.  Frozen objects are not looked at, and are freed by reference counting as before.
"""

import gc
from typing import Final

# A full collection of so many objects takes a few ms.
_MAX_OBJECTS: Final = 10_000


class LongLived:
    """Everything that exists at creation, and later what is old, is frozen.

    Cycles among frozen objects are not found.  So all are searched once when there are twice as many as there were at
    the last search, or at any time since: what cycles keep is never more than what lives.
    """

    def __init__(self, max_objects: int = _MAX_OBJECTS) -> None:
        self._max_objects = max_objects
        self._searched = self._freeze()

    @staticmethod
    def _freeze() -> int:
        gc.freeze()
        return gc.get_freeze_count()

    def look(self) -> None:
        """Freeze, if there are more than `max_objects` old objects; to be called every few seconds."""
        if len(gc.get_objects(generation=2)) <= self._max_objects:
            return
        frozen = self._freeze()
        if frozen > 2 * self._searched:
            gc.unfreeze()
            gc.collect()
            frozen = self._freeze()
            self._searched = frozen
        self._searched = min(self._searched, frozen)
