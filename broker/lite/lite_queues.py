"""Light queues of lite topics by parent, and which of them have got no message for the longest time.

So neither the deletion of idle lite topics nor the deletion of a parent searches all queues, as RocketMQ's does.
Times are those of intervals of a minute, because lite topics expire after minutes.  A queue takes one entry of a
dictionary and at most two of lists.
"""

from bisect import insort
from collections.abc import Sequence
from typing import Final

from sprocket.remoting.message.lite_topics import parent_and_lite

# Time of queues whose last message is from before the start, until `learned`.
UNKNOWN: Final = 0
INTERVAL_MS: Final = 60_000
# Most queues of `idle_since`.
_CHUNK: Final = 256


class _Chunk:
    """Some queues that got their last message in one interval; others in `names` have left it."""

    __slots__ = ("begin_ms", "count", "names")

    def __init__(self, begin_ms: int) -> None:
        self.begin_ms = begin_ms
        self.count = 0
        self.names: list[str] = []


class _Parent:
    """Queues of one parent: which chunk each is in, and the chunks of each interval."""

    __slots__ = ("_begins_ms", "_chunks", "chunk_of")

    def __init__(self) -> None:
        self.chunk_of: dict[str, _Chunk] = {}
        self._chunks: dict[int, list[_Chunk]] = {}
        self._begins_ms: list[int] = []  # in order

    def put(self, queue: str, begin_ms: int) -> None:
        """Put a queue into an interval, out of the one that it is in."""
        before = self.chunk_of.get(queue)
        if before is not None:
            if before.begin_ms == begin_ms:
                return
            self._left(before)
        chunks = self._chunks.get(begin_ms)
        if chunks is None:
            chunks = self._chunks[begin_ms] = []
            insort(self._begins_ms, begin_ms)
        if not chunks or len(chunks[-1].names) >= _CHUNK:
            chunks.append(_Chunk(begin_ms))
        chunk = self.chunk_of[queue] = chunks[-1]
        chunk.names.append(queue)
        chunk.count += 1
        if before is not None:
            self._shrink(before)

    def remove(self, queue: str) -> None:
        """Remove a queue, if it is there."""
        before = self.chunk_of.pop(queue, None)
        if before is not None:
            self._left(before)
            self._shrink(before)

    def _left(self, chunk: _Chunk) -> None:
        chunk.count -= 1
        if not chunk.count:
            chunks = self._chunks[chunk.begin_ms]
            chunks.remove(chunk)
            if not chunks:
                del self._chunks[chunk.begin_ms]
                self._begins_ms.remove(chunk.begin_ms)

    def _shrink(self, chunk: _Chunk) -> None:
        if len(chunk.names) > 2 * chunk.count:
            chunk.names = self._members(chunk)

    def _members(self, chunk: _Chunk) -> list[str]:
        return [name for name in chunk.names if self.chunk_of.get(name) is chunk]

    def first(self, begin_ms: int) -> list[str]:
        """Return some queues of an interval; none if it has none."""
        chunks = self._chunks.get(begin_ms)
        return self._members(chunks[0]) if chunks else []

    def oldest_ms(self) -> int | None:
        """Return the oldest known interval; None without one."""
        begins_ms = self._begins_ms
        at = 1 if begins_ms and begins_ms[0] == UNKNOWN else 0
        return begins_ms[at] if at < len(begins_ms) else None


class LiteQueues:
    """Parent -> its light queues, each in the interval of its last message, by the wall clock."""

    def __init__(self) -> None:
        self._parents: dict[str, _Parent] = {}

    def arrived(self, queue: str, now_ms: int) -> None:
        """Note a message in `queue`; other light queues than those of lite topics are ignored."""
        names = parent_and_lite(queue)
        if names is not None:
            parent = self._parents.get(names[0])
            if parent is None:
                parent = self._parents[names[0]] = _Parent()
            parent.put(queue, now_ms - now_ms % INTERVAL_MS)

    def parents(self) -> list[str]:
        """Return all parents."""
        return list(self._parents)

    def of_parent(self, parent: str) -> Sequence[str]:
        """Return the queues of a parent."""
        found = self._parents.get(parent)
        return [] if found is None else list(found.chunk_of)

    def count(self, parent: str) -> int:
        """Return the number of queues of a parent."""
        found = self._parents.get(parent)
        return 0 if found is None else len(found.chunk_of)

    def unknown(self, parent: str) -> Sequence[str]:
        """Return some of the queues whose time is unknown; none if there are none."""
        found = self._parents.get(parent)
        return [] if found is None else found.first(UNKNOWN)

    def learned(self, queue: str, last_ms: int) -> None:
        """Set the time of the last message before the start, if the queue has got none since."""
        names = parent_and_lite(queue)
        found = None if names is None else self._parents.get(names[0])
        if found is not None and queue in found.chunk_of and found.chunk_of[queue].begin_ms == UNKNOWN:
            found.put(queue, max(INTERVAL_MS, last_ms - last_ms % INTERVAL_MS))

    def idle_since(self, parent: str, before_ms: int) -> Sequence[str]:
        """Return some of the queues whose last interval ended before `before_ms`; none if there are none."""
        found = self._parents.get(parent)
        oldest_ms = None if found is None else found.oldest_ms()
        if found is None or oldest_ms is None or oldest_ms + INTERVAL_MS > before_ms:
            return []
        return found.first(oldest_ms)

    def is_idle_since(self, queue: str, before_ms: int) -> bool:
        """Return whether the last interval of a queue is known, and ended before `before_ms`."""
        names = parent_and_lite(queue)
        found = None if names is None else self._parents.get(names[0])
        chunk = None if found is None else found.chunk_of.get(queue)
        return chunk is not None and chunk.begin_ms != UNKNOWN and chunk.begin_ms + INTERVAL_MS <= before_ms

    def forget(self, queue: str) -> None:
        """Forget a deleted queue."""
        names = parent_and_lite(queue)
        found = None if names is None else self._parents.get(names[0])
        if names is not None and found is not None:
            found.remove(queue)
            if not found.chunk_of:
                del self._parents[names[0]]
