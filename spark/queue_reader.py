"""Reading ranges of queues from a store directory: ConsumeQueue entries become rows in chunks.

The ranges of one task are read together, in the order of the log, which is also the order of every queue: many
queues with few messages each make full chunks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from spark.chunk_rows import Rows, chunk_rows
from spark.consume_queue import PRE_BLANK_SIZE, ConsumeQueue
from spark.damage import Damage
from spark.data_loss import LostRange
from spark.decode import CHUNK_ROWS, Chunk, DecodeOptions
from spark.filters import RowFilter
from spark.queue_ranges import OpenLog, QueueRange, open_queue
from spark.segment import Positions, Segment
from spark.store_directory import StoreDirectory
from sprocket.common.errors import CorruptRecord
from store.consume_queue_table import LIGHT_PREFIX
from store.layout import RECORD_FIXED_DTYPE

# Entries that a task holds at once: 20 bytes each, and as much again for what is made of them.
_ENTRIES_AT_ONCE: Final = 1 << 19

OnLoss = Callable[[list[LostRange]], None]


def read_ranges(
    store: StoreDirectory,
    ranges: Sequence[QueueRange],
    columns: Sequence[str],
    rows: RowFilter,
    options: DecodeOptions,
    on_loss: OnLoss,
) -> Iterator[Rows]:
    """(one array per column, number of rows) for each chunk that has rows left after `rows`.

    `on_loss` is told of messages that are no longer there, before what follows them is read; it may raise.
    Raises CorruptRecord for an entry that points at no record of its size, unless `options.drop_malformed`.
    """
    for together in _in_portions(ranges):
        entries = _Entries.of(store, together, on_loss)
        with OpenLog(store) as log:
            yield from _read(entries, log, columns, rows, options, on_loss)


def _in_portions(ranges: Sequence[QueueRange]) -> Iterator[list[QueueRange]]:
    """`ranges`, cut and put together so that each portion has at most `_ENTRIES_AT_ONCE` messages."""
    portion: list[QueueRange] = []
    room = _ENTRIES_AT_ONCE
    for each in ranges:
        begin = each.begin
        while begin < each.end:
            end = min(each.end, begin + room)
            portion.append(QueueRange(each.queue, begin, end))
            room -= end - begin
            begin = end
            if not room:
                yield portion
                portion, room = [], _ENTRIES_AT_ONCE
    if portion:
        yield portion


@dataclass(frozen=True)
class _Entries:
    """Entries of several ranges in the order of the log."""

    ranges: Sequence[QueueRange]
    physical_offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64]  # which of `ranges`
    queue_offsets: npt.NDArray[np.int64]

    @cached_property
    def are_light(self) -> npt.NDArray[np.bool_]:
        """Whether each is of a light queue."""
        light = np.array([each.queue.topic.startswith(LIGHT_PREFIX) for each in self.ranges], np.bool_)
        return light[self.owners]

    @classmethod
    def of(cls, store: StoreDirectory, ranges: Sequence[QueueRange], on_loss: OnLoss) -> "_Entries":
        parts = [_entries(store, each, on_loss) for each in ranges]
        found = [begin for begin, _ in parts]
        entries = np.concatenate([entries for _, entries in parts])
        counts = [len(entries) for _, entries in parts]
        queue_offsets = np.concatenate([np.arange(at, at + count) for at, count in zip(found, counts, strict=True)])
        owners = np.repeat(np.arange(len(ranges)), counts)
        physical_offsets = entries["physical_offset"].astype(np.int64)
        sizes = entries["size"].astype(np.int64)
        order = np.argsort(physical_offsets, kind="stable")
        return cls(ranges, physical_offsets[order], sizes[order], owners[order], queue_offsets[order])

    def misfit(self, index: int, segment: Segment) -> Damage:
        """The entry number `index`, which points at no record."""
        place = f"{self.ranges[self.owners[index]].queue} at {self.queue_offsets[index]}"
        reason = f"the ConsumeQueue of {place} points here, but no record of its size and queue offset begins"
        return Damage(int(self.physical_offsets[index]), int(self.sizes[index]), reason, segment.path)

    def lost(self, chosen: slice, reason: str) -> list[LostRange]:
        """The ranges of the entries `chosen`."""
        pairs = sorted(zip(self.owners[chosen].tolist(), self.queue_offsets[chosen].tolist(), strict=True))
        lost = []
        for owner, group in groupby(pairs, key=lambda pair: pair[0]):
            offsets = [offset for _, offset in group]
            cuts = [0, *(at for at, (left, right) in enumerate(pairwise(offsets), 1) if right != left + 1)]
            for first, past in zip(cuts, [*cuts[1:], len(offsets)], strict=True):
                lost.append(LostRange(self.ranges[owner].queue, offsets[first], offsets[past - 1] + 1, reason))
        return lost


def _entries(store: StoreDirectory, wanted: QueueRange, on_loss: OnLoss) -> tuple[int, npt.NDArray[np.void]]:
    """Queue offset of the first entry that is still there, and the entries up to the end of the range."""
    nothing = np.empty(0, [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
    try:
        queue = open_queue(store, wanted.queue, wanted.end)
        entries = queue.entries(wanted.begin, wanted.end)
    except FileNotFoundError:
        on_loss([LostRange(wanted.queue, wanted.begin, wanted.end, "deleted")])
        return wanted.end, nothing
    if len(entries) < len(wanted) or not _all_written(entries):
        return _entries_left(queue, wanted, on_loss)
    return wanted.begin, entries


def _all_written(entries: npt.NDArray[np.void]) -> bool:
    sizes = entries["size"]
    return bool(((sizes > 0) & (sizes != PRE_BLANK_SIZE)).all())


def _entries_left(queue: ConsumeQueue, wanted: QueueRange, on_loss: OnLoss) -> tuple[int, npt.NDArray[np.void]]:
    """What the queue still has of a range that was there when it was planned."""
    begin = min(max(wanted.begin, queue.begin), wanted.end)
    end = max(begin, min(wanted.end, queue.end))
    lost = []
    if begin > wanted.begin:
        lost.append(LostRange(wanted.queue, wanted.begin, begin))
    if end < wanted.end:
        lost.append(LostRange(wanted.queue, end, wanted.end, "deleted"))
    if lost:
        on_loss(lost)
    entries = queue.entries(begin, end)
    if len(entries) != end - begin or not _all_written(entries):
        raise CorruptRecord(0, f"ConsumeQueue {wanted.queue} has no entry somewhere in [{begin}, {end})")
    return begin, entries


def _read(
    entries: _Entries, log: OpenLog, columns: Sequence[str], rows: RowFilter, options: DecodeOptions, on_loss: OnLoss
) -> Iterator[Rows]:
    indexes = np.searchsorted(log.starts, entries.physical_offsets, "right") - 1
    bounds = [0, *(np.flatnonzero(np.diff(indexes)) + 1).tolist(), indexes.size]
    for first, past in pairwise(bounds):
        if first == past:
            continue
        index = int(indexes[first])
        segment = log.segment(index) if index >= 0 else None
        if segment is None or entries.physical_offsets[first] >= segment.start + segment.size:
            on_loss(entries.lost(slice(first, past), "expired"))
            continue
        for at in range(first, past, CHUNK_ROWS):
            chosen = slice(at, min(at + CHUNK_ROWS, past))
            positions, damage = _checked(segment, entries, chosen, options)
            for some in _without_repetition(positions):
                chunk = Chunk(segment, some, options)
                chunk.damage += damage
                damage = []
                yield from chunk_rows(chunk, columns, rows, options)


def _without_repetition(positions: Positions) -> Iterator[Positions]:
    """`positions`, each list of them strictly in order: a record that two queues have is read for each of them."""
    while True:
        is_first = np.diff(positions, prepend=-1) > 0
        yield positions[is_first]
        if is_first.all():
            return
        positions = positions[~is_first]


def _checked(
    segment: Segment, entries: _Entries, chosen: slice, options: DecodeOptions
) -> tuple[Positions, list[Damage]]:
    """Positions of the records, and the places where none is.  Each entry must point at a record of its size and its
    queue offset; a wrong place that looks like a record is not enough."""
    positions: Positions = entries.physical_offsets[chosen] - segment.start
    last = segment.size - RECORD_FIXED_DTYPE.itemsize
    every = np.ndarray((last + 1,), f"V{RECORD_FIXED_DTYPE.itemsize}", segment.data, 0, (1,))
    heads = every[np.minimum(positions, last)].view(RECORD_FIXED_DTYPE)
    # A record in a light queue bears the offset of the queue that it was sent to.
    is_own = heads["queue_offset"] == entries.queue_offsets[chosen]
    fits = (heads["total_size"] == entries.sizes[chosen]) & (is_own | entries.are_light[chosen])
    if fits.all():
        return positions, []
    wrong = np.flatnonzero(~fits) + chosen.start
    damage = [entries.misfit(index, segment) for index in wrong.tolist()]
    if not options.drop_malformed:
        raise damage[0].error()
    return positions[fits], damage
