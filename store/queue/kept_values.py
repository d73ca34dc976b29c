"""Cache of the values of a property in the records of a queue, for the next filter on the same property.

Many groups filter one topic by the same few properties, each with its own expression.  Held pulls check the newest
records once for each group.
"""

from typing import Final

import numpy as np

from store.layout import CONSUME_QUEUE_DTYPE
from store.log.commit_log import CommitLog
from store.queue.consume_queue import ConsumeQueue
from store.queue.record_filter import Entries, property_bounds
from store.scan.distinct_names import Words
from store.scan.value_scan import ALONE, ValueScan

# Entries of a block, the unit of reads and of eviction.
_BLOCK_ENTRIES: Final = 512
# A block is 8 KiB, so all blocks are 4 MiB: the values of one property in 262,144 records.
_MAX_BLOCKS: Final = 512
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
