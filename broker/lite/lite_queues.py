"""Light queues of lite topics by parent, and which of them have got no message for the longest time.

So neither the deletion of idle lite topics nor the deletion of a parent searches all queues, as RocketMQ's does.
Times are those of intervals of a minute, because lite topics expire after minutes.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from broker.lite.intervals import UNKNOWN, Intervals
from sprocket.remoting.message.lite_topics import parent_and_lite

INTERVAL_MS: Final = 60_000


class LiteQueues:
    """Parent -> its light queues, each in the interval of its last message, by the wall clock.

    A queue that was there at the start is in the interval `UNKNOWN` until `learned`.
    """

    def __init__(self) -> None:
        self._parents: dict[str, Intervals] = {}

    def found(self, queues: Iterable[str]) -> None:
        """Note queues that are there at the start, each once."""
        by_parent: dict[str, list[str]] = {}
        for queue in queues:
            names = parent_and_lite(queue)
            if names is not None:
                by_parent.setdefault(names[0], []).append(queue)
        for parent, found in by_parent.items():
            self._parents.setdefault(parent, Intervals()).fill(found, UNKNOWN)

    def arrived(self, queue: str, now_ms: int) -> None:
        """Note a message in `queue`; other light queues than those of lite topics are ignored."""
        names = parent_and_lite(queue)
        if names is not None:
            parent = self._parents.get(names[0])
            if parent is None:
                parent = self._parents[names[0]] = Intervals()
            parent.put(queue, now_ms - now_ms % INTERVAL_MS)

    def parents(self) -> list[str]:
        """Return all parents."""
        return list(self._parents)

    def of_parent(self, parent: str) -> Sequence[str]:
        """Return the queues of a parent."""
        found = self._parents.get(parent)
        return [] if found is None else found.names()

    def count(self, parent: str) -> int:
        """Return the number of queues of a parent."""
        found = self._parents.get(parent)
        return 0 if found is None else len(found)

    def unknown(self, parent: str) -> Sequence[str]:
        """Return some of the queues whose time is unknown; none if there are none."""
        found = self._parents.get(parent)
        return [] if found is None else found.first(UNKNOWN)

    def learned(self, queue: str, last_ms: int) -> None:
        """Set the time of the last message before the start, if the queue has got none since."""
        found = self._of(queue)
        if found is not None and found.begin_of(queue) == UNKNOWN:
            found.put(queue, max(INTERVAL_MS, last_ms - last_ms % INTERVAL_MS))

    def idle_since(self, parent: str, before_ms: int) -> Sequence[str]:
        """Return some of the queues whose last interval ended before `before_ms`; none if there are none."""
        found = self._parents.get(parent)
        oldest_ms = None if found is None else found.next_begin(UNKNOWN)
        if found is None or oldest_ms is None or oldest_ms + INTERVAL_MS > before_ms:
            return []
        return found.first(oldest_ms)

    def is_idle_since(self, queue: str, before_ms: int) -> bool:
        """Return whether the last interval of a queue is known, and ended before `before_ms`."""
        found = self._of(queue)
        begin_ms = None if found is None else found.begin_of(queue)
        return begin_ms is not None and begin_ms != UNKNOWN and begin_ms + INTERVAL_MS <= before_ms

    def forget(self, queue: str) -> None:
        """Forget a deleted queue."""
        names, found = parent_and_lite(queue), self._of(queue)
        if names is not None and found is not None:
            found.remove(queue)
            if not found:
                del self._parents[names[0]]

    def _of(self, queue: str) -> Intervals | None:
        names = parent_and_lite(queue)
        return None if names is None else self._parents.get(names[0])
