"""Conversion of records to a CommitLog in which they lie one after another: pure, from records to bytes.

In DLedger's files a record lies 48 bytes after its entry begins, and says so: its physical offset counts the heads of
all entries before it.  In the new log it gets the offset where it then lies.  Nothing else of it changes, so queues and
queue offsets stay.
Source: RocketMQ 5.3.3, `DLedgerCommitLog` (its append hook), `CommitLog`.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Final

from sprocket.common.errors import CorruptRecord
from sprocket.remoting.message.record import BLANK_MIN_BYTES
from store.inspection.file_sequence import FileSequence
from store.record.checksum import SEAL_BYTES, masked_crc, seal, sealed_crc
from store.record.record import Record, blank, decode
from store.scan.record_scan import ScanEnd, Stop, record_at

# After size, magic number, CRC, queue id, flag (i32 each) and queue offset (i64).
_PHYSICAL_OFFSET_AT: Final = 28
_OFFSET: Final = struct.Struct(">q")


class LogWriter:
    """Layout of a log with segments of `segment_bytes`, from offset 0 on."""

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self.end_offset = 0
        # Number of records of each topic.
        self.records: Counter[str] = Counter()

    def add(self, record: memoryview, source: str) -> list[memoryview]:
        """Return the pieces of the log for one record: the blank before it, if its segment is full, and the record.

        Raises `CorruptRecord`, which names `source`, if `record` is no whole record or does not fit into a segment.
        """
        found = decode(record, check_crc=False)
        if not isinstance(found, Record):
            raise CorruptRecord(self.end_offset, f"{source}: {found}")
        if masked_crc(found.body) != found.body_crc:
            raise CorruptRecord(self.end_offset, f"{source}: the body does not match its CRC")
        pieces = []
        room = self._segment_bytes - self.end_offset % self._segment_bytes
        if len(record) + BLANK_MIN_BYTES > self._segment_bytes:
            raise CorruptRecord(
                self.end_offset, f"{source}: its {len(record)} bytes do not fit into segments of {self._segment_bytes}"
            )
        if len(record) + BLANK_MIN_BYTES > room:
            pieces.append(memoryview(blank(room).ljust(room, b"\0")))
            self.end_offset += room
        pieces.append(memoryview(self._moved(record)))
        self.end_offset += len(record)
        self.records[found.topic] += 1
        return pieces

    def _moved(self, record: memoryview) -> bytes:
        moved = bytearray(record)
        _OFFSET.pack_into(moved, _PHYSICAL_OFFSET_AT, self.end_offset)
        if sealed_crc(bytes(moved[-SEAL_BYTES:])) >= 0:
            moved[-SEAL_BYTES:] = seal(masked_crc(bytes(moved[:-SEAL_BYTES])))
        return bytes(moved)


def records_of(log: FileSequence, stop: int | None = None) -> Iterator[tuple[int, memoryview]]:
    """Yield (offset, record) of a CommitLog's records before `stop`: those from before DLedger mode was turned on.

    Raises `CorruptRecord` for damage that records follow.
    """
    for number, part in enumerate(log.parts):
        data, at = log.view(part).data, 0
        while stop is None or part.start + at < stop:
            found = record_at(data, at, part.start, log.file_bytes, check_crc=True)
            if isinstance(found, ScanEnd):
                if found.stop is not Stop.BLANK and number + 1 < len(log.parts):
                    raise CorruptRecord(
                        part.start + at, f"{part.path}: {found.reason}; run sprocket store repair first"
                    )
                break
            yield part.start + at, data[at : at + found.size_bytes]
            at += found.size_bytes
