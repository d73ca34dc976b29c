"""End of the log that a backup may copy: the last record that is whole, matches its CRC, and is confirmed."""

from dataclasses import dataclass
from pathlib import Path

from sprocket.common.errors import CorruptRecord
from store.flush.confirm_mark import CONFIRM_MARK, decode_confirm_mark
from store.inspection.file_sequence import FileSequence, PartFile
from store.inspection.file_view import FileView, is_locked, read_small
from store.inspection.log_inspection import Gap, LogInspection
from store.scan.record_scan import UNFINISHED, RecordScan, Stop


@dataclass(frozen=True, slots=True)
class Mark:
    """Confirm offset that a running broker wrote, and when, ms."""

    offset: int
    written_ms: int


def confirm_mark(root: Path) -> Mark | None:
    """Return the mark of the broker that runs; None if nothing limits what may be read.

    A mark that is just being written counts as one from long ago.  Raises `StoreError`.
    """
    if not is_locked(root / "lock"):
        return None
    content = read_small(root / CONFIRM_MARK)
    if content is None:
        return None
    found = decode_confirm_mark(content)
    return Mark(0, 0) if isinstance(found, str) else Mark(*found)


def open_segment(log: FileSequence) -> PartFile | None:
    """Return the last segment with a record; None if the log has none.  Raises `StoreError`."""
    begun = None
    for part in log.parts:
        if part.size_bytes >= 8 and any(log.view(part).data[:8]):
            begun = part
    return begun


def verified_end(log: FileSequence, part: PartFile, limit: int | None) -> int:
    """Return the end of the last record of segment `part` that is whole and ends at `limit` or before.

    After the blank at a segment's end it is the next segment's start.  Raises `CorruptRecord` for damage that records
    follow, and `StoreError`.
    """
    # A broker may be writing.  First fix the end: a record that is not whole yet is then the last one, and left out.
    stop = part.start + log.file_bytes
    if limit is not None:
        stop = min(stop, limit)
    growing = LogInspection(log, part.start, stop, check_crc=False)
    for _ in growing:
        pass
    walk = LogInspection(log, part.start, min(stop, growing.end_offset), check_crc=True)
    for found in walk:
        if isinstance(found, Gap):
            text = f"{part.path}: {found.reason}; records follow. See what a repair would do: sprocket store repair"
            raise CorruptRecord(found.start, text)
    return walk.end_offset


def check_records(path: Path, start: int, segment_bytes: int, size_bytes: int) -> None:
    """Check every record of a copied segment: all of its bytes are records, up to the blank of a whole segment.

    Raises `CorruptRecord` at the first byte that is no record, and `StoreError`.
    """
    data = FileView(path).data[:size_bytes]
    scan = RecordScan(data, start, segment_bytes, check_crc=True)
    end = 0
    for batch in scan:
        end = batch.end_offset - start
    is_whole = size_bytes == segment_bytes
    if scan.end.stop is Stop.BLANK and is_whole:
        return
    if scan.end.stop in UNFINISHED and end == size_bytes:
        return
    raise CorruptRecord(start + scan.end.position, f"{path}: {scan.end.reason}")
