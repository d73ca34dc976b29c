"""Streams of a queue: the messages that applications sent to one queue of one cluster, wherever they are now.

The messages of a stream have the same numbers and the same order in each cluster, whichever way they came.  So what a
group has consumed of a queue is a number for each stream: that of the first message that it has yet to get.  In another
cluster the group goes on at the first message with such a number or a higher one.

The group's queue must have been read for that by a link, and so must the queue to which it moves, by any link that
leads away from there.  What nobody has read yet counts as not consumed, and where a group stands before what was read,
its place is not known.  So a group never skips a message.

A cluster that lost the end of a queue gives numbers a second time.  Then the messages from the first such number on are
one run that is not exact, until the numbers are new again.  Meanwhile a run without messages ends the stream: it has
the first new number.  A group that consumed such numbers in a queue that was not read so far may have consumed those of
before, so there it counts as if it had consumed none of them.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final, Self

import msgspec

from replicate.protocol.offset_map import OffsetMap, Run

# More come only from marks that a producer has made up.
MAX_STREAMS: Final = 256


class Streams(msgspec.Struct, frozen=True):
    """What was read of a queue, from `begin` to before `end`: runs from its offsets to numbers, by name of a stream.

    With `begin` 0 all messages that the queue still has were read.  `again` has the streams whose numbers came a second
    time: the first such number, and the offset of the message that showed it.
    """

    begin: int
    end: int
    runs: dict[str, tuple[Run, ...]] = {}
    again: dict[str, tuple[int, int]] = {}

    def numbers(self, offset: int) -> dict[str, int]:
        """Return for each stream the number of its first message that is not before `offset`, or not read yet."""
        return {name: OffsetMap(runs, _due(runs)).translate(offset) for name, runs in self.runs.items()}

    def place(self, numbers: Mapping[str, int], clusters: Set[str]) -> int | None:
        """Return the first offset of a message of `clusters` that has the number of its stream or a higher one.

        It is `end` if there is none, and None if such a message may lie before `begin`.
        """
        counted = {name: runs for name, runs in self.runs.items() if runs and cluster_of(name) in clusters}
        if self.begin and not self._has_all(counted, numbers, clusters):
            return None
        return min((_first(runs, numbers.get(name, 0), self.end) for name, runs in counted.items()), default=self.end)

    def _has_all(self, counted: Mapping[str, tuple[Run, ...]], numbers: Mapping[str, int], clusters: Set[str]) -> bool:
        """Return whether all messages before `begin` are consumed, as one after it is of each stream."""
        streams = counted.keys() | {name for name in numbers if cluster_of(name) in clusters}
        is_known = clusters == {cluster_of(name) for name in counted}
        return is_known and all(name in counted and counted[name][0].target < numbers.get(name, 0) for name in streams)


class Origins:
    """Streams of a queue while it is read."""

    def __init__(self, streams: Streams) -> None:
        self._begin = streams.begin
        self.end = streams.end
        self._maps = {name: OffsetMap(runs, _end(runs)) for name, runs in streams.runs.items()}
        self._again = dict(streams.again)
        self._streams: Streams | None = streams

    @classmethod
    def from_offset(cls, offset: int) -> Self:
        """Return those of a queue that is read from `offset` on."""
        return cls(Streams(offset, offset))

    @property
    def streams(self) -> Streams:
        """What was read."""
        if self._streams is None:
            runs = {name: known.runs for name, known in self._maps.items()}
            self._streams = Streams(self._begin, self.end, runs, dict(self._again))
        return self._streams

    def note(self, offset: int, origin: tuple[str, int] | None) -> None:
        """Take the message at `offset`: name of its stream and number, None if they are not known."""
        if offset < self.end:
            return
        self.end, self._streams = offset + 1, None
        if origin is None or (origin[0] not in self._maps and len(self._maps) == MAX_STREAMS):
            # A group before it cannot be placed, as its stream may be any.
            self._begin, self._maps = self.end, {}
            return
        name, number = origin
        known = self._maps.setdefault(name, OffsetMap())
        runs = known.runs
        if number < known.target_end:
            runs = _with_again(runs, offset, number)
            self._maps[name] = OffsetMap(runs, _end(runs))
            self._again[name] = runs[-2].target, offset
            return
        if runs and not runs[-1].length:
            known = self._maps[name] = OffsetMap(runs[:-1], number)
        known.add(offset, number)

    def skip(self, offset: int) -> None:
        """Go on at `offset`: the queue has no message before it any more."""
        self.end, self._streams = max(self.end, offset), None
        if offset >= self._begin:
            self._begin = 0
        self._again = {name: known for name, known in self._again.items() if known[1] >= offset}

    def lose(self, end: int, name: str) -> None:
        """Forget what was read from `end` on: the queue lost it, whose own stream `name` has its offsets as numbers."""
        self.cut(end)
        self._again[name] = end, end

    def cut(self, end: int) -> None:
        """Forget what was read from `end` on, and some before it, which is to be read again."""
        end = min(end, self.end)
        kept = {name: known.runs for name, known in self._maps.items()}
        while True:
            kept = {name: tuple(run for run in runs if run.source < end) for name, runs in kept.items()}
            # Which numbers a part of a joined run has is not known.
            joined = [runs[-1].source for runs in kept.values() if runs and not runs[-1].is_exact]
            if not joined:
                break
            end = min(joined)
        self.end, self._streams = end, None
        self._begin = min(self._begin, end)
        self._maps = {}
        for name, runs in kept.items():
            if runs:
                last = runs[-1]._replace(length=min(runs[-1].length, end - runs[-1].source))
                self._maps[name] = OffsetMap((*runs[:-1], last), _end((last,)))


def moved(here: Iterable[tuple[Streams, int]], there: Streams, clusters: Set[str]) -> int | None:
    """Return where a group goes on there; it counts the messages of `clusters`.  None if that is not known.

    Here are the queues that are copied there, and where it goes on in each.
    """
    numbers: dict[str, int] = {}
    seen: dict[str, int] = {}
    for streams, offset in here:
        if offset < streams.begin:
            return None
        for name, number in streams.numbers(offset).items():
            numbers[name] = min(number, numbers.get(name, number))
        seen |= {name: number for name, (number, _) in streams.again.items()}
    for name, (number, _) in there.again.items():
        if name in numbers and seen.get(name) != number:
            numbers[name] = min(number, numbers[name])
    return there.place(numbers, clusters)


def stream_name(cluster: str, queue_id: int, broker_name: str) -> str:
    """Return the name of the stream of a queue of `cluster`."""
    return f"{cluster}/{queue_id}/{broker_name}"


def cluster_of(name: str) -> str:
    """Return the cluster of a stream."""
    return name.partition("/")[0]


def _end(runs: tuple[Run, ...]) -> int:
    """Return the number after the highest one; the last run is always exact."""
    return runs[-1].target + runs[-1].length if runs else 0


def _due(runs: tuple[Run, ...]) -> int:
    """Return the number of the first message that was not read yet, or a lower one while numbers come again."""
    return _end(runs) if not runs or runs[-1].length else runs[-2].target


def _first(runs: tuple[Run, ...], number: int, nowhere: int) -> int:
    """Return the offset of the first message that has `number` or a higher one."""
    found, after = nowhere, _end(runs)
    for run in reversed(runs):
        if number >= (run.target + run.length if run.is_exact else after):
            break
        found = run.source + (max(0, number - run.target) if run.is_exact else 0)
        after = run.target
    return found


def _with_again(runs: tuple[Run, ...], offset: int, number: int) -> tuple[Run, ...]:
    """Return the runs of a stream after a message at `offset` whose number the stream had before.

    The cluster lost its end, or a copy is doubled.
    """
    kept = [run for run, end in zip(runs, _ends(runs), strict=True) if end <= number]
    first = runs[len(kept)]
    source, target = first.source, min(first.target, number)
    if first.is_exact and target < number:
        kept.append(first._replace(length=number - target))
        source, target = source + number - target, number
    return (*kept, Run(source, target, offset + 1 - source, False), Run(offset + 1, _end(runs), 0, True))


def _ends(runs: tuple[Run, ...]) -> list[int]:
    """Return for each run a number that is higher than each of its own."""
    following = (*(run.target for run in runs[1:]), 0)
    return [run.target + run.length if run.is_exact else after for run, after in zip(runs, following, strict=True)]
