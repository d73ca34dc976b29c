"""Reads from segment objects as steps: a read yields the block that it needs next and is sent its content.

So the same code serves a pull, which may wait for blocks, and a pop, which takes what the cache has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypeVar

from store.tier.manifest import SegmentEntry
from store.tier.object_store import Damaged, ObjectStore
from store.tier.reads.block_cache import BlockCache, BlockKey, Cached
from store.tier.reads.fetches import Fetches
from store.tier.segment_object import Block, Footer, LogBlock, open_block, open_footer

T = TypeVar("T")
# A footer in memory takes about this many times its bytes in the object.
_FOOTER_GROWTH: Final = 12


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part of a segment's object; `part` is None for its footer.  `likely` are what is probably needed after it."""

    segment: SegmentEntry
    part: LogBlock | Block | None
    likely: "tuple[Wanted, ...]" = ()

    @property
    def _block(self) -> Block | None:
        return self.part.block if isinstance(self.part, LogBlock) else self.part

    @property
    def position(self) -> int:
        """First byte in the object."""
        block = self._block
        return self.segment.size_bytes - self.segment.footer_bytes if block is None else block.position

    @property
    def end(self) -> int:
        """One past the last byte in the object."""
        block = self._block
        return self.segment.size_bytes if block is None else block.position + block.size_bytes

    @property
    def memory_bytes(self) -> int:
        """About how much memory the part takes when it is open."""
        block = self._block
        return self.segment.footer_bytes * _FOOTER_GROWTH if block is None else block.raw_bytes

    @property
    def key(self) -> BlockKey:
        """Place in the cache."""
        return BlockKey(self.segment.key, self.position)

    def opened(self, content: bytes) -> Cached:
        """Return what the bytes in the object hold, checked.  For any thread.  Raises `Damaged`, with the key."""
        try:
            block = self._block
            if block is None:
                return open_footer(content, self.segment.size_bytes, self.segment.footer_sha256)
            return open_block(block, content)
        except Damaged as error:
            raise Damaged(f"{self.segment.key}: {error}") from error


Steps: TypeAlias = Generator[Wanted, Cached, T]


def footer_of(segment: SegmentEntry) -> Steps[Footer]:
    """Return the footer of a segment's object."""
    footer = yield Wanted(segment, None)
    assert isinstance(footer, Footer)
    return footer


def content_of(segment: SegmentEntry, part: LogBlock | Block, likely: tuple[Wanted, ...] = ()) -> Steps[bytes]:
    """Return the content of a block; `likely` are loaded beside it if it is not in memory."""
    content = yield Wanted(segment, part, likely)
    assert isinstance(content, bytes)
    return content


async def result_of(steps: Steps[T], read: Callable[[Wanted], Awaitable[Cached]]) -> T:
    """Return the result of `steps`; `read` returns the content of what they want.  Raises as `read`."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(await read(wanted))
    except StopIteration as end:
        result: T = end.value
        return result


class StepReads:
    """What runs steps: with blocks from the cache, and with those that `load` gets from the object store.

    Lives in the event loop's thread.
    """

    def __init__(self, load: Callable[[Wanted], Awaitable[Cached]], cache: BlockCache, fetches: Fetches) -> None:
        self._load = load
        self._cache = cache
        self._fetches = fetches

    async def run(self, reader: str, steps: Steps[T]) -> T:
        """Return the result of `steps`; blocks that the cache lacks are loaded for `reader`.

        Raises `Unavailable`, and other errors of `store.tier.object_store`.
        """
        return await result_of(steps, partial(self._block, reader))

    def run_now(self, steps: Steps[T]) -> T | None:
        """Return the result of `steps` if the cache has all that they need."""
        try:
            wanted = next(steps)
            while (found := self._cache.find(wanted.key)) is not None:
                wanted = steps.send(found)
        except StopIteration as end:
            result: T = end.value
            return result
        return None

    def ahead(self, reader: str, wanted: Wanted) -> bool:
        """Begin to load a part that will be asked for later; return whether there may be more of them."""
        return self._fetches.ahead(reader, wanted.key, wanted.memory_bytes, partial(self._load, wanted))

    async def _block(self, reader: str, wanted: Wanted) -> Cached:
        if wanted.likely and wanted.key not in self._cache:
            for one in wanted.likely:
                self.ahead(reader, one)
        return await self._fetches.block(reader, wanted.key, wanted.memory_bytes, partial(self._load, wanted))


# Reads without a cache


async def read_footer(objects: ObjectStore, segment: SegmentEntry) -> Footer:
    """Return the footer of a segment's object.  Raises an `ObjectStoreError`."""
    footer = await read_part(objects, Wanted(segment, None))
    assert isinstance(footer, Footer)
    return footer


async def read_block(objects: ObjectStore, segment: SegmentEntry, part: LogBlock | Block) -> bytes:
    """Return the content of a block of a segment's object.  Raises an `ObjectStoreError`."""
    content = await read_part(objects, Wanted(segment, part))
    assert isinstance(content, bytes)
    return content


async def read_part(objects: ObjectStore, wanted: Wanted) -> Cached:
    """Return what a part of an object holds.  Raises an `ObjectStoreError`."""
    content = await objects.get_range(wanted.segment.key, wanted.position, wanted.end)
    return await asyncio.to_thread(wanted.opened, content)
