"""Loads of blocks from the object store: one for all who want the same block, and few at a time (`Turns`)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from store.tier.object_store import Unavailable
from store.tier.reads.block_cache import BlockCache, BlockKey, Cached
from store.tier.reads.turns import Room, Turns

Load: TypeAlias = Callable[[], Awaitable[Cached]]


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of the loads of each reader and of all together, and how long one load may wait, and may take."""

    each: Room
    together: Room
    timeout_s: float


class Fetches:
    """The loads under way.  Lives in the event loop's thread."""

    def __init__(self, cache: BlockCache, limits: FetchLimits) -> None:
        self._cache = cache
        self._limits = limits
        self._flights: dict[BlockKey, asyncio.Task[Cached]] = {}
        self._turns = Turns(limits.each, limits.together)

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

        Nothing is loaded ahead that would have to wait.
        """
        if key in self._cache or key in self._flights:
            return True
        if not self._turns.has_room(reader, size_bytes):
            return False
        self._begin(reader, key, size_bytes, load)
        return True

    def configure(self, limits: FetchLimits) -> None:
        """Change the limits."""
        self._limits = limits
        self._turns.configure(limits.each, limits.together)

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
        await self._turns.take(reader, size_bytes, self._limits.timeout_s)
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                block = await load()
        except TimeoutError as error:
            raise Unavailable(
                f"{key.object_key}: no answer from the object store for {self._limits.timeout_s:g} s"
            ) from error
        finally:
            self._turns.release(reader, size_bytes)
        self._cache.put(key, block, size_bytes)
        return block
