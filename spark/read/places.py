"""Places of a log's blocks in one ConsumeQueue, found once in a single search."""

from collections.abc import Collection
from typing import Final

import numpy as np

from spark.files.consume_queue import ConsumeQueue

# A queue with at most this many entries is read as a whole, which costs less than a search.
_WHOLE_ENTRIES: Final = 32 * 1024
# Entries of a block to sample for the size of its records.
_SAMPLED_ENTRIES: Final = 16


class QueuePlaces:
    """Physical offsets, with the numbers of the entries of `queue` at or after them."""

    def __init__(self, queue: ConsumeQueue, places: Collection[int]) -> None:
        self.queue = queue
        ordered = sorted(places)
        self._entries = None
        if queue.end - queue.begin <= _WHOLE_ENTRIES:
            self._entries = queue.entries(queue.begin, queue.end)
            found = np.searchsorted(self._entries["physical_offset"].astype(np.int64), ordered)
            numbers = (queue.begin + found).tolist()
        else:
            numbers = queue.numbers_at(ordered)
        self._numbers: dict[int, int] = dict(zip(ordered, numbers, strict=True))

    def bytes_between(self, begin: int, end: int) -> int:
        """Estimate the bytes of the queue's records in physical offsets [`begin`, `end`); 0 only without records.

        Both offsets must be among the places.
        """
        first, past = self._numbers[begin], self._numbers[end]
        if past <= first:
            return 0
        sampled = min(past, first + _SAMPLED_ENTRIES)
        if self._entries is None:
            sizes = self.queue.entries(first, sampled)["size"]
        else:
            sizes = self._entries["size"][first - self.queue.begin : sampled - self.queue.begin]
        return max(1, (past - first) * int(sizes.astype(np.int64).sum()) // max(1, sizes.size))

    def are_sound(self) -> bool:
        """Return whether the entries around each place are plausible: see `ConsumeQueue.is_sound_at`."""
        return self.queue.are_sound_at(set(self._numbers.values()), self._entries)
