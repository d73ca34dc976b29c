"""Search for the common prefix of two logs, by checksums of ranges: backward from the end, then by halving.

Two logs are equal up to some offset and differ after it.  Logs that diverged have different records from there on, so
one equal range proves that everything before it is equal.
"""

from typing import Final

# Size of the first range that is compared.  Each further range is twice as large, up to `MAX_RANGE_BYTES`.
_FIRST_BYTES: Final = 64 * 1024
MAX_RANGE_BYTES: Final = 4 * 1024 * 1024
# Logs that differ over more bytes than this do not come from one master.
MAX_BYTES: Final = 2 * 1024 * 1024 * 1024


class CommonPrefix:
    """One search between `low`, the first offset to compare, and `high`, the end of the shorter log.

    Compare `next_range` and report the result to `compared`, until `next_range` is None.
    """

    def __init__(self, low: int, high: int, *, max_bytes: int = MAX_BYTES) -> None:
        self.low = low
        self.high = self._top = high
        self._floor = max(low, high - max_bytes)
        self._step = _FIRST_BYTES
        # `_equal_to` is the end of the last equal range, -1 before there is one.  The first difference is before
        # `_differs_before`.
        self._equal_to = -1
        self._differs_before = high + 1
        self.is_done = high <= low

    @property
    def end(self) -> int:
        """The first byte that differs, once the search is done; `low` if no range was equal."""
        return self._equal_to if self._equal_to >= 0 else self.low

    def next_range(self) -> tuple[int, int] | None:
        """Return (offset, bytes) to compare, or None when the search is done."""
        if self.is_done:
            return None
        if self._equal_to < 0:
            start = max(self._floor, self._top - self._step)
            return start, self._top - start
        return self._equal_to, (self._differs_before - self._equal_to) // 2

    def compared(self, is_equal: bool) -> None:
        """Take the result for `next_range`: whether the two logs are equal there."""
        found = self.next_range()
        assert found is not None
        start, size = found
        if is_equal:
            self._equal_to = start + size
        else:
            self._differs_before = start + size
            self._top = start
            self._step = min(2 * self._step, MAX_RANGE_BYTES)
        if self._equal_to < 0 and self._top <= self._floor:
            if self._floor > self.low:
                self.is_done = True
                return
            self._equal_to = self.low
        if self._equal_to >= 0:
            self.is_done = self._equal_to == self.high or self._differs_before - self._equal_to <= 1
