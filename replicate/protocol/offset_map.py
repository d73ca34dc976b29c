"""Map from the offsets of a queue of the source to those of its queue in the target, in a bounded number of runs.

A run of `length` messages from `source` on lies in the target from `target` on.  In an exact run neighbours are
neighbours.  Of another run only is known that none of its messages lies before `target`.  An exact run that goes on
costs nothing, so the map of a target that only the replicator writes to has one run, and every offset is exact.

Where applications write to both queues, runs are short.  Old ones are joined, and a joined run is not exact: it has at
most half as many messages as follow it in the map.  So a group repeats at most half of what it is behind.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

MAX_RUNS: Final = 128
NO_ECHOES: Final = -1


class Run(NamedTuple):
    """`length` neighbours of the source, from `source` on."""

    source: int
    target: int
    length: int
    is_exact: bool


class OffsetMap:
    """Runs in the order of the source.

    `target_end` is the offset after the last copy, `echo_end` that after the last echo: a message that came from the
    target.  It is `NO_ECHOES` where none can come, as no link leads back.
    """

    def __init__(
        self, runs: Sequence[Run] = (), target_end: int = 0, max_runs: int = MAX_RUNS, *, echo_end: int = NO_ECHOES
    ) -> None:
        self._runs = list(runs)
        self.target_end = target_end
        self.echo_end = echo_end
        self._max_runs = max_runs

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, for a record."""
        return tuple(self._runs)

    @property
    def source_end(self) -> int:
        """The offset after the last message of the source in the map; 0 for none."""
        return self._runs[-1].source + self._runs[-1].length if self._runs else 0

    def add(self, source: int, target: int, *, is_echo: bool = False) -> None:
        """Add one message."""
        last = self._runs[-1] if self._runs else None
        if last and last.is_exact and source - last.source == target - last.target == last.length:
            self._runs[-1] = last._replace(length=last.length + 1)
        elif source >= self.source_end:
            self._append(Run(source, target, 1, True))
        if is_echo:
            self.echo_end = max(self.echo_end, target + 1)
        else:
            self.target_end = max(self.target_end, target + 1)

    def cover(self, source: int, source_end: int, target_end: int) -> None:
        """Record messages whose places are unknown: those of `source` to before `source_end`, before `target_end`.

        Copies among them lie after the last copy, echoes after the last echo.
        """
        source = max(source, self.source_end)
        if source < source_end:
            floor = self.target_end if self.echo_end == NO_ECHOES else min(self.target_end, self.echo_end)
            self._append(Run(source, floor, source_end - source, False))
        self.target_end = max(self.target_end, target_end)

    def cut(self, source: int, target_end: int = 0) -> None:
        """Forget what is known of messages from `source` on; the last copy lies before `target_end`."""
        kept = [run for run in self._runs if run.source < source]
        if kept:
            last = kept[-1]
            kept[-1] = last._replace(length=min(last.length, source - last.source))
        self._runs = kept
        self.target_end = target_end
        self.echo_end = min(self.echo_end, 0)

    def translate(self, offset: int) -> int:
        """Return the target's offset for a group that goes on at `offset`.

        No message from `offset` on lies before it.  Messages before `offset` may lie after it: they are repeated.
        """
        found = max(self.target_end, self.echo_end)
        for run in reversed(self._runs):
            if run.source + run.length <= offset:
                break
            inside = offset - run.source if run.is_exact else 0
            found = min(found, run.target + max(0, inside))
        return found

    def source_at(self, target: int) -> int | None:
        """Return the message of the source that lies at `target`; None if that is not known exactly."""
        for run in reversed(self._runs):
            if run.is_exact and run.target <= target < run.target + run.length:
                return run.source + target - run.target
        return None

    def _append(self, run: Run) -> None:
        self._runs.append(run)
        if len(self._runs) > self._max_runs:
            self._thin()

    def _thin(self) -> None:
        """Join neighbours, from the end on, where the joined run is at most half as long as what follows it."""
        end, kept = self.source_end, [self._runs.pop()]
        while self._runs:
            older, newer = self._runs.pop(), kept[-1]
            joined = _joined(older, newer)
            # So many runs are enough for 10^8 messages; a longer map joins its oldest ones.
            is_full = len(kept) > self._max_runs * 3 // 4
            if is_full or 2 * joined.length <= end - (joined.source + joined.length):
                kept[-1] = joined
            else:
                kept.append(older)
        self._runs = kept[::-1]


def _joined(older: Run, newer: Run) -> Run:
    length = newer.source + newer.length - older.source
    return Run(older.source, min(older.target, newer.target), length, False)
