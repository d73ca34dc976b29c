"""Comparison of one ConsumeQueue with the log, both ways: every record has its entry, every entry its record.

The log is walked once, and each queue gets its records in the order of the log.  If queue offsets step back, the topic
was deleted and created again, and its earlier records no longer count.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC
from store.inspection.file_sequence import FileSequence
from store.layout import CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_UNIT_BYTES
from store.queue.consume_queue import BLANK_SIZE

UNIT: Final = CONSUME_QUEUE_UNIT_BYTES
Entries = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]
_ENTRIES_AT_ONCE: Final = 64 * 1024
_MAX_RANGES: Final = 1_000
# A larger jump ahead of the record before is believed only if the queue agrees.
_MAX_JUMP: Final = 1 << 24
_MAX_QUEUE_OFFSET: Final = 1 << 58
# `ConsumeQueueExt.MAX_ADDR`: a tags code at or below it is the address of an entry in consumequeue_ext.
_MAX_EXT_ADDRESS: Final = -(1 << 31) - 1


class Kind(StrEnum):
    """How entries and log disagree."""

    MISSING = "missing"  # a record has no entry
    WRONG = "wrong"  # a record's entry points elsewhere
    BLANKED = "blanked"  # a record's entry is blank
    TAGS = "tags"  # a record's entry has another tags code
    LOST = "lost"  # an entry points into damage: its message is gone
    ORPHAN = "orphan"  # an entry points to a place where no record of this queue offset begins
    BEYOND = "beyond"  # an entry points after the log's end
    HOLE = "hole"  # zeros between entries


@dataclass(frozen=True, slots=True)
class Disagreement:
    """`count` entries from `offset` on.  The first should point, or points, to `physical_offset`."""

    kind: Kind
    offset: int
    count: int
    physical_offset: int


@dataclass(frozen=True)
class LogBounds:
    """Bounds of the log: its first offset and end, and sorted (start, end) of its gaps."""

    start: int
    end: int
    gaps: Sequence[tuple[int, int]] = ()

    def in_gap(self, physical_offset: int) -> bool:
        """Return whether `physical_offset` is in a gap."""
        at = bisect_right(self.gaps, (physical_offset, 1 << 63)) - 1
        return at >= 0 and self.gaps[at][0] <= physical_offset < self.gaps[at][1]


@dataclass
class QueueInspection:
    """One queue.  ``[first, next_offset)`` are the queue offsets of the log's records; -1 without any."""

    topic: str
    queue_id: int
    files: FileSequence
    first: int = -1
    next_offset: int = -1
    disagreements: list[Disagreement] = field(default_factory=list)
    unlisted: int = 0
    entries: int = 0
    # (physical offset, records) of runs with an impossible queue offset.
    misplaced: list[tuple[int, int]] = field(default_factory=list)
    # (start, end) of queue offsets between records of the log that no record has.
    _between: list[tuple[int, int]] = field(default_factory=list)
    # On a running store: runs that disagreed, to be checked again at the end.
    _doubtful: list[tuple[int, Entries]] = field(default_factory=list)

    @property
    def first_file_offset(self) -> int:
        """Queue offset of the first entry that lies in a file."""
        return self.files.first_offset // UNIT

    def entries_at(self, offset: int, count: int) -> Entries:
        """Return `count` entries from `offset` on; zeros for missing files."""
        return np.frombuffer(self.files.bytes_at(offset * UNIT, count * UNIT), CONSUME_QUEUE_DTYPE)

    def add(self, offset: int, expected: Entries, *, is_running: bool = False) -> None:
        """Compare records of this queue, with queue offsets from `offset` on."""
        if not self._fits(offset, expected):
            self.misplaced.append((int(expected[0]["physical_offset"]), len(expected)))
            return
        if self.next_offset < 0:
            self.first = offset
        elif offset < self.next_offset:
            self._restart(offset)
        elif offset > self.next_offset:
            self._between.append((self.next_offset, offset))
        self.next_offset = offset + len(expected)
        if self.entries_at(offset, len(expected)).tobytes() != expected.tobytes():
            if is_running and len(self._doubtful) < _MAX_RANGES:
                self._doubtful.append((offset, expected))
            else:
                self._compare(offset, expected)

    def _fits(self, offset: int, expected: Entries) -> bool:
        """Return whether these queue offsets are possible: a record without its own CRC may hold any offset.

        They must follow the last one, start at 0 because the topic was created again, or agree with the queue.
        """
        if offset < 0 or offset > _MAX_QUEUE_OFFSET:
            return False
        known = self.next_offset if self.next_offset >= 0 else self.first_file_offset
        is_near = offset <= known + _MAX_JUMP and (offset >= known or self.next_offset < 0)
        is_near |= offset == 0 or not self.files.parts
        return is_near or self.entries_at(offset, len(expected)).tobytes() == expected.tobytes()

    def _restart(self, offset: int) -> None:
        self.disagreements = [found for found in self.disagreements if found.offset + found.count <= offset]
        self._between = [(start, min(end, offset)) for start, end in self._between if start < offset]
        self._doubtful = [(start, run) for start, run in self._doubtful if start + len(run) <= offset]
        self.first = min(self.first, offset)

    def _compare(self, offset: int, expected: Entries) -> None:
        actual = self.entries_at(offset, len(expected))
        is_elsewhere = (actual["physical_offset"] != expected["physical_offset"]) | (actual["size"] != expected["size"])
        is_missing = is_elsewhere & (actual["size"] == 0) & (actual["physical_offset"] == 0)
        is_blank = is_elsewhere & (actual["size"] == BLANK_SIZE)
        tags = actual["tags_code"]
        is_other_tag = ~is_elsewhere & (tags != expected["tags_code"]) & (tags > _MAX_EXT_ADDRESS)
        if self.topic == SCHEDULE_TOPIC:
            # The delivery time was derived from messageDelayLevel when the message arrived.
            is_other_tag[:] = False
        self._note(offset, Kind.MISSING, is_missing, expected["physical_offset"])
        self._note(offset, Kind.BLANKED, is_blank, expected["physical_offset"])
        self._note(offset, Kind.WRONG, is_elsewhere & ~is_missing & ~is_blank, expected["physical_offset"])
        self._note(offset, Kind.TAGS, is_other_tag, expected["physical_offset"])

    def _note(
        self, offset: int, kind: Kind, mask: npt.NDArray[np.bool_], physical_offsets: npt.NDArray[np.int64]
    ) -> None:
        """Note one disagreement for each run of true values of `mask`."""
        if not mask.any():
            return
        edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if len(self.disagreements) >= _MAX_RANGES:
                self.unlisted += end - start
            else:
                found = Disagreement(kind, offset + start, end - start, int(physical_offsets[start]))
                self.disagreements.append(found)

    def finish(self, bounds: LogBounds, *, is_running: bool = False) -> None:
        """Check the doubtful runs again after the walk, and the entries without a record."""
        for offset, expected in self._doubtful:
            self._compare(offset, expected)
        self._doubtful.clear()
        begin = self.first_file_offset
        end = self._end_of_content()
        self.entries = max(0, max(end, self.next_offset) - begin)
        claimed_from = self.first if self.first >= 0 else end
        self._unclaimed(begin, min(claimed_from, end), bounds, is_tail=False)
        for start, stop in self._between:
            self._unclaimed(start, stop, bounds, is_tail=False)
        if self.next_offset >= 0:
            self._unclaimed(self.next_offset, end, bounds, is_tail=True)
        if is_running:
            self.disagreements = [found for found in self.disagreements if found.kind is not Kind.BEYOND]
        self.disagreements.sort(key=lambda found: found.offset)

    def _end_of_content(self) -> int:
        """Return the end of the entries that are not all zeros."""
        for part in reversed(self.files.parts):
            size = self.files.view(part).end_of_content()
            if size:
                return (part.start + min(size, self.files.file_bytes) + UNIT - 1) // UNIT
        return self.first_file_offset

    def _unclaimed(self, start: int, end: int, bounds: LogBounds, *, is_tail: bool) -> None:
        for at in range(start, end, _ENTRIES_AT_ONCE):
            entries = self.entries_at(at, min(_ENTRIES_AT_ONCE, end - at))
            places = entries["physical_offset"].astype(np.int64)
            sizes = entries["size"]
            is_zero = (places == 0) & (sizes == 0) & (entries["tags_code"] == 0)
            is_settled = (sizes == BLANK_SIZE) | ((places < bounds.start) & (sizes > 0) & (places >= 0))
            is_beyond = ~is_settled & ~is_zero & (places >= bounds.end)
            is_lost = (
                np.array([bounds.in_gap(place) for place in places.tolist()], np.bool_) if bounds.gaps else is_zero
            )
            is_lost = is_lost & ~is_zero & ~is_settled & (sizes > 0)
            if not is_tail:
                self._note(at, Kind.HOLE, is_zero, places)
            self._note(at, Kind.BEYOND, is_beyond, places)
            self._note(at, Kind.LOST, is_lost & ~is_beyond, places)
            self._note(at, Kind.ORPHAN, ~(is_settled | is_zero | is_beyond | is_lost), places)

    def lost_offsets(self) -> Iterator[int]:
        """Yield queue offsets whose messages are in the log's damage."""
        for found in self.disagreements:
            if found.kind is Kind.LOST:
                yield from range(found.offset, found.offset + found.count)

    @property
    def must_be_rebuilt(self) -> bool:
        """Return whether the queue disagrees with the log beyond what damage of the log explains."""
        return bool(self.unlisted) or any(found.kind is not Kind.LOST for found in self.disagreements)
