"""Lag of a group in its lite topics: the sum, the largest, and the oldest, each without a search of all.  Pure.

Only lite topics with a lag are kept.
"""

import heapq
from collections.abc import Callable, Generator
from typing import Final

from broker.lite.intervals import UNKNOWN, Intervals

_INTERVAL_MS: Final = 10_000
# Longest time from the storing of a message to its confirmation.  After a longer one, its place may be too far behind.
_CONFIRMED_MS: Final = 5_000


class GroupLag:
    """Messages that a group has not consumed, by lite topic; `is_whole` once all lite topics have been looked at."""

    def __init__(self) -> None:
        self.is_whole = False
        self.total = 0
        self._lags: dict[str, int] = {}
        self._by_lag: dict[int, dict[str, None]] = {}
        # Each queue in the interval of its oldest message that is not consumed, or in an earlier one.
        self._begins = Intervals()

    def __len__(self) -> int:
        """Return the number of lite topics with a lag."""
        return len(self._lags)

    def has_all(self) -> None:
        """Note that all lite topics have been looked at."""
        self.is_whole = True

    def of(self, queue: str) -> int:
        """Return the lag in a queue."""
        return self._lags.get(queue, 0)

    def set(self, queue: str, lag: int, since_ms: int = UNKNOWN) -> None:
        """Set the lag in a queue; if it had none or less, it is older than `since_ms`, the time of its last message."""
        before = self._lags.get(queue, 0)
        if lag == before:
            return
        self.total += lag - before
        if before:
            queues = self._by_lag[before]
            del queues[queue]
            if not queues:
                del self._by_lag[before]
        if not lag:
            del self._lags[queue]
            self._begins.remove(queue)
            return
        self._lags[queue] = lag
        self._by_lag.setdefault(lag, {})[queue] = None
        if not before:
            at_ms = max(since_ms - _CONFIRMED_MS, UNKNOWN)
            self._begins.put(queue, at_ms - at_ms % _INTERVAL_MS)
        elif lag > before and since_ms == UNKNOWN:
            self._begins.put(queue, UNKNOWN)  # the group was moved back

    def largest(self, count: int) -> list[str]:
        """Return the queues with the largest lags, the largest first."""
        found: list[str] = []
        for lag in sorted(self._by_lag, reverse=True) if count else ():
            for queue in self._by_lag[lag]:
                found.append(queue)
                if len(found) == count:
                    return found
        return found

    def oldest(self, count: int, time_of: Callable[[str], int]) -> Generator[None, None, list[tuple[int, str]]]:
        """Return times, ms, and queues with the oldest messages that are not consumed, the oldest first; in steps.

        `time_of` gives the store time of the first of them in a queue; not positive, if it cannot be read.
        """
        found: list[tuple[int, str]] = []
        begin_ms = self._begins.next_begin(UNKNOWN - 1)
        while begin_ms is not None and len(found) < count:
            for queue in self._begins.all_of(begin_ms):
                if self._begins.begin_of(queue) != begin_ms:
                    continue  # it has changed since the last step
                time_ms = time_of(queue)
                if time_ms >= begin_ms + _INTERVAL_MS:
                    self._begins.put(queue, time_ms - time_ms % _INTERVAL_MS)
                elif time_ms > 0:
                    found.append((time_ms, queue))
                yield
            begin_ms = self._begins.next_begin(begin_ms)
        return heapq.nsmallest(count, found)
