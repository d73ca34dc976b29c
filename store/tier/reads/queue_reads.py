"""Reads of a queue's messages from the archive, in steps: what `store.queue.queue_reader` is for the log."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import MIN_RECORD_BYTES
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from store.queue.get_result import Boundary, GetResult, GetStatus
from store.queue.queue_reader import MessageFilter
from store.queue.record_filter import RecordFilter
from store.record.record import store_timestamp_of
from store.tier.object_store import Damaged
from store.tier.reads.queue_ranges import Piece, QueueRanges
from store.tier.reads.steps import Steps, Wanted, content_of, footer_of
from store.tier.segment_object import Entries, Footer, LogBlock, QueueRun, units_in

Offsets = npt.NDArray[np.int64]
# Log blocks that one read looks into, so that a filter which matches little answers now and then.
_MAX_BLOCKS: Final = 8


class TierRead(NamedTuple):
    """A read of one queue for a consumer group: messages from `offset` on that `matches` (None: all)."""

    group: str
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    max_bytes: int
    matches: MessageFilter | None


class ReadLimits(NamedTuple):
    """Limits of one read, whatever the consumer asks for, and the bounds of the queue to report.

    The broker's own store begins at `local_min`, and has no message if that is `max_offset`.
    """

    max_messages: int
    max_bytes: int
    max_scan_bytes: int
    min_offset: int
    local_min: int
    max_offset: int


class Run:
    """Entries of a queue that are in one run of a segment: `units`, in order, each of one message or of a batch."""

    __slots__ = ("_batches", "footer", "piece", "run", "units")

    def __init__(self, piece: Piece, footer: Footer, run: QueueRun, units: Entries) -> None:
        self.piece, self.footer, self.run, self.units = piece, footer, run, units
        # First offset and number of messages of each batch.
        self._batches: tuple[Offsets, Offsets] | None = None
        if run.is_batch:
            self._batches = units["base_offset"].astype(np.int64), units["batch_size"].astype(np.int64)

    def first_at(self, offset: int) -> int:
        """Return the number of the first entry with a message at or after `offset`."""
        if self._batches is None:
            return max(0, offset - self.run.first)
        starts, counts = self._batches
        return int(np.searchsorted(starts + counts, offset, "right"))

    def offset_of(self, number: int) -> int:
        """Return the first queue offset of an entry; the run's end after the last one."""
        if number >= len(self.units):
            return self.run.end
        return self.run.first + number if self._batches is None else int(self._batches[0][number])

    def end_of(self, number: int) -> int:
        """Return the queue offset after an entry's messages."""
        return self.offset_of(number) + (1 if self._batches is None else int(self._batches[1][number]))

    def counts_of(self, numbers: Offsets) -> Offsets:
        """Return how many messages each entry has."""
        return np.ones(len(numbers), np.int64) if self._batches is None else self._batches[1][numbers]

    def place_of(self, number: int) -> int:
        """Return the physical offset of an entry's record."""
        return int(self.units["physical_offset"][number])

    def block_at(self, physical_offset: int) -> LogBlock:
        """Return the log block of a record.  Raises `Damaged` if there is none."""
        block = self.footer.block_of(physical_offset)
        if block is None:
            raise Damaged(f"{self.piece.segment.key}: a queue names offset {physical_offset}, where no block is")
        return block


def run_at(piece: Piece, topic: str, queue_id: int, offset: int) -> Steps[Run | None]:
    """Return the first run of `piece` with a message at or after `offset`; None if there is none."""
    footer = yield from footer_of(piece.segment)
    for run in footer.runs_of(topic, queue_id):
        if run.end > offset:
            likely = tuple(Wanted(piece.segment, block) for block in _likely_blocks(footer, run, offset))
            raw = yield from content_of(piece.segment, footer.queues[run.block], likely)
            return Run(piece, footer, run, units_in(run, raw))
    return None


def _likely_blocks(footer: Footer, run: QueueRun, offset: int) -> list[LogBlock]:
    """Return the log block that probably has a message, so that it is on its way while the queue's entries are.

    The records of a run are in the blocks written before its queue block, and after the queue block before that one;
    the messages of a queue are guessed to come evenly.
    """
    position = footer.queues[run.block].position
    before = max((block.position for block in footer.queues if block.position < position), default=0)
    # Several queue blocks in a row belong to the same part of the log.
    first = bisect_left(footer.log, before, key=lambda one: one.block.position)
    past = bisect_left(footer.log, position, key=lambda one: one.block.position)
    if first == past:
        first = 0
    share = (max(offset, run.first) - run.first) / max(1, run.end - run.first)
    return footer.log[first:past][int((past - first) * share) :][:1]


def messages(
    ranges: QueueRanges, read: TierRead, now_ms: int, limits: ReadLimits
) -> Steps[tuple[GetResult, Run | None]]:
    """Return the messages of a read, and the run of entries that they come from.  Raises `Damaged`."""
    piece = ranges.piece_at(read.topic, read.queue_id, read.offset, now_ms)
    if piece is None or read.offset < limits.min_offset:
        return _nothing(GetStatus.OFFSET_TOO_SMALL, limits.min_offset, limits), None
    if read.offset < limits.local_min <= piece.first:
        return _nothing(GetStatus.NO_MATCHED_MESSAGE, limits.local_min, limits), None  # a hole
    offset = max(read.offset, piece.first)
    run = yield from run_at(piece, read.topic, read.queue_id, offset)
    if run is None:
        return _nothing(GetStatus.NO_MATCHED_MESSAGE, piece.end, limits), None
    result = yield from _taken(run, run.first_at(offset), read, limits)
    return result, run


def following(ranges: QueueRanges, run: Run, offset: int, now_ms: int, most: int) -> Iterator[Wanted]:
    """Yield up to `most` parts that reads of the same queue from `offset` on need, in their order."""
    segment, number, end = run.piece.segment, run.first_at(offset), len(run.units)
    while number < end and most > 0:
        block = run.block_at(run.place_of(number))
        yield Wanted(segment, block)
        number = bisect_left(range(end), block.end, number, key=run.place_of)
        most -= 1
    if most <= 0:
        return
    topic, queue_id = run.footer.topics[run.run.topic], run.run.queue_id
    later = next((one for one in run.footer.runs_of(topic, queue_id) if one.first >= run.run.end), None)
    if later is not None:
        yield Wanted(segment, run.footer.queues[later.block])
        return
    piece = ranges.piece_at(topic, queue_id, run.piece.end, now_ms)
    if piece is not None:
        yield Wanted(piece.segment, None)


def _nothing(status: GetStatus, next_offset: int, limits: ReadLimits) -> GetResult:
    return GetResult(status, next_offset, limits.min_offset, limits.max_offset, [], 0, 0, False)


def _taken(run: Run, first: int, read: TierRead, limits: ReadLimits) -> Steps[GetResult]:
    """Return the wanted messages of `run` from entry `first` on, within the limits."""
    matches, limit = read.matches, max(1, min(read.max_messages, limits.max_messages))
    scanned = limit if matches is None else max(limits.max_scan_bytes // CONSUME_QUEUE_UNIT_BYTES, limit)
    if isinstance(matches, RecordFilter):
        scanned = min(scanned, matches.max_records)
    units, past = run.units[first : first + scanned], min(first + scanned, len(run.units))
    chosen = np.arange(len(units))
    if matches is not None and not isinstance(matches, RecordFilter):
        chosen = np.flatnonzero(matches(units["tags_code"].astype(np.int64)))
    places, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
    found = _Found(limit, min(read.max_bytes, limits.max_bytes))
    next_offset = run.offset_of(past)
    at = blocks = 0
    while at < len(chosen):
        if blocks == _MAX_BLOCKS:
            next_offset = run.offset_of(first + int(chosen[at]))
            break
        block = run.block_at(int(places[chosen[at]]))
        numbers = chosen[at : at + int(np.searchsorted(places[chosen[at:]], block.end))]
        content = memoryview((yield from content_of(run.piece.segment, block)))
        blocks += 1
        at += len(numbers)
        if isinstance(matches, RecordFilter):
            left = limit - found.count
            numbers = numbers[matches.wanted(content, places[numbers] - block.start, sizes[numbers], left)]
        taken = found.take(content, places[numbers] - block.start, sizes[numbers], run.counts_of(first + numbers))
        if taken < len(numbers) or found.count >= limit:
            last = first + int(numbers[taken - 1])
            is_cut = taken < len(numbers) and found.count < limit
            next_offset = run.offset_of(first + int(numbers[taken])) if is_cut else run.end_of(last)
            break
    status = GetStatus.FOUND if found.count else GetStatus.NO_MATCHED_MESSAGE
    return GetResult(
        status, next_offset, limits.min_offset, limits.max_offset, found.slices, found.count, found.size_bytes, False
    )


class _Found:
    """Records of one read; neighbours in a block are one slice."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self.slices: list[memoryview] = []
        self.count = 0
        self.size_bytes = 0

    def take(self, content: memoryview, positions: Offsets, sizes: Offsets, counts: Offsets) -> int:
        """Add records at `positions` of a block, each with some messages, and return how many had room.

        The first record of the read always has.  Raises `Damaged` for one that is not within the block.
        """
        if not len(positions):
            return 0
        ends = positions + sizes
        if positions.min() < 0 or sizes.min() <= 0 or ends.max() > len(content):
            raise Damaged(f"a queue names a record outside of its block of {len(content)} bytes")
        all_bytes, all_counts = np.cumsum(sizes), np.cumsum(counts)
        taken = min(
            int(np.searchsorted(all_bytes, self._max_bytes - self.size_bytes, "right")),
            int(np.searchsorted(all_counts, self._max_messages - self.count, "right")),
        )
        if not self.count:
            taken = max(1, taken)
        if not taken:
            return 0
        borders = np.flatnonzero(positions[1:taken] != ends[: taken - 1]).tolist()
        begins, stops = [0, *(one + 1 for one in borders)], [*borders, taken - 1]
        self.slices += [
            content[int(positions[begin]) : int(ends[stop])] for begin, stop in zip(begins, stops, strict=True)
        ]
        self.count += int(all_counts[taken - 1])
        self.size_bytes += int(all_bytes[taken - 1])
        return taken


# Times


def store_time(ranges: QueueRanges, topic: str, queue_id: int, offset: int, now_ms: int) -> Steps[int]:
    """Return the store time, ms, of the first message at or after `offset`; -1 if there is none."""
    piece = ranges.piece_at(topic, queue_id, offset, now_ms)
    run = None if piece is None else (yield from run_at(piece, topic, queue_id, offset))
    return -1 if run is None else (yield from _time_of(run, run.first_at(offset)))


def offset_by_time(
    ranges: QueueRanges, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary, now_ms: int
) -> Steps[int | None]:
    """Return the offset of a time among the archived messages, as `store.queue.time_search` does.

    None if all are older (LOWER) or all are newer (UPPER).
    """
    is_upper = boundary is Boundary.UPPER

    def is_before(time_ms: int) -> bool:
        return time_ms <= timestamp_ms if is_upper else time_ms < timestamp_ms

    before: int | None = None  # the last offset known to be before the border
    for piece in ranges.readable(topic, queue_id, now_ms):
        # Segments say when they end, so most are passed without a look.
        if is_before(piece.segment.last_store_ms):
            before = piece.end - 1
            continue
        footer = yield from footer_of(piece.segment)
        for one in footer.runs_of(topic, queue_id):
            if is_before(one.last_store_ms):
                before = one.end - 1
                continue
            run = yield from run_at(piece, topic, queue_id, one.first)
            if run is None:
                continue
            low, high = 0, len(run.units)
            while low < high:
                middle = (low + high) // 2
                if is_before((yield from _time_of(run, middle))):
                    low = middle + 1
                else:
                    high = middle
            if low == len(run.units):
                before = run.run.end - 1  # store times step back
            elif not is_upper:
                return run.offset_of(low)
            else:
                return run.offset_of(low - 1) if low else before
    return before if is_upper else None


def _time_of(run: Run, number: int) -> Steps[int]:
    """Return the store time, ms, of the record of an entry."""
    place, size = int(run.units["physical_offset"][number]), int(run.units["size"][number])
    block = run.block_at(place)
    content = yield from content_of(run.piece.segment, block)
    record = memoryview(content)[place - block.start : place - block.start + size]
    if len(record) < MIN_RECORD_BYTES:
        raise Damaged(f"{run.piece.segment.key}: a queue names {size} bytes at {place}, where no record is")
    return store_timestamp_of(record)
