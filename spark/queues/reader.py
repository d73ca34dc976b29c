"""Reader of ranges of queues in a store directory: ConsumeQueue entries become chunks of rows.

The ranges of one task are read together, in log order, which is also the order of every queue.  So many queues with few
messages each make full chunks.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from spark.decode.damage import Damage
from spark.decode.decoder import CHUNK_ROWS, Chunk, DecodeOptions
from spark.files.segment import Positions, Segment
from spark.files.store_directory import StoreDirectory
from spark.queues.entries import OnLoss, QueueEntries
from spark.queues.ranges import OpenLog, QueueRange
from spark.rows.chunk_rows import Rows, chunk_rows
from spark.rows.filters import RowFilter
from sprocket.remoting.message.record import MIN_RECORD_BYTES
from store.layout import RECORD_FIXED_DTYPE
from store.scan.heads import heads_at

# Entries that a task holds at once: about 40 bytes each.
_ENTRIES_AT_ONCE: Final = 1 << 19


def read_ranges(
    store: StoreDirectory,
    ranges: Sequence[QueueRange],
    columns: Sequence[str],
    rows: RowFilter,
    options: DecodeOptions,
    on_loss: OnLoss,
) -> Iterator[Rows]:
    """Yield (one array per column, number of rows) for each chunk with rows that pass `rows`.

    Calls `on_loss` for messages that no longer exist, before the next ones are read; it may raise.  Raises
    CorruptRecord for an entry that does not point at a record of its size, unless `options.drop_malformed`.
    """
    for together in _in_portions(ranges):
        entries = QueueEntries.of(store, together, on_loss)
        with OpenLog(store) as log:
            yield from _read(entries, log, columns, rows, options, on_loss)


def _in_portions(ranges: Sequence[QueueRange]) -> Iterator[list[QueueRange]]:
    """Yield `ranges` cut and combined into portions of at most `_ENTRIES_AT_ONCE` messages."""
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


def _read(
    entries: QueueEntries,
    log: OpenLog,
    columns: Sequence[str],
    rows: RowFilter,
    options: DecodeOptions,
    on_loss: OnLoss,
) -> Iterator[Rows]:
    indexes = np.searchsorted(log.starts, entries.physical_offsets, "right") - 1
    bounds = [0, *(np.flatnonzero(np.diff(indexes)) + 1).tolist(), indexes.size]
    for first, past in pairwise(bounds):
        if first == past:
            continue
        index = int(indexes[first])
        segment = log.segment(index) if index >= 0 else None
        if segment is None:
            on_loss(entries.lost(slice(first, past), "expired"))
            continue
        if entries.physical_offsets[first] + MIN_RECORD_BYTES > segment.start + segment.size:
            on_loss(entries.lost(slice(first, past), f"cut off with {segment.path}"))
            continue
        for chosen in _chunks(entries, first, past):
            fits, damage = _checked(segment, entries, chosen, options)
            for some in _without_repetition(entries.physical_offsets[chosen] - segment.start, fits):
                chunk = Chunk(segment, entries.physical_offsets[chosen][some] - segment.start, options)
                chunk.damage += damage
                damage = []
                _leave_out_foreign(chunk, entries, some + chosen.start, options)
                if entries.are_batches:
                    _leave_out_unwanted(chunk, entries, some + chosen.start, options)
                yield from chunk_rows(chunk, columns, rows, options)


def _chunks(entries: QueueEntries, first: int, past: int) -> Iterator[slice]:
    """Yield [`first`, `past`) in runs of at most `CHUNK_ROWS` messages, or of one entry with more."""
    ends = np.cumsum(entries.counts[first:past])
    at, before = first, 0
    while at < past:
        following = max(at + 1, first + int(np.searchsorted(ends, before + CHUNK_ROWS, "right")))
        yield slice(at, following)
        at, before = following, int(ends[following - 1 - first])


def _leave_out_foreign(chunk: Chunk, entries: QueueEntries, indexes: Positions, options: DecodeOptions) -> None:
    """Leave out, or raise for, records whose topic is not that of their queue; light queues are exempt."""
    at = indexes[np.searchsorted(entries.physical_offsets[indexes] - chunk.segment.start, chunk.positions)]
    is_other = (chunk.topic_numbers(entries.topics) != entries.topic_numbers[at]) & ~entries.are_light[at]
    if not is_other.any():
        return
    found = [
        entries.misfit(index, chunk.segment, "the record there has another topic")
        for index in np.unique(at[is_other]).tolist()
    ]
    if not options.drop_malformed:
        raise found[0].error()
    chunk.damage += found
    chunk.filter(~is_other)


def _leave_out_unwanted(chunk: Chunk, entries: QueueEntries, indexes: Positions, options: DecodeOptions) -> None:
    """Keep only the messages within the ranges: the first and the last batch may have others.

    A record in a light queue has another queue's offset; it is one message, and wanted.
    """
    at = np.searchsorted(entries.physical_offsets[indexes] - chunk.segment.start, chunk.positions)
    held = np.bincount(at, minlength=indexes.size)
    # One row may be a batch that is not unwrapped.
    for index in np.flatnonzero((held > 1) & (held != entries.counts[indexes])).tolist():
        why = f"the record holds {held[index]} messages, not {entries.counts[indexes[index]]}"
        damage = entries.misfit(int(indexes[index]), chunk.segment, why)
        if not options.drop_malformed:
            raise damage.error()
        chunk.damage.append(damage)
    begins, ends = entries.wanted(indexes)
    offsets = chunk.queue_offsets().to_numpy()
    chunk.filter(entries.are_light[indexes][at] | ((offsets >= begins[at]) & (offsets < ends[at])))


def _without_repetition(positions: Positions, indexes: Positions) -> Iterator[Positions]:
    """Yield `indexes` of `positions` in lists with strictly rising positions.

    A record that is in two queues is read for each of them.
    """
    while True:
        is_first = np.diff(positions[indexes], prepend=-1) > 0
        yield indexes[is_first]
        if is_first.all():
            return
        indexes = indexes[~is_first]


def _checked(
    segment: Segment, entries: QueueEntries, chosen: slice, options: DecodeOptions
) -> tuple[Positions, list[Damage]]:
    """Return which of `chosen` point at records, counted from its first, and the places without a record.

    An entry must point at a record with its size, its queue and its queue offset, not just at any record.
    """
    positions: Positions = entries.physical_offsets[chosen] - segment.start
    heads = heads_at(segment.data, np.minimum(positions, segment.size - RECORD_FIXED_DTYPE.itemsize))
    # A record in a light queue has its offset in the queue that it was sent to.
    is_own = (heads["queue_offset"] == entries.queue_offsets[chosen]) & (heads["queue_id"] == entries.queue_ids[chosen])
    fits: npt.NDArray[np.bool_] = (heads["total_size"] == entries.sizes[chosen]) & (is_own | entries.are_light[chosen])
    fits &= positions + entries.sizes[chosen] <= segment.size
    if fits.all():
        return np.arange(positions.size), []
    wrong = np.flatnonzero(~fits) + chosen.start
    why = "no record of its size, queue and queue offset begins"
    damage = [entries.misfit(index, segment, why) for index in wrong.tolist()]
    if not options.drop_malformed:
        raise damage[0].error()
    return np.flatnonzero(fits), damage
