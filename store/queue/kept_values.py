"""Cache of the values of properties in the records of a queue, for the next filter on the same properties.

Many groups filter one topic by the same few properties, each with its own expression.  Held pulls check the newest
records once for each group.  With the compiled engine, `chosen` keeps values; else `keys`, for filters on one property.
"""

from typing import Any, Final

import numpy as np

from store.layout import CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_UNIT_BYTES
from store.log.commit_log import CommitLog
from store.queue.consume_queue import ConsumeQueue
from store.queue.record_filter import Entries, engine, property_bounds
from store.scan.distinct_names import Words
from store.scan.value_scan import ALONE, ValueScan

# Entries of a block, the unit of reads and of eviction.
_BLOCK_ENTRIES: Final = 512
# A block is 8 KiB, so all blocks are 4 MiB: the values of one property in 262,144 records.  Compiled: 12 KiB and 6 MiB.
_MAX_BLOCKS: Final = 512
if engine is not None and (_BLOCK_ENTRIES, CONSUME_QUEUE_UNIT_BYTES) != (engine.BLOCK_ENTRIES, engine.UNIT_BYTES):
    raise ImportError("the compiled engine has another layout of entries than store/layout.py: run `make engine`")
_NONE: Final = np.empty(0, np.uint64)


class _Block:
    """Cached keys of the entries from `first` to before `end`, counted from the block's first entry."""

    __slots__ = ("end", "first", "keys", "places", "revision")

    def __init__(self, revision: int, first: int) -> None:
        self.revision = revision
        self.first = self.end = first
        self.keys = np.empty(_BLOCK_ENTRIES, np.uint64)
        # Physical offsets of the records: a queue that was deleted and created again has others.
        self.places = np.empty(_BLOCK_ENTRIES, CONSUME_QUEUE_DTYPE["physical_offset"])

    def holds(self, revision: int, at: int, places: Entries) -> bool:
        """Return whether the block has the entries before `at`, and those from `at` on are still at `places`."""
        known = min(self.end - at, len(places))
        if self.revision != revision or at < self.first or known < 0:
            return False
        return bool((self.places[at : at + known] == places[:known]).all())

    def extend(self, places: Entries, keys: Words) -> None:
        end = self.end + len(keys)
        self.keys[self.end : end] = keys
        self.places[self.end : end] = places[: len(keys)]
        self.end = end


class KeptValues:
    """Cache of the keys of values (`ValueScan.keys`) by queue, property and queue offset; evicts the oldest used."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._blocks: dict[tuple[str, int, bytes, int], _Block] = {}
        # The same for the compiled engine, by the names of all properties: `ValueBlock`.
        self._compiled: dict[tuple[str, int, tuple[bytes, ...], int], Any] = {}

    def keys(self, queue: ConsumeQueue, offset: int, entries: Entries, scan: ValueScan) -> Words:
        """Return the keys of the first of `entries`, which begin at `offset`: at least one.

        Empty only if the record of the first entry is not in the log.
        """
        number, at = divmod(offset, _BLOCK_ENTRIES)
        entries = entries[: _BLOCK_ENTRIES - at]
        places = entries["physical_offset"]
        name = (queue.topic, queue.queue_id, scan.name, number)
        block = self._blocks.pop(name, None)
        if block is None or not block.holds(self._log.revision, at, places):
            block = _Block(self._log.revision, at)
        known = block.end - at
        if known < len(entries):
            block.extend(places[known:], self._read(entries[known:], scan))
        self._blocks[name] = block
        if len(self._blocks) > _MAX_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        return block.keys[at : min(block.end, at + len(entries))]

    def chosen(
        self, queue: ConsumeQueue, offset: int, entries: Entries, chooser: Any, limit: int
    ) -> tuple[list[int], int]:
        """Return the numbers of up to `limit` of `entries` that `chooser` wants, and the number of searched entries.

        `entries` begin at `offset`.  None are searched if the record of the first one is not in the log.
        """
        number, at = divmod(offset, _BLOCK_ENTRIES)
        name = (queue.topic, queue.queue_id, chooser.names, number)
        log, blocks = self._log, self._compiled
        block = blocks.pop(name, None)
        if block is None or block.revision != log.revision:
            assert engine is not None  # it has made `chooser`
            block = engine.ValueBlock(log.revision)
        segment, base, end = log.segment_at(int(entries["physical_offset"][0]))
        found: tuple[list[int], int] = chooser.choose(
            entries, segment, base, min(end, log.wrote_offset), limit, block, at
        )
        blocks[name] = block
        if len(blocks) > _MAX_BLOCKS:
            del blocks[next(iter(blocks))]
        return found

    def _read(self, entries: Entries, scan: ValueScan) -> Words:
        """Return the keys of the first of `entries`, as far as their records are in one segment."""
        segment, positions, sizes = self._log.run_at(entries)
        if not len(positions):
            return _NONE
        starts, ends = property_bounds(segment, positions, sizes)
        keys = scan.keys(segment, starts, ends)
        if not starts.all():
            keys[starts == 0] = ALONE
        return keys
