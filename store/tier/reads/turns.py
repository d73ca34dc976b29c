"""Turns of loads from the object store: few at a time for each reader, and for all readers together.

A reader is a name, of a consumer group for example.  Readers that wait for room get it in turn, one load each, and
nobody overtakes the one whose turn it is.  So one that reads a lot, or slowly, or large blocks, delays others little.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from store.tier.object_store import Unavailable

# Loads of one reader that may wait for their turn.
_MAX_WAITING: Final = 1024


@dataclass(frozen=True, slots=True)
class Room:
    """How many loads may be under way at once, and how many bytes.  One load may always be."""

    max_loads: int
    max_bytes: int


@dataclass(slots=True)
class _UnderWay:
    """Loads that are under way."""

    loads: int = 0
    size_bytes: int = 0

    def add(self, loads: int, size_bytes: int) -> None:
        self.loads += loads
        self.size_bytes += size_bytes

    def has_room(self, room: Room, size_bytes: int) -> bool:
        return not self.loads or (self.loads < room.max_loads and self.size_bytes + size_bytes <= room.max_bytes)


@dataclass(slots=True)
class _Reader:
    under_way: _UnderWay = field(default_factory=_UnderWay)
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)


class Turns:
    """The turns of all readers: `each` is the room of one, `together` that of all.  For one event loop."""

    def __init__(self, each: Room, together: Room) -> None:
        self.configure(each, together)
        self._all = _UnderWay()
        self._readers: dict[str, _Reader] = {}
        # Readers with loads that wait; the one whose turn is next comes first.
        self._waiting: dict[str, None] = {}

    def configure(self, each: Room, together: Room) -> None:
        """Change the limits."""
        self._each, self._together = each, together

    def has_room(self, reader: str, size_bytes: int) -> bool:
        """Return whether a load of `reader` could begin now."""
        state = self._readers.get(reader)
        is_free = state is None or state.under_way.has_room(self._each, size_bytes)
        return is_free and self._all.has_room(self._together, size_bytes)

    async def take(self, reader: str, size_bytes: int, timeout_s: float) -> None:
        """Wait until the reader may have one more load.  `release` must follow, unless this raises `Unavailable`."""
        state = self._readers.setdefault(reader, _Reader())
        if len(state.waiting) >= _MAX_WAITING:
            raise Unavailable(f"{_MAX_WAITING} reads of one group wait for the object store already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        state.waiting.append((size_bytes, turn))
        self._waiting.setdefault(reader)
        self._let_next()
        try:
            async with asyncio.timeout(None if turn.done() else timeout_s):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.cancelled():
                self._let_next()
            else:
                self.release(reader, size_bytes)
            if isinstance(error, TimeoutError):
                raise Unavailable(f"other reads have kept the object store busy for {timeout_s:g} s") from error
            raise

    def release(self, reader: str, size_bytes: int) -> None:
        """Note the end of a load."""
        self._readers[reader].under_way.add(-1, -size_bytes)
        self._all.add(-1, -size_bytes)
        self._let_next()
        self._forget(reader)

    def _let_next(self) -> None:
        """Give their turn to as many waiting loads as there is room for."""
        for reader in list(self._waiting):
            self._drop_cancelled(reader)
        given = True
        while given:
            given = False
            for reader in self._waiting:
                state = self._readers[reader]
                size_bytes, turn = state.waiting[0]
                if not state.under_way.has_room(self._each, size_bytes):
                    continue
                if not self._all.has_room(self._together, size_bytes):
                    return
                state.waiting.popleft()
                state.under_way.add(1, size_bytes)
                self._all.add(1, size_bytes)
                turn.set_result(None)
                del self._waiting[reader]
                self._waiting[reader] = None
                self._drop_cancelled(reader)
                given = True
                break

    def _drop_cancelled(self, reader: str) -> None:
        """Drop loads that nobody wants any more before the next one, and a reader without waiting loads."""
        waiting = self._readers[reader].waiting
        while waiting and waiting[0][1].done():
            waiting.popleft()
        if not waiting:
            del self._waiting[reader]
            self._forget(reader)

    def _forget(self, reader: str) -> None:
        state = self._readers.get(reader)
        if state is not None and not state.under_way.loads and not state.waiting:
            del self._readers[reader]
