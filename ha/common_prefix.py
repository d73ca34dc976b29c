"""Finds how much two logs have in common by comparing checksums of ranges, from the end backward and then by halves.

Two logs are equal up to a place and differ behind it: whoever went another way did so with other records.  So a range
that is equal means that all before it is.
"""

from typing import Final

# The first look is at so much of the end; each further one is at twice as much, up to the largest.
_FIRST_BYTES: Final = 64 * 1024
LARGEST_BYTES: Final = 4 * 1024 * 1024
# Logs that differ for longer than this are not those of one master.
MOST_BYTES: Final = 2 * 1024 * 1024 * 1024


class CommonPrefix:
    """One search between `low`, before which nothing is looked at, and `high`, the end of the shorter log.

    Ask `next_range`, compare it, say so to `compared`; until `next_range` is None.
    """

    def __init__(self, low: int, high: int, *, most_bytes: int = MOST_BYTES) -> None:
        self.low = low
        self.high = self._top = high
        self._floor = max(low, high - most_bytes)
        self._step = _FIRST_BYTES
        # Behind the last range that was equal; the first difference lies before `_differs_before`.
        self._equal_to = -1
        self._differs_before = high + 1
        self.is_done = high <= low

    @property
    def end(self) -> int:
        """Once it is done: the first byte that differs; `low` if nothing is known to be equal."""
        return self._equal_to if self._equal_to >= 0 else self.low

    def next_range(self) -> tuple[int, int] | None:
        """(offset, bytes) to compare; None when it is done."""
        if self.is_done:
            return None
        if self._equal_to < 0:
            start = max(self._floor, self._top - self._step)
            return start, self._top - start
        return self._equal_to, (self._differs_before - self._equal_to) // 2

    def compared(self, is_equal: bool) -> None:
        """Whether the logs are equal in `next_range`."""
        found = self.next_range()
        assert found is not None
        start, size = found
        if is_equal:
            self._equal_to = start + size
        else:
            self._differs_before = start + size
            self._top = start
            self._step = min(2 * self._step, LARGEST_BYTES)
        if self._equal_to < 0 and self._top <= self._floor:
            if self._floor > self.low:
                self.is_done = True
                return
            self._equal_to = self.low
        if self._equal_to >= 0:
            self.is_done = self._equal_to == self.high or self._differs_before - self._equal_to <= 1
