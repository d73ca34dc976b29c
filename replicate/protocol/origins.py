"""Streams of a queue: the messages that applications sent to one queue of one cluster, wherever they are now.

The messages of a stream have the same numbers and the same order in each cluster, whichever way they came.  So what a
group has consumed of a queue is a number for each stream: that of the first message that it has yet to get.  In another
cluster the group goes on at the first message with such a number or a higher one.

The group's queue must have been read for that by a link, and so must the queue to which it moves, by any link that
leads away from there.  What nobody has read yet counts as not consumed, so a group never skips a message.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Self

import msgspec

from replicate.protocol.offset_map import OffsetMap, Run


class Streams(msgspec.Struct, frozen=True):
    """What was read of a queue, from `begin` to before `end`: runs from its offsets to numbers, by name of a stream."""

    begin: int
    end: int
    runs: dict[str, tuple[Run, ...]] = {}

    def numbers(self, offset: int) -> dict[str, int]:
        """Return for each stream the number of its first message that is not before `offset`, or not read yet."""
        return {name: OffsetMap(runs, _end(runs)).translate(offset) for name, runs in self.runs.items()}

    def place(self, numbers: Mapping[str, int], clusters: Set[str]) -> int:
        """Return the first offset of a message of `clusters` that has the number of its stream or a higher one.

        It is `end` if there is none, and `begin` if such a message may lie before it.
        """
        found = self.end
        for name, runs in self.runs.items():
            if runs and cluster_of(name) in clusters:
                number = numbers.get(name, 0)
                is_before = number < runs[0].target and self.begin > 0
                found = min(found, self.begin if is_before else _first(runs, number, self.end))
        return found


class Origins:
    """Streams of a queue while it is read."""

    def __init__(self, streams: Streams) -> None:
        self._begin = streams.begin
        self.end = streams.end
        self._maps = {name: OffsetMap(runs, _end(runs)) for name, runs in streams.runs.items()}

    @classmethod
    def from_offset(cls, offset: int) -> Self:
        """Return those of a queue that is read from `offset` on."""
        return cls(Streams(offset, offset))

    @property
    def streams(self) -> Streams:
        """What was read."""
        return Streams(self._begin, self.end, {name: known.runs for name, known in self._maps.items()})

    def note(self, offset: int, origin: tuple[str, int] | None) -> None:
        """Take the message at `offset`: name of its stream and number, None if they are not known."""
        if offset < self.end:
            return
        self.end = offset + 1
        if origin is None:
            return
        name, number = origin
        known = self._maps.setdefault(name, OffsetMap())
        if number < known.target_end:
            # The cluster lost its end and goes on with other messages, or a copy is doubled: the last one counts.
            kept = tuple(_cut_number(run, number) for run in known.runs if run.target < number)
            known = self._maps[name] = OffsetMap(kept, number)
        known.add(offset, number)

    def skip(self, offset: int) -> None:
        """Go on at `offset`: the queue has no message before it any more."""
        self.end = max(self.end, offset)

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
        self.end = end
        self._maps = {}
        for name, runs in kept.items():
            if runs:
                last = runs[-1]._replace(length=min(runs[-1].length, end - runs[-1].source))
                self._maps[name] = OffsetMap((*runs[:-1], last), _end((last,)))


def moved(here: Iterable[tuple[Streams, int]], there: Streams, clusters: Set[str], translated: int) -> int:
    """Return where a group goes on there; it counts the messages of `clusters`.

    Here are the queues that are copied there, and where it goes on in each.  `translated` is its place by their maps of
    offsets: that counts where one of the queues was not read from its begin.
    """
    numbers: dict[str, int] = {}
    place = there.end
    for streams, offset in here:
        numbers |= streams.numbers(offset)
        place = place if offset >= streams.begin else there.begin
    place = min(place, there.place(numbers, clusters))
    return place if place > there.begin else min(place, translated)


def stream_name(cluster: str, queue_id: int, broker_name: str) -> str:
    """Return the name of the stream of a queue of `cluster`."""
    return f"{cluster}/{queue_id}/{broker_name}"


def cluster_of(name: str) -> str:
    """Return the cluster of a stream."""
    return name.partition("/")[0]


def _end(runs: tuple[Run, ...]) -> int:
    """Return the number after the last one; the last run is always exact."""
    return runs[-1].target + runs[-1].length if runs else 0


def _first(runs: tuple[Run, ...], number: int, nowhere: int) -> int:
    """Return the offset of the first message that has `number` or a higher one."""
    found, after = nowhere, _end(runs)
    for run in reversed(runs):
        if number >= (run.target + run.length if run.is_exact else after):
            break
        found = run.source + (max(0, number - run.target) if run.is_exact else 0)
        after = run.target
    return found


def _cut_number(run: Run, number: int) -> Run:
    return run._replace(length=min(run.length, number - run.target)) if run.is_exact else run
