"""Walk over a log that may be damaged anywhere: its records, and the gaps between them.

`store.log.chunk_scan` stops at the first byte that is no record; this walk searches for the next record.  It looks at
the end that the damaged record's size gives, then for a magic number with the record's own physical offset.  A record
found must pass every check, CRC included, so bytes of a body never pass for a record.
"""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sprocket.common.errors import StoreError
from sprocket.remoting.message.record import BLANK_MIN_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from store.inspection.file_sequence import FileSequence, PartFile
from store.log.chunk_scan import MAX_BATCH_RECORDS, MAX_WALK_BYTES, MIN_WALK_BYTES
from store.record.log_walk import walk
from store.record.record import Record, decode
from store.record.record_batch import RecordBatch, read_batch

_SIZE_AND_MAGIC: Final = struct.Struct(">ii")
_PHYSICAL_OFFSET: Final = struct.Struct(">q")
_PHYSICAL_OFFSET_AT: Final = 28
_MAGIC_AT: Final = 4
_MAGIC: Final = re.compile(
    re.escape(struct.pack(">i", MAGIC_V1)[:3])
    + b"["
    + re.escape(struct.pack(">i", MAGIC_V1)[3:] + struct.pack(">i", MAGIC_V2)[3:])
    + b"]"
)
_BLANK_MAGIC: Final = re.compile(re.escape(struct.pack(">i", MAGIC_BLANK)))
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

    Iteration gives batches, single records, and gaps, in order.  After it `end_offset` is the log's end, and `tail`
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

    def __iter__(self) -> Iterator[RecordBatch | Record | Gap]:
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
        """Yield the damage before the record or blank at `offset`, one gap per segment."""
        start, size = self._broken_at, self._files.file_bytes
        reason, self._broken_at = self._reason, -1
        starts = {part.start for part in self._files.parts}
        while 0 <= start < offset:
            end = min(offset, start - start % size + size)
            is_missing = start - start % size not in starts
            yield Gap(start, end, reason, end % size != 0, is_missing)
            reason, start = "no record begins here", end

    def _segment(self, part: PartFile, at: int, segment_end: int) -> Iterator[RecordBatch | Record | Gap]:
        data = self._data(part)
        if self._stop is not None:
            data = data[: max(0, min(len(data), self._stop - part.start))]
        walk_bytes = MIN_WALK_BYTES
        while at < segment_end and at - part.start < len(data):
            if self._broken_at < 0:
                rest = data[at - part.start :]
                first = at
                for batch in self._batches(rest, at, walk_bytes):
                    at = self.end_offset = batch.end_offset
                    yield batch
                if at - first >= min(walk_bytes, len(rest)):
                    walk_bytes = min(walk_bytes * 4, MAX_WALK_BYTES)
                    continue
                walk_bytes = MIN_WALK_BYTES
            found = self._record(data, part.start, at, segment_end)
            if isinstance(found, str):
                self._break(at, found)
                content_end = self._files.view(part).end_of_content(at - part.start)
                following = self._following(data, part.start, at, segment_end, content_end)
                if following is None:
                    return
                at = following
                continue
            yield from self._mended(at)
            if found is None:
                # After the blank the next segment follows.
                self.end_offset = segment_end
                return
            at += found.size_bytes
            self.end_offset = at
            yield found
        if at < segment_end and (self._stop is None or at < self._stop):
            self._break(at, "the file is shorter than its segment")

    def _data(self, part: PartFile) -> memoryview:
        try:
            return self._files.view(part).data[: self._files.file_bytes]
        except StoreError as error:
            self._break(part.start, str(error))
            return _EMPTY

    def _batches(self, rest: memoryview, base: int, walk_bytes: int) -> Iterator[RecordBatch]:
        """Yield batches of records from the front of `rest`, up to the first unusual one."""
        if len(rest) < MIN_RECORD_BYTES + BLANK_MIN_BYTES:
            return
        positions = walk(rest, base, walk_bytes)
        for first in range(0, positions.size, MAX_BATCH_RECORDS):
            part = positions[first : first + MAX_BATCH_RECORDS]
            start = int(part[0])
            batch = read_batch(rest[start:], base + start, part - start, check_crc=self._check_crc)
            if len(batch):
                yield batch
            if len(batch) < part.size:
                return

    def _record(self, data: memoryview, base: int, offset: int, segment_end: int) -> Record | str | None:
        """Return the record at `offset`; None for the blank that closes the segment; else why it is neither."""
        position, remaining = offset - base, segment_end - offset
        if position + BLANK_MIN_BYTES > len(data):
            return "no room for a blank"
        size, magic = _SIZE_AND_MAGIC.unpack_from(data, position)
        if magic == MAGIC_BLANK and size == remaining:
            return None
        if magic not in (MAGIC_V1, MAGIC_V2):
            return "zeros" if size == magic == 0 else f"unknown magic number {magic}"
        if not MIN_RECORD_BYTES <= size <= remaining - BLANK_MIN_BYTES:
            return f"size {size} does not fit the segment"
        if position + size > len(data):
            return "the record goes beyond the file's end"
        record = decode(data[position : position + size], check_crc=self._check_crc)
        if isinstance(record, str) or record.physical_offset == offset:
            return record
        return f"record says physical offset {record.physical_offset}"

    def _following(self, data: memoryview, base: int, offset: int, segment_end: int, content_end: int) -> int | None:
        """Return where the next record or closing blank begins after the damage at `offset`; None if not here.

        From position `content_end` on there are only zeros.
        """
        position = offset - base
        if position + BLANK_MIN_BYTES <= len(data):
            size: int = _SIZE_AND_MAGIC.unpack_from(data, position)[0]
            named = offset + size
            if size >= MIN_RECORD_BYTES and not isinstance(self._begins(data, base, named, segment_end), str):
                return named
        search_from = position + MIN_RECORD_BYTES + _MAGIC_AT
        for match in _MAGIC.finditer(data, search_from, content_end):
            at = match.start() - _MAGIC_AT
            offset_at = at + _PHYSICAL_OFFSET_AT
            if offset_at + 8 > len(data) or _PHYSICAL_OFFSET.unpack_from(data, offset_at)[0] != base + at:
                continue
            if not isinstance(self._begins(data, base, base + at, segment_end), str):
                return base + at
        for match in _BLANK_MAGIC.finditer(data, position + 4 + _MAGIC_AT, content_end):
            at = match.start() - _MAGIC_AT
            if self._begins(data, base, base + at, segment_end) is None:
                return base + at
        return None

    def _begins(self, data: memoryview, base: int, offset: int, segment_end: int) -> Record | str | None:
        return self._record(data, base, offset, segment_end) if offset < segment_end else "after the segment"
