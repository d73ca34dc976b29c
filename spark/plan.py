"""What a query reads: the logs of its stores cut into spans, the spans dealt out to tasks.

No topic asked for: byte ranges of segments.  Topics asked for: the same ranges, read through the topics'
ConsumeQueues as far as the broker has dispatched the log, and by a scan after that.  A range without an entry
is left out.  A time range leaves out what cannot hold it; what is left is filtered row by row.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from spark.consume_queue import BATCH, BATCH_DIRECTORY, PLAIN, ConsumeQueue, open_queues, topics_of
from spark.filters import RowFilter, TimeRange
from spark.options import MEBIBYTE, SourceOptions
from spark.segment import Segment
from spark.store_directory import SegmentFile, StoreDirectory, find_stores

logger = logging.getLogger(__name__)

# Light queues are views: their entries point at records of other topics.
LIGHT_PREFIX: Final = "%LMQ%"
_MAX_BLOCK_BYTES: Final = 64 * MEBIBYTE
_MIN_BLOCK_BYTES: Final = 4 * MEBIBYTE
# Queues that are asked for a record near a cut; each gives a true one, more give a nearer one.
_CUT_QUEUES: Final = 4


@dataclass(frozen=True)
class Span:
    """Records of one segment that begin in physical offsets [`begin`, `end`).

    `topics` is set where they are read through these topics' ConsumeQueues.  `weight` is about how many bytes
    are read.  `begins_at_record` and `ends_at_record`: `begin` and `end` are where records begin or the log ends, so
    nothing may be missing next to them.  `follows_index`: before `begin` another span reads through ConsumeQueues.
    """

    store: StoreDirectory
    segment: SegmentFile
    begin: int
    end: int
    weight: int
    topics: frozenset[str] | None = None
    begins_at_record: bool = True
    ends_at_record: bool = True
    follows_index: bool = False


def plan(options: SourceOptions, rows: RowFilter) -> list[tuple[Span, ...]]:
    """The spans that each task reads; empty if there is nothing to read."""
    times, topics = rows.times_to_read(), rows.topics_to_read()
    stores = find_stores(options.paths)
    if times.begin_ms >= times.end_ms or topics == frozenset():
        return []
    logs = [(store, store.segments(options.drop_malformed)) for store in stores]
    total = sum(segment.end - segment.start for _, segments in logs for segment in segments)
    block_bytes = min(_MAX_BLOCK_BYTES, max(_MIN_BLOCK_BYTES, total // (4 * options.min_partitions)))
    spans: list[Span] = []
    for store, segments in logs:
        blocks = _blocks(store, segments, block_bytes)
        if times.is_bounded:
            blocks = within(blocks, times, options.max_clock_step_back_ms)
        # What was never committed is in no ConsumeQueue.
        is_scan = options.reading.read_uncommitted
        queues = None if is_scan else _queues_to_read(store, topics, rows.topic_pattern)
        if queues is None:
            spans += blocks
            continue
        every = list(_every_queue(store))
        if _are_sound(store, queues, every, blocks):
            spans += _indexed(blocks, queues, _known(queues, segments, dispatched_to(store, segments, every)))
        else:
            logger.warning("event=index_not_trusted store=%s action=scan", store.root)
            spans += blocks
    weight = sum(span.weight for span in spans)
    target = min(options.max_partition_bytes, max(block_bytes, -(-weight // options.min_partitions)))
    tasks = [_merged(task) for task in _dealt(spans, target)]
    return [task for task in cut_at_records(tasks) if task]


def _blocks(store: StoreDirectory, segments: Iterable[SegmentFile], block_bytes: int) -> list[Span]:
    return [
        Span(store, segment, begin, min(begin + block_bytes, segment.end), min(block_bytes, segment.end - begin))
        for segment in segments
        for begin in range(segment.start, segment.end, block_bytes)
    ]


def within(blocks: list[Span], times: TimeRange, step_back_ms: int) -> list[Span]:
    """The blocks that can hold records stored within `times`.

    Only the first record of each block is looked at.  Store timestamps follow the broker's clock, which may
    step back; as long as no record is more than `step_back_ms` behind an earlier one, a block lies between its
    own first timestamp minus that and the next block's plus that.  Where the samples themselves step back
    further, nothing is left out.
    """
    firsts = [_first_timestamp(block) for block in blocks]
    latest = None
    for first in firsts:
        if first is not None and latest is not None and first < latest - step_back_ms:
            logger.warning("store timestamps step back by_ms=%d limit_ms=%d pruning=off", latest - first, step_back_ms)
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
    """ms; None if no record begins in the block."""
    start = block.segment.start
    with Segment(block.segment.path, start) as segment:
        position = segment.resync(block.begin - start, block.end - start)
        return None if position is None else segment.store_timestamp(position)


def _queues_to_read(
    store: StoreDirectory, topics: frozenset[str] | None, pattern: str | None
) -> list[ConsumeQueue] | None:
    """The queues of the topics asked for; None if the log must be scanned, because every topic is asked for or
    one of them has no ConsumeQueue."""
    if topics is None and pattern is None:
        return None
    wanted = set(topics or ())
    if pattern is not None:
        matching = re.compile(pattern).fullmatch
        every = [*topics_of(store.root), *topics_of(store.root, BATCH_DIRECTORY)]
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


def dispatched_to(
    store: StoreDirectory, segments: list[SegmentFile], queues: Iterable[ConsumeQueue] | None = None
) -> int:
    """Physical offset up to which the ConsumeQueues of `store` point at the log; 0 if they cannot be trusted.

    The broker dispatches in log order, so this is the end of the last record that any queue knows.
    """
    if not segments:
        return 0
    begin, end = segments[0].start, segments[-1].end
    last = (0, 0)
    for queue in _every_queue(store) if queues is None else queues:
        past = queue.range_of(begin, end)[1]
        if past > queue.begin:
            last = max(last, queue.entry(past - 1))
    at, size = last
    for found in segments:
        if found.start <= at < found.end:
            with Segment(found.path, found.start) as segment:
                record = segment.span(at - found.start)
            if record is not None and record.size == size:
                return at + size
    logger.warning("ConsumeQueue does not fit the log store=%s last_entry=%d scan=all", store.root, at)
    return 0


def _are_sound(
    store: StoreDirectory, queues: Iterable[ConsumeQueue], every: Iterable[ConsumeQueue], blocks: list[Span]
) -> bool:
    """Whether the queues are in order wherever they were searched: a wrong place would leave a block out in silence.

    `every` queue of the store has files of one size, for each kind: a shorter one is cut off.
    """
    usual: dict[int, int] = {}
    for queue in every:
        unit = queue.dtype.itemsize
        usual[unit] = max(usual.get(unit, 0), *queue.file_bytes, 0)
    places = {place for block in blocks for place in (block.begin, block.end)}
    log_end = max(places, default=0)
    return all(
        queue.file_bytes == {usual.get(queue.dtype.itemsize)}
        and queue.ends_in_zeros()
        and (queue.dispatched <= log_end or store.has_record(*queue.entry(queue.end - 1)))
        and all(queue.is_sound_at(queue.range_of(place, place)[0]) for place in places)
        for queue in queues
    )


def _every_queue(store: StoreDirectory) -> Iterator[ConsumeQueue]:
    for kind in (PLAIN, BATCH):
        for topic in topics_of(store.root, kind[1]):
            yield from open_queues(store.root, topic, kind)


def _known(queues: Iterable[ConsumeQueue], segments: list[SegmentFile], dispatched: int) -> tuple[int, int]:
    """Physical offsets [from, to) in which `queues` are sure to know every record of theirs.

    A queue that begins with a later file lacks entries, unless what they pointed at has expired; one that ends with
    its last file, which is full, may lack the next.  Neither happens by itself but once in as many messages as a
    file has entries.
    """
    begin, end = 0, dispatched
    for queue in queues:
        first = queue.entry(queue.begin)[0] if queue.begin < queue.end else 0
        if queue.begin > 0 and segments and first > segments[0].start:
            begin = max(begin, first)
        if queue.ends_in_full_file:
            end = min(end, queue.dispatched)
    return begin, max(begin, end)


def _indexed(blocks: Iterable[Span], queues: list[ConsumeQueue], known: tuple[int, int]) -> Iterator[Span]:
    """`blocks` as they are read through `queues`: without those that have no entry, and as they are outside of what
    is `known`."""
    topics = frozenset(queue.topic for queue in queues)
    for block in blocks:
        begin, end = (min(max(place, block.begin), block.end) for place in known)
        if block.begin < begin:
            yield replace(block, end=begin, weight=begin - block.begin)
        if begin < end:
            weight = sum(_bytes_in(queue, begin, end) for queue in queues)
            if weight:
                yield replace(block, begin=begin, end=end, weight=weight, topics=topics)
        if end < block.end:
            yield replace(block, begin=end, weight=block.end - end, follows_index=end == known[1])


def _bytes_in(queue: ConsumeQueue, begin: int, end: int) -> int:
    first, past = queue.range_of(begin, end)
    return (past - first) * queue.entry(first)[1] if past > first else 0


def _dealt(spans: Iterable[Span], target_bytes: int) -> Iterator[list[Span]]:
    """Runs of spans of about `target_bytes` each."""
    task: list[Span] = []
    weight = 0
    for span in spans:
        if task and weight + span.weight / 2 > target_bytes:
            yield task
            task, weight = [], 0
        task.append(span)
        weight += span.weight
    if task:
        yield task


def _merged(task: list[Span]) -> list[Span]:
    """Adjacent spans of one segment as one: a walk over more is faster."""
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


def cut_at_records(tasks: list[list[Span]]) -> list[tuple[Span, ...]]:
    """Move each begin and end of a scan inside a segment to where a record begins.

    A cut between two tasks moves forward, for both of them, to where a ConsumeQueue says that a record begins.  What
    begins after blocks that were left out begins a bit earlier.  A task that begins in mid-segment finds its first
    record by magic otherwise, and a body could hold bytes that imitate one.
    """
    ends = {(span.segment, span.end) for task in tasks for span in task if span.topics is None}
    begins = {(span.segment, span.begin) for task in tasks for span in task if span.topics is None}
    cuts: dict[tuple[SegmentFile, int], int] = {}
    moved = []
    for task in tasks:
        spans = (_at_records(span, ends, begins, cuts) if span.topics is None else span for span in task)
        moved.append(tuple(span for span in spans if span.begin < span.end))
    return moved


def _at_records(
    span: Span,
    ends: set[tuple[SegmentFile, int]],
    begins: set[tuple[SegmentFile, int]],
    cuts: dict[tuple[SegmentFile, int], int],
) -> Span:
    segment = span.segment
    if span.begin != segment.start and not span.follows_index:
        if (segment, span.begin) in ends:
            span = replace(span, begin=_cut_at(span.store, segment, span.begin, cuts))
        else:
            before = _record_before(span.store, segment, span.begin)
            span = replace(span, begin=before or span.begin, begins_at_record=before is not None)
    if span.end != segment.end:
        if (segment, span.end) in begins:
            span = replace(span, end=_cut_at(span.store, segment, span.end, cuts))
        else:
            span = replace(span, ends_at_record=False)
    return span


def _cut_at(store: StoreDirectory, segment: SegmentFile, at: int, cuts: dict[tuple[SegmentFile, int], int]) -> int:
    """Where a record begins, not before `at`; the segment's end if none is known to."""
    found = cuts.get((segment, at))
    if found is None:
        near = [queue.record_at_or_after(at) for queue in _queues_near(store, at)]
        known = min((each for each in near if each is not None), default=None)
        if known is None or known >= segment.end:
            with Segment(segment.path, segment.start) as opened:
                resync = opened.resync(at - segment.start, segment.end - segment.start)
            known = segment.end if resync is None else segment.start + resync
        found = cuts[segment, at] = known
    return found


def _record_before(store: StoreDirectory, segment: SegmentFile, at: int) -> int | None:
    """Where the last record begins, before `at`, that some ConsumeQueues know of in this segment."""
    latest = None
    for queue in _queues_near(store, at):
        past = queue.range_of(0, at)[1]
        begin = queue.entry(past - 1)[0] if past > queue.begin else -1
        if begin >= segment.start and (latest is None or begin > latest):
            latest = begin
    return latest


def _queues_near(store: StoreDirectory, at: int) -> list[ConsumeQueue]:
    """A few queues that reach beyond the physical offset `at`."""
    near = []
    for queue in _every_queue(store):
        if queue.dispatched > at:
            near.append(queue)
        if len(near) == _CUT_QUEUES:
            break
    return near
