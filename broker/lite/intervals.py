"""Names by an interval of time that each is in, in little memory and without a search of all.  Pure.

A name takes one entry of a dictionary and at most two of lists.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Final

# Interval of names whose time is not known.
UNKNOWN: Final = 0
# Most names of `first`.
_CHUNK: Final = 256


class _Chunk:
    """Some names that are in one interval; others in `names` have left it."""

    __slots__ = ("begin_ms", "count", "names")

    def __init__(self, begin_ms: int) -> None:
        self.begin_ms = begin_ms
        self.count = 0
        self.names: list[str] = []


class Intervals:
    """Name -> the interval that it is in, known by its begin."""

    __slots__ = ("_begins_ms", "_chunk_of", "_chunks")

    def __init__(self) -> None:
        self._chunk_of: dict[str, _Chunk] = {}
        self._chunks: dict[int, list[_Chunk]] = {}
        self._begins_ms: list[int] = []  # in order

    def __len__(self) -> int:
        return len(self._chunk_of)

    def __contains__(self, name: str) -> bool:
        return name in self._chunk_of

    def names(self) -> list[str]:
        """Return all names."""
        return list(self._chunk_of)

    def begin_of(self, name: str) -> int | None:
        """Return the interval of a name; None for an unknown name."""
        chunk = self._chunk_of.get(name)
        return None if chunk is None else chunk.begin_ms

    def put(self, name: str, begin_ms: int) -> None:
        """Put a name into an interval, out of the one that it is in."""
        before = self._chunk_of.get(name)
        if before is not None:
            if before.begin_ms == begin_ms:
                return
            self._left(before)
        chunks = self._of(begin_ms)
        if not chunks or len(chunks[-1].names) >= _CHUNK:
            chunks.append(_Chunk(begin_ms))
        chunk = self._chunk_of[name] = chunks[-1]
        chunk.names.append(name)
        chunk.count += 1
        if before is not None:
            self._shrink(before)

    def _of(self, begin_ms: int) -> list[_Chunk]:
        chunks = self._chunks.get(begin_ms)
        if chunks is None:
            chunks = self._chunks[begin_ms] = []
            insort(self._begins_ms, begin_ms)
        return chunks

    def fill(self, names: Sequence[str], begin_ms: int) -> None:
        """Put many new names into an interval, in a tenth of the time of `put`."""
        chunks = self._of(begin_ms)
        for start in range(0, len(names), _CHUNK):
            chunk = _Chunk(begin_ms)
            chunk.names = list(names[start : start + _CHUNK])
            chunk.count = len(chunk.names)
            self._chunk_of.update(dict.fromkeys(chunk.names, chunk))
            chunks.append(chunk)

    def remove(self, name: str) -> None:
        """Remove a name, if it is there."""
        before = self._chunk_of.pop(name, None)
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
        return [name for name in chunk.names if self._chunk_of.get(name) is chunk]

    def first(self, begin_ms: int) -> list[str]:
        """Return some names of an interval; none if it has none."""
        chunks = self._chunks.get(begin_ms)
        return self._members(chunks[0]) if chunks else []

    def all_of(self, begin_ms: int) -> list[str]:
        """Return all names of an interval."""
        return [name for chunk in self._chunks.get(begin_ms, ()) for name in self._members(chunk)]

    def next_begin(self, after_ms: int) -> int | None:
        """Return the first interval that begins after `after_ms`; None without one."""
        at = bisect_right(self._begins_ms, after_ms)
        return self._begins_ms[at] if at < len(self._begins_ms) else None
