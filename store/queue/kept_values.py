"""Keeps what a property is in the records of a queue, so that the next filter that names it reads none of them again.

Many groups filter one topic by the same few properties, each with an expression of its own, and held pulls ask about
the newest records once for each group.
"""

from typing import Final

import numpy as np

from store.layout import CONSUME_QUEUE_DTYPE
from store.log.commit_log import CommitLog
from store.queue.consume_queue import ConsumeQueue
from store.queue.record_filter import Entries, property_bounds
from store.record.distinct_names import Words
from store.record.value_scan import ALONE, ValueScan

# Entries of a block, which are looked at together and let go together.
_BLOCK_ENTRIES: Final = 512
# A block is 8 KiB, so all are 4 MiB: what 262,144 records have in one property.
_MAX_BLOCKS: Final = 512
_NONE: Final = np.empty(0, np.uint64)


class _Block:
    """What is known of some entries: those from `first` to before `end`, counted from the block's first."""

    __slots__ = ("end", "first", "keys", "places", "revision")

    def __init__(self, revision: int, first: int) -> None:
        self.revision = revision
        self.first = self.end = first
        self.keys = np.empty(_BLOCK_ENTRIES, np.uint64)
        # Where the records lie: a queue that was deleted and made anew has others.
        self.places = np.empty(_BLOCK_ENTRIES, CONSUME_QUEUE_DTYPE["physical_offset"])

    def holds(self, revision: int, at: int, places: Entries) -> bool:
        """Whether the block knows entries up to the one at `at`, and those from there on are still at `places`."""
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
    """Keys of values (see `ValueScan.keys`) by queue, property and place in the queue, the last used ones."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._blocks: dict[tuple[str, int, bytes, int], _Block] = {}

    def keys(self, queue: ConsumeQueue, offset: int, entries: Entries, scan: ValueScan) -> Words:
        """The keys of the first of `entries`, which begin at `offset`, at least one.

        None only if the record of the very first is not in the log.
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
        """Keys of as many of the first of `entries` as have their records in one segment."""
        segment, positions, sizes = self._log.run_at(entries)
        if not len(positions):
            return _NONE
        starts, ends = property_bounds(segment, positions, sizes)
        keys = scan.keys(segment, starts, ends)
        if not starts.all():
            keys[starts == 0] = ALONE
        return keys
