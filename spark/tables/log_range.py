"""Part of a store's log that a table does not have yet, cut into tasks; and the check for the same log."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from spark.files.segment import Segment
from spark.files.store_directory import SegmentFile, StoreDirectory, log_paths
from spark.read.plan import Span, cut_at_records, through_queues
from spark.rows.filters import RowFilter
from spark.tables.place import BrokerPlace
from sprocket.common.errors import StoreError

logger = logging.getLogger(__name__)

_MEBIBYTE: Final = 1024 * 1024
# A smaller range is scanned, which takes less time than a search in ConsumeQueues.
_SCAN_BYTES: Final = 64 * _MEBIBYTE
_TASK_BYTES: Final = 256 * _MEBIBYTE
_LEAST_TASK_BYTES: Final = 16 * _MEBIBYTE


class DataLost(StoreError):
    """Messages that the table does not have yet are no longer in the log."""


@dataclass(frozen=True)
class LogRange:
    """Physical offsets [`begin`, `end`) of one store; `tasks` are the spans that each task reads.

    `leaves_some`: the log continues after `end`.
    """

    store: StoreDirectory
    begin: int
    end: int
    tasks: tuple[tuple[Span, ...], ...]
    leaves_some: bool = False

    @property
    def size_bytes(self) -> int:
        return self.end - self.begin


def next_range(
    store: StoreDirectory,
    topic: str,
    place: BrokerPlace | None,
    *,
    budget_bytes: int,
    processes: int,
    fail_on_data_loss: bool = True,
    drop_malformed: bool = False,
) -> LogRange | None:
    """Return the log of `store` after `place`: whole segments of about `budget_bytes` together, or up to its end.

    None if there is nothing new.  For lost messages raises DataLost or, if `fail_on_data_loss` is false, logs a warning
    and skips them.
    """
    segments = store.segments(drop_malformed)
    if not segments:
        return None
    begin = _begin(store, topic, place, segments, fail_on_data_loss)
    chosen: list[SegmentFile] = []
    for segment in segments:
        if segment.end <= begin:
            continue
        if chosen and segment.end - begin > budget_bytes:
            break
        chosen.append(segment)
    if not chosen:
        return None
    end = chosen[-1].end
    spans = _spans(store, topic, begin, chosen, segments)
    wanted = task_bytes(end - begin, processes)
    # These begin at a record: they must not move, or records would be read twice.
    fixed = {span.begin for span in spans}
    pieces = [piece for span in spans for piece in _pieces(span, wanted)]
    cut = cut_at_records([[piece] for piece in pieces])
    tasks = [
        tuple(replace(span, begin=piece.begin) if piece.begin in fixed else span for span in task)
        for piece, task in zip(pieces, cut, strict=True)
    ]
    return LogRange(
        store, begin, end, tuple(_dealt([span for task in tasks for span in task], wanted)), end < segments[-1].end
    )


def _begin(
    store: StoreDirectory,
    topic: str,
    place: BrokerPlace | None,
    segments: Sequence[SegmentFile],
    fail_on_data_loss: bool,
) -> int:
    first, end = segments[0].start, segments[-1].end
    if place is None:
        return first
    lost = ""
    begin = place.end
    if place.end < first:
        lost, begin = f"physical offsets [{place.end}, {first}) have expired", first
    elif not is_same_log(place, store):
        lost = (
            f"at {place.last_offset} there is no longer the message that the table had last: the log was cut or is "
            f"another one; it ends at {end}"
        )
        begin = min(place.end, end)
    if lost:
        message = f"topic {topic}, {store.root} ({store.broker_name}): {lost}"
        if fail_on_data_loss:
            raise DataLost(f"{message}; with failOnDataLoss=false it continues at {begin}")
        logger.warning("event=data_lost detail=%r continues_at=%d", message, begin)
    return begin


def is_same_log(place: BrokerPlace, store: StoreDirectory) -> bool:
    """Return whether the last message of the table is still at its place, or has expired.

    It may be after the part of the log that is readable now.
    """
    before = [found for found in log_paths(store.root) if found[0] <= place.last_offset]
    if place.last_offset < 0 or not before:
        return True
    start, path = before[-1]
    with Segment(path, start) as segment:
        at = place.last_offset - start
        if at >= segment.size or segment.span(at) is None:
            return False
        return place.last_timestamp in (-1, segment.store_timestamp(at))


def task_bytes(size_bytes: int, processes: int) -> int:
    """Return the bytes of log for a task, small enough that all processes end at about the same time."""
    rounds = -(-size_bytes // (processes * _TASK_BYTES))
    return max(_LEAST_TASK_BYTES, -(-size_bytes // (processes * rounds)))


def _spans(
    store: StoreDirectory, topic: str, begin: int, chosen: Sequence[SegmentFile], segments: list[SegmentFile]
) -> list[Span]:
    parts = [(segment, max(begin, segment.start)) for segment in chosen]
    blocks = [Span(store, segment, at, segment.end, segment.end - at) for segment, at in parts]
    if chosen[-1].end - begin <= _SCAN_BYTES:
        return blocks
    return list(through_queues(store, segments, blocks, RowFilter(frozenset({topic})))[0])


def _pieces(span: Span, wanted_bytes: int) -> list[Span]:
    size = span.end - span.begin
    count = max(1, round(size / wanted_bytes))
    cuts = [span.begin + size * index // count for index in range(count + 1)]
    return [Span(span.store, span.segment, begin, end, end - begin, span.topics) for begin, end in pairwise(cuts)]


def _dealt(spans: Sequence[Span], wanted_bytes: int) -> Iterator[tuple[Span, ...]]:
    """Yield runs of spans of about `wanted_bytes` each."""
    task: list[Span] = []
    size = 0
    for span in spans:
        if task and size + span.weight / 2 > wanted_bytes:
            yield tuple(task)
            task, size = [], 0
        task.append(span)
        size += span.weight
    if task:
        yield tuple(task)
