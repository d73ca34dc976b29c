"""Blocks that were read from the object store, in memory: the ones used last, up to a number of bytes."""

from collections import OrderedDict
from typing import NamedTuple, TypeAlias

from store.tier.segment_object import Footer

# What is kept: the content of a block, expanded, or an object's footer.
Cached: TypeAlias = bytes | Footer


class BlockKey(NamedTuple):
    """Place of a block: the object, and where the block begins there."""

    object_key: str
    begin: int


class BlockCache:
    """The blocks used last.  `max_bytes` bounds them all; a block larger than that is not kept.

    Lives in the event loop's thread.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[BlockKey, tuple[Cached, int]] = OrderedDict()
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, key: BlockKey) -> bool:
        """Return whether a block is there.  This is not counted as a use."""
        return key in self._blocks

    def find(self, key: BlockKey) -> Cached | None:
        """Return a block, if it is there."""
        found = self._blocks.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._blocks.move_to_end(key)
        return found[0]

    def put(self, key: BlockKey, block: Cached, size_bytes: int) -> None:
        """Keep a block of about `size_bytes` in memory, and drop those that were used longest ago."""
        found = self._blocks.pop(key, None)
        if found is not None:
            self.size_bytes -= found[1]
        if size_bytes > self._max_bytes:
            return
        self._blocks[key] = block, size_bytes
        self.size_bytes += size_bytes
        self._shrink()

    def resize(self, max_bytes: int) -> None:
        """Change the limit."""
        self._max_bytes = max_bytes
        self._shrink()

    def _shrink(self) -> None:
        while self.size_bytes > self._max_bytes:
            _, (_, size_bytes) = self._blocks.popitem(last=False)
            self.size_bytes -= size_bytes
