"""Light queues of lite topics by parent, in the order of their last message.

So neither the deletion of idle lite topics nor the deletion of a parent searches all queues, as RocketMQ's does.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from sprocket.remoting.message.lite_topics import parent_and_lite

# Time of queues whose last message is from before the start, until `learned`.
UNKNOWN = 0


class LiteQueues:
    """Parent -> light queue -> wall clock time of its last message, ms; the longest idle one is first."""

    def __init__(self) -> None:
        self._by_parent: dict[str, OrderedDict[str, int]] = {}

    def arrived(self, queue: str, now_ms: int) -> None:
        """Note a message in `queue`; other light queues than those of lite topics are ignored."""
        names = parent_and_lite(queue)
        if names is not None:
            queues = self._by_parent.setdefault(names[0], OrderedDict())
            queues[queue] = now_ms
            queues.move_to_end(queue)

    def parents(self) -> list[str]:
        """Return all parents."""
        return list(self._by_parent)

    def of_parent(self, parent: str) -> Sequence[str]:
        """Return the queues of a parent, the longest idle one first."""
        return list(self._by_parent.get(parent, ()))

    def count(self, parent: str) -> int:
        """Return the number of queues of a parent."""
        return len(self._by_parent.get(parent, ()))

    def unknown(self, parent: str) -> Sequence[str]:
        """Return the queues whose time is unknown."""
        return [queue for queue, at in self._by_parent.get(parent, OrderedDict()).items() if at == UNKNOWN]

    def learned(self, parent: str, times_ms: Iterable[tuple[int, str]]) -> None:
        """Set times of last messages before the start; a queue that has got a message since keeps its time."""
        queues = self._by_parent.get(parent, OrderedDict())
        for at, queue in sorted(times_ms, reverse=True):
            if queues.get(queue) == UNKNOWN:
                queues[queue] = at
                queues.move_to_end(queue, last=False)

    def idle_since(self, parent: str, before_ms: int) -> Iterator[str]:
        """Iterate over the queues without a message since `before_ms`; stop before a change."""
        for queue, at in self._by_parent.get(parent, OrderedDict()).items():
            if at >= before_ms:
                return
            yield queue

    def last_ms(self, queue: str) -> int | None:
        """Return the time of a queue's last message; None for an unknown queue."""
        names = parent_and_lite(queue)
        return None if names is None else self._by_parent.get(names[0], OrderedDict()).get(queue)

    def forget(self, queue: str) -> None:
        """Forget a deleted queue."""
        names = parent_and_lite(queue)
        queues = None if names is None else self._by_parent.get(names[0])
        if names is None or queues is None:
            return
        queues.pop(queue, None)
        if not queues:
            del self._by_parent[names[0]]
