"""Walk over a log that may be damaged anywhere: its records, and the gaps between them.

`RecordScan` stops at the first byte that is no record; this walk searches for the next record.  It looks at
the end that the damaged record's size gives, then for a magic number with the record's own physical offset.  A record
found must pass every check, CRC included, so bytes of a body never pass for a record.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sprocket.common.errors import StoreError
from sprocket.remoting.message.record import BLANK_MIN_BYTES, MIN_RECORD_BYTES
from store.inspection.file_sequence import FileSequence, PartFile
from store.record.record import Record
from store.scan.record_batch import RecordBatch
from store.scan.record_scan import RecordScan, Stop, record_at
from store.scan.record_search import blank_starts, record_starts

_EMPTY: Final = memoryview(b"")

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes ``[start, end)`` of one segment that are no record, although records follow.

    `is_closed`: a record follows in the same segment; otherwise the gap reaches the segment's end.
    `is_missing`: the segment has no file.
    """

    start: int
    end: int
    reason: str
    is_closed: bool
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """Bytes after the last record: ``[start, end)``, not all zero; empty if nothing follows."""

    start: int
    end: int
    reason: str


class LogInspection:
    """One walk over a log, from `start` (default: its first byte) to its last record.

    Iteration gives batches and gaps, in order.  After it `end_offset` is the log's end, and `tail`
    the bytes after that.  `stop` ends the walk before a record at or after that offset.
    """

    def __init__(
        self,
        files: FileSequence,
        start: int | None = None,
        stop: int | None = None,
        *,
        check_crc: bool = True,
        progress: Progress = lambda size_bytes: None,
    ) -> None:
        self._files = files
        self._start = files.first_offset if start is None else start
        self._stop = stop
        self._check_crc = check_crc
        self._progress = progress
        self.end_offset = self._start
        self.tail = Tail(self._start, self._start, "no log")
        self._broken_at = -1
        self._reason = ""

    def __iter__(self) -> Iterator[RecordBatch | Gap]:
        files = self._files
        at = self._start
        by_start = {part.start: part for part in files.parts}
        while files.file_bytes and at < files.end_offset and (self._stop is None or at < self._stop):
            segment_start = at - at % files.file_bytes
            segment_end = segment_start + files.file_bytes
            part = by_start.get(segment_start)
            if part is None:
                self._break(at, "the file of this segment is missing")
                at = segment_end
                continue
            yield from self._segment(part, at, segment_end)
            self._progress(segment_end - at)
            at = segment_end
        self._finish()

    def _finish(self) -> None:
        """End the log where the walk stopped, because nothing follows."""
        if self._broken_at < 0:
            self.tail = Tail(self.end_offset, self.end_offset, "end of the last segment")
            return
        end = start = self._broken_at
        for part in self._files.parts:
            if part.start + self._files.file_bytes > start:
                begin = max(start, part.start)
                last = part.start + self._files.view(part).end_of_content(begin - part.start)
                end = max(end, last) if last > begin else end
        self.tail = Tail(start, end, self._reason)

    def _break(self, offset: int, reason: str) -> None:
        if self._broken_at < 0:
            self._broken_at, self._reason = offset, reason

    def _mended(self, offset: int) -> Iterator[Gap]:
        """Yield the damage before the record or blank at `offset`, if there is any: one gap per segment."""
        if self._broken_at < 0:
            return
        start, size = self._broken_at, self._files.file_bytes
        reason, self._broken_at = self._reason, -1
        starts = {part.start for part in self._files.parts}
        while start < offset:
            end = min(offset, start - start % size + size)
            is_missing = start - start % size not in starts
            yield Gap(start, end, reason, end % size != 0, is_missing)
            reason, start = "no record begins here", end

    def _segment(self, part: PartFile, at: int, segment_end: int) -> Iterator[RecordBatch | Gap]:
        data = self._data(part)
        if self._stop is not None:
            data = data[: max(0, min(len(data), self._stop - part.start))]
        while at < segment_end and at - part.start < len(data):
            scan = RecordScan(data[at - part.start :], at, segment_end - at, check_crc=self._check_crc)
            for batch in scan:
                yield from self._mended(at)
                at = self.end_offset = batch.end_offset
                yield batch
            if scan.end.stop is Stop.BLANK:
                yield from self._mended(at)
                # After the blank the next segment follows.
                self.end_offset = segment_end
                return
            if scan.end.stop is Stop.END:
                break
            self._break(at, scan.end.reason)
            content_end = self._files.view(part).end_of_content(at - part.start)
            following = self._following(data, part.start, at, segment_end, content_end)
            if following is None:
                return
            at = following
        if at < segment_end and (self._stop is None or at < self._stop):
            self._break(at, "the file is shorter than its segment")

    def _data(self, part: PartFile) -> memoryview:
        try:
            return self._files.view(part).data[: self._files.file_bytes]
        except StoreError as error:
            self._break(part.start, str(error))
            return _EMPTY

    def _following(self, data: memoryview, base: int, offset: int, segment_end: int, content_end: int) -> int | None:
        """Return where the next record or closing blank begins after the damage at `offset`; None if not here.

        From position `content_end` on there are only zeros.
        """
        position, room = offset - base, segment_end - base
        if position + BLANK_MIN_BYTES <= len(data):
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            if size >= MIN_RECORD_BYTES and self._begins(data, position + size, base, room):
                return offset + size
        for at in record_starts(data, base, position + MIN_RECORD_BYTES, content_end):
            if self._begins(data, at, base, room):
                return base + at
        for at in blank_starts(data, position + 4, content_end):
            if self._begins(data, at, base, room):
                return base + at
        return None

    def _begins(self, data: memoryview, position: int, base: int, room: int) -> bool:
        """Return whether a record, or the blank that closes the segment, begins at `position`."""
        found = record_at(data, position, base, room, check_crc=self._check_crc)
        return isinstance(found, Record) or found.stop is Stop.BLANK


def is_record(log: FileSequence, offset: int) -> bool:
    """Return whether a record begins at an offset of a log.  Its CRC is not checked."""
    walk = LogInspection(log, offset, offset + log.file_bytes - offset % log.file_bytes, check_crc=False)
    first = next(iter(walk), None)
    return isinstance(first, RecordBatch) and first.begin_offset == offset
