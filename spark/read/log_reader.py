"""Reader of one span of a log: windows of its segment, the records in them, and their rows in chunks.

A scan reads each window into the memory of the previous one, so the memory of a task stays constant.  A read through an
index may need few pages, so it maps sealed segments.  It does not map the segment that is being written: if a mapped
file is shortened, an access kills the process.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from spark.decode.damage import Damage, damage_rows, log_damage
from spark.decode.decoder import CHUNK_ROWS, Chunk, DecodeOptions
from spark.decode.engine import IS_COMPILED
from spark.files.segment import PAGE_BYTES, Segment, WindowMemory
from spark.read.index import IndexedRecords, IndexMisfit, indexed_records
from spark.read.plan import Span
from spark.rows.chunk_rows import Rows, chunk_rows
from spark.rows.filters import RowFilter
from sprocket.common.files.regular_file import open_regular

logger = logging.getLogger(__name__)

# Small enough that the bytes are still in the processor's cache when they are decoded; large enough that the fixed cost
# of a window is negligible.
WINDOW_BYTES: Final = (2 if IS_COMPILED else 8) * 1024 * 1024
# A window that is read through queues is larger by this factor, because it may have few records.
_INDEXED_WINDOWS: Final = 4 if IS_COMPILED else 1
# A mapped window may be larger again: only pages with records are touched.
_MAPPED_WINDOWS: Final = 4 * _INDEXED_WINDOWS
# Bytes to read after a span's end: enough for most records that begin before it.
_LAST_RECORD_BYTES: Final = 64 * 1024
# Size of a block that is freed at once, so that the C library keeps freed memory from then on.
_KEPT_BYTES: Final = 31 * 1024 * 1024
# In a file that is read, not mapped, a larger gap between records is skipped.
_MAX_GAP_BYTES: Final = 256 * 1024
# Memory of the last reader, for the next one.
_spare_memory: Final[list[WindowMemory]] = []


def read_span(span: Span, columns: Sequence[str], rows: RowFilter, options: DecodeOptions) -> Iterator[Rows]:
    """Yield (one array per column, number of rows) for each chunk with rows that pass `rows`.

    Raises CorruptRecord at the first damage, unless `options.drop_malformed`.  Raises FileNotFoundError if the broker
    has deleted the segment since the query was planned.  A segment that it deletes during the read stays readable.
    """
    _keep_freed_memory()
    with os.fdopen(open_regular(span.segment.path), "rb") as file, _window_memory() as memory:
        reader = SpanReader(span, file.fileno(), columns, rows, options, memory)
        yield from reader.scanned() if span.topics is None else reader.indexed()


@cache
def _keep_freed_memory() -> None:
    """Make the C library reuse freed memory for windows and their decoded columns; one call is enough.

    The C library of Linux (glibc) returns freed memory to the system, and the page faults then cost more than decoding.
    It stops that once a block of this size has been freed (`mallopt(3)`, M_MMAP_THRESHOLD).  Other libraries ignore it.
    """
    bytes(_KEPT_BYTES)  # zeros that are never read: no page is touched


@contextmanager
def _window_memory() -> Iterator[WindowMemory]:
    """Yield the memory for the windows of one reader.

    The next reader reuses it, because new pages cost more than the reads into them.
    """
    try:
        memory = _spare_memory.pop()
    except IndexError:
        memory = WindowMemory(WINDOW_BYTES * _INDEXED_WINDOWS + _LAST_RECORD_BYTES + PAGE_BYTES)
    try:
        yield memory
    finally:
        _spare_memory[:] = [memory]


class SpanReader:
    """Reader of one span from its open segment; `memory` is for its windows."""

    def __init__(
        self,
        span: Span,
        descriptor: int,
        columns: Sequence[str],
        rows: RowFilter,
        options: DecodeOptions,
        memory: WindowMemory,
    ) -> None:
        self._span = span
        self._segment = span.segment
        self._descriptor = descriptor
        self._columns = columns
        self._rows = rows
        # Records that are read through queues have known topics.
        self._rows_of_topics = replace(rows, topics=None, topic_pattern=None)
        self._options = options
        self._memory = memory
        # Physical offset that the scan has reached.
        self._at = span.begin

    def _window(self, begin: int, size_bytes: int, *, is_mapped: bool = False) -> Segment:
        segment = self._segment
        return Segment.window(
            segment.path, self._descriptor, segment.start, begin, size_bytes, None if is_mapped else self._memory
        )

    def _rows_of(self, chunk: Chunk) -> Iterator[Rows]:
        return chunk_rows(chunk, self._columns, self._rows, self._options)

    # -- through ConsumeQueues ---------------------------------------------------------------------------

    def indexed(self) -> Iterator[Rows]:
        """Yield the rows of records that the ConsumeQueues of the span's topics point at.

        From the first entry that does not match the log on, the span is scanned.
        """
        first = 0
        try:
            records = indexed_records(self._span)
            while first < len(records):
                past = self._past(records, first)
                begin, end = int(records.offsets[first]), records.end_of(past - 1)
                with self._window(begin, end - begin, is_mapped=self._segment.is_sealed) as window:
                    part = records.part(first, past)
                    part.check(window)
                    yield from self._rows_at(window, part)
                first = past
                self._at = end
        except IndexMisfit as misfit:
            logger.warning("event=index_not_trusted reason=%r from=%d action=scan", str(misfit), self._at)
            if misfit.damage:
                yield from self._damage_rows(misfit.damage)
            yield from self._scanned_from_here()

    def _past(self, records: IndexedRecords, first: int) -> int:
        """Return one past the last record that is read together with record `first`."""
        offsets = records.offsets
        max_bytes = WINDOW_BYTES * (_MAPPED_WINDOWS if self._segment.is_sealed else _INDEXED_WINDOWS)
        past = max(first + 1, int(np.searchsorted(offsets, offsets[first] + max_bytes)))
        gaps = np.flatnonzero(np.diff(offsets[first:past]) > _MAX_GAP_BYTES)
        return first + int(gaps[0]) + 1 if gaps.size and not self._segment.is_sealed else past

    def _scanned_from_here(self) -> Iterator[Rows]:
        span = replace(self._span, topics=None, begin=self._at, begins_at_record=self._at != self._span.begin)
        if span.begin == self._segment.start:
            span = replace(span, begins_at_record=True)
        return SpanReader(span, self._descriptor, self._columns, self._rows, self._options, self._memory).scanned()

    def _rows_at(self, window: Segment, records: IndexedRecords) -> Iterator[Rows]:
        for at in range(0, len(records), CHUNK_ROWS):
            piece = records.part(at, at + CHUNK_ROWS)
            chunk = Chunk(window, piece.offsets - window.start, self._options)
            piece.check_topics(chunk, self._span.store.root)
            yield from chunk_rows(chunk, self._columns, self._rows_of_topics, self._options)
            self._at = piece.end_of(len(piece) - 1)

    # -- by a scan ---------------------------------------------------------------------------------------

    def scanned(self) -> Iterator[Rows]:
        """Yield the rows of all records that begin in the span."""
        span = self._span
        if not span.begins_at_record:
            found = self._next_record(span.begin)
            self._at = span.end if found is None else found
        beyond = 0
        while self._at < span.end:
            size = min(WINDOW_BYTES, span.end - self._at + _LAST_RECORD_BYTES)
            with self._window(self._at, max(size, beyond)) as window:
                yield from self._walked(window)
                position = self._at - window.start
                beyond = window.reaches_beyond(position) if self._at < span.end else 0
                if self._at >= span.end or beyond:
                    continue
                if window.file_end >= self._segment.end and window.is_blank(position):
                    return
                is_short = window.file_end < self._segment.end and position >= window.size
            yield from self._skip_damage("the file ends here" if is_short else "no record begins here")
        if self._at > span.end and span.ends_at_record:
            self._at = span.end
            yield from self._skip_damage("a record extends over the start of another")

    def _walked(self, window: Segment) -> Iterator[Rows]:
        """Yield the rows of the chain of complete records from `_at` in `window`; set `_at` to its end."""
        walk = window.walk(self._at - window.start, self._span.end - window.start)
        positions = walk.positions
        for at in range(0, positions.size, CHUNK_ROWS):
            piece = positions[at : at + CHUNK_ROWS]
            chunk = Chunk(window, piece, self._options)
            if chunk.malformed.size:
                # Its size cannot be trusted either: the chain ends here.
                bad = int(chunk.malformed[0])
                yield from self._rows_of(Chunk(window, piece[piece < bad], self._options))
                self._at = window.start + bad
                return
            yield from self._rows_of(chunk)
        self._at = window.start + walk.stop

    def _skip_damage(self, reason: str) -> Iterator[Rows]:
        """Skip bytes at `_at` that are no record, and yield a row for them.

        Raises CorruptRecord unless damage is skipped.
        """
        begin = self._at
        found = self._next_record(begin + 1)
        self._at = self._span.end if found is None else found
        yield from self._damage_rows([Damage(begin, self._at - begin, reason, self._segment.path)])

    def _damage_rows(self, damage: list[Damage]) -> Iterator[Rows]:
        """Yield the rows for damage.  Raises CorruptRecord for the first unless damage is skipped."""
        if not self._options.drop_malformed:
            raise damage[0].error()
        log_damage(damage)
        if self._options.corrupt_column is not None and self._rows.passes_nulls():
            yield damage_rows(damage, self._columns, self._options.corrupt_column), len(damage)

    def _next_record(self, begin: int) -> int | None:
        """Return the physical offset of the first record of the span from `begin` on, None without one."""
        # Mapped, because the record may be far away.
        with self._window(begin, self._segment.end - begin, is_mapped=True) as rest:
            found = rest.resync(begin - rest.start, self._span.end - rest.start)
            return None if found is None else rest.start + found
