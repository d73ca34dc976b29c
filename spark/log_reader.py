"""Reading one span of a log: where its records are, and their rows in chunks."""

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from spark.consume_queue import open_queues
from spark.decode import CHUNK_ROWS, Chunk, DecodeOptions
from spark.filters import RowFilter
from spark.plan import Span
from spark.segment import Positions, Segment
from sprocket.common.errors import CorruptRecord

logger = logging.getLogger(__name__)


def read_span(
    span: Span, columns: Sequence[str], rows: RowFilter, options: DecodeOptions
) -> Iterator[tuple[list[pa.Array], int]]:
    """(one array per column, number of rows) for each chunk that has rows left after `rows`.

    Raises CorruptRecord at the first damage, unless `options.drop_malformed`; FileNotFoundError if the broker
    has deleted the segment since the query was planned.
    """
    with Segment(span.segment.path, span.segment.start) as segment:
        for positions in _positions(segment, span, options.drop_malformed):
            for first in range(0, positions.size, CHUNK_ROWS):
                chunk = Chunk(segment, positions[first : first + CHUNK_ROWS], options)
                rows.apply(chunk)
                if len(chunk):
                    yield [chunk.column(name) for name in columns], len(chunk)


def _positions(segment: Segment, span: Span, drop_malformed: bool) -> Iterator[Positions]:
    if span.topics is not None:
        yield indexed_positions(span)
        return
    begin, end = span.begin - span.segment.start, span.end - span.segment.start
    if begin == 0 or segment.span(begin) is not None:
        at: int | None = begin
    else:
        at = segment.resync(begin, end)  # the middle of a record that the span before this one owns
    while at is not None:
        walk = segment.walk(at, end)
        yield walk.positions
        if walk.stop >= end or segment.is_blank(walk.stop):
            return
        if not drop_malformed:
            raise CorruptRecord(
                segment.start + walk.stop,
                f"no record begins here ({segment.path}); option mode=DROPMALFORMED reads on after it",
            )
        at = segment.resync(walk.stop + 1, end)
        skipped = (end if at is None else at) - walk.stop
        logger.warning("skipped damage physical_offset=%d bytes=%d", segment.start + walk.stop, skipped)


def indexed_positions(span: Span) -> Positions:
    """Positions, in order, that the ConsumeQueues of the span's topics hold for it."""
    parts = []
    for topic in sorted(span.topics or ()):
        for queue in open_queues(span.store.root, topic):
            entries = queue.entries(*queue.range_of(span.begin, span.end))
            parts.append(entries["physical_offset"].astype(np.int64))
    positions = np.concatenate(parts) if parts else np.empty(0, np.int64)
    positions.sort()
    return positions - span.segment.start
