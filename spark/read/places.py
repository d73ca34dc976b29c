"""Where the blocks of a log lie in one ConsumeQueue: looked for once, all together, and kept."""

from collections.abc import Collection
from typing import Final

import numpy as np

from spark.files.consume_queue import ConsumeQueue

# A queue of so few entries is read whole: that costs less than a search.
_WHOLE_ENTRIES: Final = 32 * 1024
# Entries whose sizes stand for those of the others of a block.
_SAMPLED_ENTRIES: Final = 16


class QueuePlaces:
    """Physical offsets, and the numbers of the entries of `queue` that they fall on."""

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
        """About how many bytes the queue's records in physical offsets [`begin`, `end`) take; 0 only without any.

        Both must be places.
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
        """Whether the entries around each place can be right: see `ConsumeQueue.is_sound_at`."""
        return self.queue.are_sound_at(set(self._numbers.values()), self._entries)
