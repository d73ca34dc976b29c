"""Plan of a query: the logs of its stores cut into spans, and the spans divided among tasks.

Without topics, spans are byte ranges of segments.  With topics, these ranges are read through the topics' ConsumeQueues
up to the dispatched end of the log, and by a scan after it; a range without an entry is left out.  With a time range,
spans outside of it are left out, and the rows of the others are filtered.
"""

import logging
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from spark.files.consume_queue import BATCH, ConsumeQueue, every_topic_of, open_queues
from spark.files.segment import Segment
from spark.files.store_directory import SegmentFile, StoreDirectory, find_stores
from spark.options.source_options import MEBIBYTE, SourceOptions
from spark.read.compacted import CompactedPart, parts_before
from spark.read.known_queues import KnownQueues, usual_file_bytes
from spark.read.known_topics import check_topics
from spark.read.places import QueuePlaces
from spark.rows.filters import RowFilter, TimeRange
from sprocket.remoting.message.topic_names import LIGHT_PREFIX

logger = logging.getLogger(__name__)

_MAX_BLOCK_BYTES: Final = 64 * MEBIBYTE
_MIN_BLOCK_BYTES: Final = 4 * MEBIBYTE


@dataclass(frozen=True)
class Span:
    """Records of one segment that begin in physical offsets [`begin`, `end`).

    With `topics`, they are read through these topics' ConsumeQueues.  `weight` is the estimated number of bytes to
    read.
    `begins_at_record` and `ends_at_record`: a record or the end of the log is exactly at `begin` or `end`, so missing
    bytes there are damage.
    """

    store: StoreDirectory
    segment: SegmentFile
    begin: int
    end: int
    weight: int
    topics: frozenset[str] | None = None
    begins_at_record: bool = True
    ends_at_record: bool = True


@dataclass(frozen=True)
class Planned:
    """Spans that each task reads, and what compacted queues keep from before the logs."""

    tasks: list[tuple[Span, ...]] = field(default_factory=list)
    compacted: list[CompactedPart] = field(default_factory=list)


def plan(options: SourceOptions, rows: RowFilter) -> Planned:
    """Return what each task reads; nothing if there is nothing to read.

    Raises ConfigError for a topic of `options` that no store knows.
    """
    times, topics = rows.times_to_read(), rows.topics_to_read()
    stores = find_stores(options.paths)
    check_topics(stores, options.topics or ())
    if times.begin_ms >= times.end_ms or topics == frozenset():
        return Planned()
    logs = [(store, store.segments(options.reading.drop_malformed)) for store in stores]
    total = sum(segment.end - segment.start for _, segments in logs for segment in segments)
    block_bytes = min(_MAX_BLOCK_BYTES, max(_MIN_BLOCK_BYTES, total // (8 * options.min_partitions)))
    spans: list[Span] = []
    fixed: set[tuple[StoreDirectory, int]] = set()
    for store, segments in logs:
        blocks = _blocks(store, segments, block_bytes)
        if times.is_bounded:
            blocks = within(blocks, times, options.max_clock_step_back_ms)
        # Uncommitted messages are in no ConsumeQueue.
        is_scan = options.reading.read_uncommitted or (topics is None and rows.topic_pattern is None)
        if is_scan:
            spans += blocks
            continue
        through, dispatched = through_queues(store, segments, blocks, rows)
        spans += through
        fixed.add((store, dispatched))
    weight = sum(span.weight for span in spans)
    tasks = [_merged(task) for task in _dealt(spans, weight, _task_count(weight, block_bytes, options))]
    # After the segments were listed: what they no longer have was compacted before.
    compacted = [part for store, segments in logs if segments for part in parts_before(store, segments[0].start, rows)]
    return Planned([task for task in cut_at_records(tasks, fixed) if task], compacted)


def _blocks(store: StoreDirectory, segments: Iterable[SegmentFile], block_bytes: int) -> list[Span]:
    return [
        Span(store, segment, begin, min(begin + block_bytes, segment.end), min(block_bytes, segment.end - begin))
        for segment in segments
        for begin in range(segment.start, segment.end, block_bytes)
    ]


def within(blocks: list[Span], times: TimeRange, step_back_ms: int) -> list[Span]:
    """Return the blocks that may have records stored within `times`.

    Only the first record of each block is read.  Store timestamps follow the broker's clock, which may step back.  If
    no record is more than `step_back_ms` below an earlier one, a block lies between its own first timestamp minus that
    and the next block's plus that.  If the samples step back further, no block is left out.
    """
    firsts = [_first_timestamp(block) for block in blocks]
    latest = None
    for first in firsts:
        if first is not None and latest is not None and first < latest - step_back_ms:
            logger.warning(
                "event=store_timestamps_step_back by_ms=%d limit_ms=%d pruning=off", latest - first, step_back_ms
            )
            return blocks
        latest = first if latest is None or (first is not None and first > latest) else latest
    kept = []
    following: int | None = None
    for block, first in zip(reversed(blocks), reversed(firsts), strict=True):
        too_late = first is not None and first - step_back_ms >= times.end_ms
        too_early = following is not None and following + step_back_ms < times.begin_ms
        if not too_late and not too_early:
            kept.append(block)
        following = first if first is not None else following
    return kept[::-1]


def _first_timestamp(block: Span) -> int | None:
    """Return the store timestamp of the block's first record, ms; None if no record begins in it."""
    start = block.segment.start
    with Segment(block.segment.path, start) as segment:
        position = segment.resync(block.begin - start, block.end - start)
        return None if position is None else segment.store_timestamp(position)


def through_queues(
    store: StoreDirectory, segments: list[SegmentFile], blocks: list[Span], rows: RowFilter
) -> tuple[Iterable[Span], int]:
    """Return `blocks` for reads through the ConsumeQueues of the topics in `rows`, and the offset where those end.

    If the queues cannot be used, return the blocks unchanged, and 0.  `segments` are all segments of the store.
    """
    known = KnownQueues(store)
    # Before the queues are opened, so that they have all that is dispatched by now.
    dispatched = known.dispatched_to(segments)
    queues = _queues_to_read(store, rows)
    if queues is None:
        return blocks, 0
    between = _known(queues, segments, dispatched)
    offsets = {each for block in blocks for each in (block.begin, block.end, *_clipped(between, block))}
    places = [QueuePlaces(queue, offsets) for queue in queues]
    usual = usual_file_bytes([*known.sample(), *queues])
    if _are_sound(store, places, usual, max((block.end for block in blocks), default=0)):
        return _indexed(blocks, places, between), between[1]
    logger.warning("event=index_not_trusted store=%s action=scan", store.root)
    return blocks, 0


def _queues_to_read(store: StoreDirectory, rows: RowFilter) -> list[ConsumeQueue] | None:
    """Return the queues of the requested topics; None if a topic has none, so that the log must be scanned."""
    topics, pattern = rows.topics_to_read(), rows.topic_pattern
    wanted = set(topics or ())
    if pattern is not None:
        matching = re.compile(pattern).fullmatch
        every = every_topic_of(store.root)
        known = {topic for topic in every if not topic.startswith(LIGHT_PREFIX) and matching(topic)}
        wanted = known if topics is None else known & wanted
    queues: list[ConsumeQueue] = []
    for topic in sorted(wanted):
        found = [*open_queues(store.root, topic), *open_queues(store.root, topic, BATCH)]
        if not found or not all(queue.has_files for queue in found):
            logger.warning("event=topic_without_queue topic=%s store=%s action=scan", topic, store.root)
            return None
        queues += found
    return queues


def _are_sound(store: StoreDirectory, places: list[QueuePlaces], usual: dict[int, int], log_end: int) -> bool:
    """Return whether the queues are in order at all found places: a wrong place would silently leave out a block.

    `usual` is the size of a queue's files by the size of its entries: a shorter file is truncated.
    """
    return all(
        each.queue.file_bytes == {usual.get(each.queue.dtype.itemsize)}
        and each.queue.ends_in_zeros()
        and (each.queue.dispatched <= log_end or store.has_record(*each.queue.entry(each.queue.end - 1)))
        and each.are_sound()
        for each in places
    )


def _known(queues: Iterable[ConsumeQueue], segments: list[SegmentFile], dispatched: int) -> tuple[int, int]:
    """Return the physical offsets [from, to) in which `queues` certainly have all their records.

    A queue whose first file is a later one lacks entries, unless their records have expired.  A queue whose last file
    is full may lack the next file.  Without damage, each is rare: once in as many messages as a file has entries.
    """
    begin, end = 0, dispatched
    for queue in queues:
        first = queue.entry(queue.begin)[0] if queue.begin < queue.end else 0
        if queue.begin > 0 and segments and first > segments[0].start:
            begin = max(begin, first)
        if queue.ends_in_full_file:
            end = min(end, queue.dispatched)
    return begin, max(begin, end)


def _clipped(between: tuple[int, int], block: Span) -> tuple[int, int]:
    begin, end = (min(max(place, block.begin), block.end) for place in between)
    return begin, end


def _indexed(blocks: Iterable[Span], queues: list[QueuePlaces], known: tuple[int, int]) -> Iterator[Span]:
    """Yield `blocks` for reads through `queues`, without blocks that have no entry; unchanged outside of `known`."""
    topics = frozenset(each.queue.topic for each in queues)
    for block in blocks:
        begin, end = _clipped(known, block)
        if block.begin < begin:
            yield replace(block, end=begin, weight=begin - block.begin)
        if begin < end:
            weight = sum(each.bytes_between(begin, end) for each in queues)
            if weight:
                yield replace(block, begin=begin, end=end, weight=weight, topics=topics)
        if end < block.end:
            yield replace(block, begin=end, weight=block.end - end)


def _task_count(weight: int, block_bytes: int, options: SourceOptions) -> int:
    """Return the number of tasks: a multiple of the processors, so that they end together.

    No task exceeds its maximum size; there are fewer tasks if they would be smaller than a block.
    """
    turns = -(-weight // (options.min_partitions * options.max_partition_bytes))
    return max(1, min(turns * options.min_partitions, -(-weight // min(block_bytes, options.max_partition_bytes))))


def _dealt(spans: Iterable[Span], weight: int, count: int) -> Iterator[list[Span]]:
    """Yield `spans`, of the total `weight`, in about `count` runs of equal weight."""
    task: list[Span] = []
    number = done = 0
    for span in spans:
        falls_in = (2 * done + span.weight) * count // (2 * weight)
        if task and falls_in != number:
            yield task
            task = []
        task.append(span)
        number = falls_in
        done += span.weight
    if task:
        yield task


def _merged(task: list[Span]) -> list[Span]:
    """Return the spans with adjacent ones of one segment merged: a longer walk is faster."""
    merged: list[Span] = []
    for span in task:
        last = merged[-1] if merged else None
        if last and (last.store, last.segment, last.topics, last.end) == (
            span.store,
            span.segment,
            span.topics,
            span.begin,
        ):
            merged[-1] = replace(last, end=span.end, weight=last.weight + span.weight)
        else:
            merged.append(span)
    return merged


def cut_at_records(
    tasks: list[list[Span]], fixed: Collection[tuple[StoreDirectory, int]] = ()
) -> list[tuple[Span, ...]]:
    """Move the start and end of each scan to the start of a record; offsets in `fixed` already are one.

    A cut between two tasks moves forward, for both, to a record that a ConsumeQueue knows.  A span after left-out
    blocks begins a bit earlier.  Otherwise a task that begins in mid-segment would find its first record by magic, and
    a body could hold bytes that imitate a record.
    """
    cuts = _Cuts((span for task in tasks for span in task if span.topics is None), fixed)
    moved = []
    for task in tasks:
        spans = (cuts.at_records(span) if span.topics is None else span for span in task)
        moved.append(tuple(span for span in spans if span.begin < span.end))
    return moved


class _Cuts:
    """Cuts of spans that are scanned."""

    def __init__(self, spans: Iterable[Span], fixed: Collection[tuple[StoreDirectory, int]]) -> None:
        scanned = list(spans)
        self._fixed = fixed
        self._ends = {(span.segment, span.end) for span in scanned}
        self._begins = {(span.segment, span.begin) for span in scanned}
        self._found: dict[tuple[SegmentFile, int], int] = {}
        self._queues = {store: KnownQueues(store) for store in {span.store for span in scanned}}

    def at_records(self, span: Span) -> Span:
        """Return `span` with start and end at records."""
        segment = span.segment
        if span.begin != segment.start and (span.store, span.begin) not in self._fixed:
            if (segment, span.begin) in self._ends:
                span = replace(span, begin=self._cut_at(span.store, segment, span.begin))
            else:
                before = self._record_before(span.store, segment, span.begin)
                span = replace(span, begin=before or span.begin, begins_at_record=before is not None)
        if span.end != segment.end:
            if (segment, span.end) in self._begins:
                span = replace(span, end=self._cut_at(span.store, segment, span.end))
            else:
                span = replace(span, ends_at_record=False)
        return span

    def _cut_at(self, store: StoreDirectory, segment: SegmentFile, at: int) -> int:
        """Return the first known start of a record at or after `at`, else the segment's end."""
        found = self._found.get((segment, at))
        if found is None:
            near = [queue.record_at_or_after(at) for queue in self._queues[store].near(at)]
            known = min((each for each in near if each is not None), default=None)
            if known is None or known >= segment.end:
                with Segment(segment.path, segment.start) as opened:
                    resync = opened.resync(at - segment.start, segment.end - segment.start)
                known = segment.end if resync is None else segment.start + resync
            found = self._found[segment, at] = known
        return found

    def _record_before(self, store: StoreDirectory, segment: SegmentFile, at: int) -> int | None:
        """Return the start of the last record before `at` in this segment that some ConsumeQueues know."""
        latest = None
        for queue in self._queues[store].near(at):
            past = queue.range_of(0, at)[1]
            begin = queue.entry(past - 1)[0] if past > queue.begin else -1
            if begin >= segment.start and (latest is None or begin > latest):
                latest = begin
        return latest
