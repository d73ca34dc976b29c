"""What a query reads: the logs of its stores cut into spans, the spans dealt out to tasks.

No topic asked for: byte ranges of segments.  Topics asked for: the same ranges, read through the topics'
ConsumeQueues as far as the broker has dispatched the log, and by a scan after that.  A range without an entry
is left out.  A time range leaves out what cannot hold it; what is left is filtered row by row.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from spark.consume_queue import BATCH_DIRECTORY, ConsumeQueue, open_queues, topics_of
from spark.filters import RowFilter, TimeRange
from spark.options import MEBIBYTE, SourceOptions
from spark.segment import Segment
from spark.store_directory import SegmentFile, StoreDirectory, find_stores

logger = logging.getLogger(__name__)

_MAX_BLOCK_BYTES: Final = 64 * MEBIBYTE
_MIN_BLOCK_BYTES: Final = 4 * MEBIBYTE
# Queues that are asked for a record near a cut; each gives a true one, more give a nearer one.
_CUT_QUEUES: Final = 4


@dataclass(frozen=True)
class Span:
    """Records of one segment that begin in physical offsets [`begin`, `end`).

    `topics` is set where they are read through these topics' ConsumeQueues.  `weight` is about how many bytes
    are read.
    """

    store: StoreDirectory
    segment: SegmentFile
    begin: int
    end: int
    weight: int
    topics: frozenset[str] | None = None


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
        queues = _queues_to_read(store, topics, rows.topic_pattern)
        spans += blocks if queues is None else _indexed(blocks, queues, dispatched_to(store, segments))
    weight = sum(span.weight for span in spans)
    target = min(options.max_partition_bytes, max(block_bytes, -(-weight // options.min_partitions)))
    return cut_at_records([_merged(task) for task in _dealt(spans, target)])


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
    one of them has no ConsumeQueue (a batch queue has another format; a deleted topic has none)."""
    if topics is None and pattern is None:
        return None
    matching = re.compile(pattern).fullmatch if pattern is not None else None
    wanted = set(topics or ())
    if matching is not None:
        if any(matching(topic) for topic in topics_of(store.root, BATCH_DIRECTORY)):
            return None
        known = {topic for topic in topics_of(store.root) if matching(topic)}
        wanted = known if topics is None else known & wanted
    queues: list[ConsumeQueue] = []
    for topic in sorted(wanted):
        found = open_queues(store.root, topic)
        if not found:
            return None
        queues += found
    return queues


def dispatched_to(store: StoreDirectory, segments: list[SegmentFile]) -> int:
    """Physical offset up to which the ConsumeQueues of `store` point at the log; 0 if they cannot be trusted.

    The broker dispatches in log order, so this is the end of the last record that any queue knows.
    """
    if not segments:
        return 0
    begin, end = segments[0].start, segments[-1].end
    last = (0, 0)
    for topic in topics_of(store.root):
        for queue in open_queues(store.root, topic):
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


def _indexed(blocks: Iterable[Span], queues: list[ConsumeQueue], dispatched: int) -> Iterator[Span]:
    """`blocks` as they are read through `queues`: without those that have no entry, and as they are where the
    log is not dispatched yet."""
    topics = frozenset(queue.topic for queue in queues)
    for block in blocks:
        end = min(block.end, dispatched)
        if block.begin < end:
            weight = sum(_bytes_in(queue, block.begin, end) for queue in queues)
            if weight:
                yield replace(block, end=end, weight=weight, topics=topics)
        if block.end > dispatched:
            begin = max(block.begin, dispatched)
            yield replace(block, begin=begin, weight=block.end - begin)


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
    """Move each cut inside a segment to where a ConsumeQueue says that a record begins.

    A task that begins in mid-segment finds its first record by magic otherwise, and a body could hold bytes
    that imitate one.
    """
    for before, after in pairwise(tasks):
        left, right = before[-1], after[0]
        if left.segment != right.segment or left.end != right.begin or right.topics is not None:
            continue
        cut = _record_near(right.store, right.begin)
        if cut is not None and cut < right.end:
            before[-1] = replace(left, end=cut)
            after[0] = replace(right, begin=cut)
    return [tuple(task) for task in tasks]


def _record_near(store: StoreDirectory, physical_offset: int) -> int | None:
    asked = 0
    nearest: int | None = None
    for topic in topics_of(store.root):
        for queue in open_queues(store.root, topic):
            found = queue.record_at_or_after(physical_offset)
            if found is not None and (nearest is None or found < nearest):
                nearest = found
            asked += found is not None
            if asked == _CUT_QUEUES:
                return nearest
    return nearest
