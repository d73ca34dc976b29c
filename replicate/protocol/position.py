"""Position of a queue: where copying goes on, and for how long that is known.

The last copy in the target's queue says it.  A checkpoint only bounds the search and translates offsets, so an old one
is as good as the newest.  A position holds for one connection to the target's master, because a master that comes after
it may lack the end of the log, and for `HOLDS_S` without an answer, because another replicator may have taken over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from replicate.protocol.marks import Mark
from replicate.protocol.offset_map import NO_ECHOES, OffsetMap, Run
from replicate.protocol.origins import Origins, Streams

HOLDS_S: Final = 30.0


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the target keeps about a queue.  All offsets named `source_...` are those of the source."""

    target_broker: str
    target_queue_id: int
    start: int  # where copying began
    next_offset: int
    target_end: int = 0  # after the last copy; without one, where the target's queue ended at the start
    has_copies: bool = False
    epoch: int = 0
    runs: tuple[Run, ...] = ()
    source_end: int = 0  # when the source was read last
    missed: int = 0  # messages that expired at the source before they were copied
    refused: int = 0  # messages that the target does not take and that were left out
    copied_ms: int = 0  # store time at the source of the last copy
    at_ms: int = 0
    blocked: str = ""  # why the queue stands still
    echo_end: int = NO_ECHOES  # after the last message of the target's queue that came back
    streams: Streams | None = None  # of the source's queue, among three and more clusters

    @property
    def map(self) -> OffsetMap:
        """The map of offsets."""
        return OffsetMap(self.runs, self.target_end, echo_end=self.echo_end)


def late_s(lag: int, copied_ms: int, now_ms: int) -> float:
    """Return the age of the last copy while messages are missing, s; 0 before it, and if its clock is ahead."""
    return max(0, now_ms - copied_ms) / 1000 if lag and copied_ms else 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """The last copy in the target's queue and its offset there."""

    mark: Mark
    offset: int


class Stretch(NamedTuple):
    """Messages of the source from `source` to before `source_end` that the map lacks.

    Their copies lie in the target's queue from `begin` to before `end`, the last one just before `end`.
    """

    source: int
    source_end: int
    begin: int
    end: int


class Position:
    """Position of one queue while a replicator copies it."""

    def __init__(self, checkpoint: Checkpoint, *, keeps_origins: bool = False) -> None:
        self.map = checkpoint.map
        self.origins: Origins | None = None
        if keeps_origins:
            known = checkpoint.streams
            self.origins = Origins.from_offset(checkpoint.next_offset) if known is None else Origins(known)
        self.has_copies = checkpoint.has_copies
        self.next_offset = checkpoint.next_offset
        self.start = checkpoint.start
        self.epoch = checkpoint.epoch
        self._session: object | None = None
        self._known_s = 0.0

    def is_of(self, session: object) -> bool:
        """Return whether the position was found on this connection to the target."""
        return self._session is session

    def holds(self, session: object, now_s: float) -> bool:
        """Return whether the position is still known, on this connection to the target."""
        return self._session is session and now_s - self._known_s < HOLDS_S

    def lose(self) -> None:
        """Forget the position: the outcome of a send is unknown."""
        self._session = None

    def take_streams(self, known: Checkpoint | None, begin: int, most: int) -> None:
        """Take the streams that another replicator has read further; the source has no message before `begin`.

        Where they lack more than `most` messages they begin again.
        """
        if self.origins is None:
            return
        if known is not None and known.streams is not None and known.epoch == self.epoch:
            self.origins = max(self.origins, Origins(known.streams), key=lambda one: one.end)
        self.origins.skip(begin)
        if self.next_offset - self.origins.end > most:
            self.origins = Origins.from_offset(self.next_offset)

    @property
    def read_from(self) -> int:
        """Where the source's queue is read from: a message that another replicator copied is read for its origin."""
        return self.next_offset if self.origins is None else min(self.next_offset, self.origins.end)

    @property
    def floor(self) -> int:
        """Offset of the target's queue down to which the last copy is searched; it is there unless it was lost."""
        return max(0, self.map.target_end - 1) if self.has_copies else self.map.target_end

    def is_lost(self, found: Found | None, target_begin: int, target_end: int) -> bool:
        """Return whether the target lost copies of the checkpoint, given the search down to `floor`.

        Then the whole queue must be searched.  Copies that expired in the target are not lost.
        """
        if not self.has_copies:
            return False
        if found is not None:
            # A later copy may have the place of a lost one.
            return found.offset == self.floor and self.map.source_at(self.floor) not in (None, found.mark.offset)
        return target_end <= self.floor or target_begin <= self.floor

    def locate(
        self, found: Found | None, target_end: int, *, was_lost: bool, session: object, now_s: float
    ) -> Stretch | None:
        """Take the result of the search: of the whole queue if the target lost copies.

        Return the stretch that must be read, and then closed; None if the position is known.
        """
        self._session, self._known_s = session, now_s
        if found is None:
            if was_lost:
                self.map.cut(0)
                self.has_copies = False
                self.next_offset = self.start
            return None
        after = found.mark.offset + 1
        if was_lost:
            # Another replicator may have copied lost messages again since, to other places: all are read again.
            self.map.cut(0)
            if after > self.next_offset:  # the source was rewound, and only older copies are left
                self.map.cover(self.start, self.next_offset, found.offset + 1)
                return None
            self.next_offset = self.start
            return Stretch(self.start, after, 0, found.offset + 1)
        if self.has_copies and found.offset == self.floor:
            return None  # what follows it was left out, or the source was rewound
        if after < self.map.source_end:
            self.map.cut(after, found.offset + 1)
        self.next_offset = max(self.map.source_end or self.start, min(self.next_offset, after))
        return Stretch(self.next_offset, after, self.map.target_end, found.offset + 1)

    def place(self, offset: int, place: int, *, is_echo: bool = False) -> None:
        """Record where a message of a stretch lies; they come in order."""
        self.map.add(offset, place, is_echo=is_echo)
        self.has_copies = self.has_copies or not is_echo
        self.next_offset = max(self.next_offset, offset + 1)

    def close(self, stretch: Stretch) -> None:
        """Go on after a stretch.  What was not read of it is known only as a whole."""
        self.map.cover(self.next_offset, stretch.source_end, stretch.end)
        self.has_copies = True
        self.next_offset = max(self.next_offset, stretch.source_end)

    def sent(self, offsets: Sequence[int], first_place: int, echoes: Sequence[tuple[int, int]], now_s: float) -> None:
        """Record that messages `offsets` of the source lie in the target from `first_place` on.

        `echoes` came from the target's queue and lie before, between and after them: (offset here, offset there).
        """
        copies = [(offset, place, False) for place, offset in enumerate(offsets, first_place)]
        for source, target, is_echo in sorted([*copies, *((*echo, True) for echo in echoes)]):
            self.map.add(source, target, is_echo=is_echo)
        if offsets:
            self.has_copies = True
            self._known_s = now_s

    def expired(self, begin: int) -> int:
        """Go on at `begin` at least, as the source has no older messages; return how many were not copied."""
        missed = max(0, begin - self.next_offset)
        self.next_offset += missed
        return missed

    def advance(self, offset: int) -> None:
        """Go on at `offset`: the messages before it are copied, left out or gone."""
        self.next_offset = offset

    def rewind(self, offset: int, stream: str) -> None:
        """Go on at `offset`, from which on the source has other messages than before.  The target numbers them anew.

        `stream` is that of the queue itself.
        """
        if self.origins is not None:
            self.origins.lose(offset, stream)
        self.next_offset = offset
        self.start = min(self.start, offset)
        self.epoch += 1
        self.map.cut(offset, self.map.target_end)
