"""Loads of blocks from the object store: one for all who want the same block, and few at a time for each reader.

A reader is a name, of a consumer group for example.  One that reads a lot, or slowly, delays no other.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from store.tier.object_store import Unavailable
from store.tier.reads.block_cache import BlockCache, BlockKey, Cached

Load: TypeAlias = Callable[[], Awaitable[Cached]]
# Loads of one reader that may wait for their turn.
_MAX_WAITING: Final = 1024


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of the loads of each reader, and how long one load may take."""

    max_loads: int
    max_bytes: int
    timeout_s: float


@dataclass(slots=True)
class _Reader:
    """What one reader has under way, and which of its loads wait."""

    loads: int = 0
    size_bytes: int = 0
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)


class Fetches:
    """The loads under way.  Lives in the event loop's thread."""

    def __init__(self, cache: BlockCache, limits: FetchLimits) -> None:
        self._cache = cache
        self._limits = limits
        self._flights: dict[BlockKey, asyncio.Task[Cached]] = {}
        self._readers: dict[str, _Reader] = {}

    async def block(self, reader: str, key: BlockKey, size_bytes: int, load: Load) -> Cached:
        """Return a block, from the cache or with `load`.  `size_bytes` is about what it will hold.

        Raises `Unavailable`, and what `load` raises, `StoreError` for a damaged block for example.
        """
        found = self._cache.find(key)
        if found is not None:
            return found
        flight = self._flights.get(key)
        if flight is None:
            flight = self._begin(reader, key, size_bytes, load)
        # Others may wait for the same block, so the end of one wait does not end the load.
        return await asyncio.shield(flight)

    def ahead(self, reader: str, key: BlockKey, size_bytes: int, load: Load) -> bool:
        """Begin to load a block that will be asked for later; return whether there may be more of them.

        Nothing is loaded ahead of a reader that has reached its limits.
        """
        if key in self._cache or key in self._flights:
            return True
        state = self._readers.get(reader)
        if state is not None and not self._has_room(state, size_bytes):
            return False
        self._begin(reader, key, size_bytes, load)
        return True

    def configure(self, limits: FetchLimits) -> None:
        """Change the limits."""
        self._limits = limits

    def close(self) -> None:
        """Cancel all loads."""
        for flight in list(self._flights.values()):
            flight.cancel()

    def _begin(self, reader: str, key: BlockKey, size_bytes: int, load: Load) -> asyncio.Task[Cached]:
        flight = asyncio.get_running_loop().create_task(self._run(reader, key, size_bytes, load))
        self._flights[key] = flight

        def ended(flight: asyncio.Task[Cached]) -> None:
            self._flights.pop(key, None)
            if not flight.cancelled():
                flight.exception()  # perhaps nobody waits for it any more, and nobody else looks at its error

        flight.add_done_callback(ended)
        return flight

    async def _run(self, reader: str, key: BlockKey, size_bytes: int, load: Load) -> Cached:
        state = self._readers.setdefault(reader, _Reader())
        await self._turn(state, size_bytes)
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                block = await load()
        except TimeoutError as error:
            raise Unavailable(
                f"{key.object_key}: no answer from the object store for {self._limits.timeout_s:g} s"
            ) from error
        finally:
            state.loads -= 1
            state.size_bytes -= size_bytes
            self._let_next(state)
            if not state.loads and not state.waiting:
                self._readers.pop(reader, None)
        self._cache.put(key, block, size_bytes)
        return block

    # Turns of a reader

    def _has_room(self, state: _Reader, size_bytes: int) -> bool:
        if not state.loads:
            return True
        return state.loads < self._limits.max_loads and state.size_bytes + size_bytes <= self._limits.max_bytes

    async def _turn(self, state: _Reader, size_bytes: int) -> None:
        """Wait until the reader may have one more load, and count that."""
        if state.waiting or not self._has_room(state, size_bytes):
            if len(state.waiting) >= _MAX_WAITING:
                raise Unavailable(f"{_MAX_WAITING} reads of one group wait for the object store already")
            turn = asyncio.get_running_loop().create_future()
            state.waiting.append((size_bytes, turn))
            await turn
            return
        state.loads += 1
        state.size_bytes += size_bytes

    def _let_next(self, state: _Reader) -> None:
        """Give their turn to as many waiting loads as there is room for."""
        while state.waiting and (state.waiting[0][1].done() or self._has_room(state, state.waiting[0][0])):
            size_bytes, turn = state.waiting.popleft()
            if turn.done():
                continue  # cancelled
            state.loads += 1
            state.size_bytes += size_bytes
            turn.set_result(None)
