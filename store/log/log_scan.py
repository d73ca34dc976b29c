"""Scans of an open log: in batches, and record by record."""

from collections.abc import Iterator
from typing import Final

from store.log.commit_log import CommitLog
from store.record.record import Record
from store.scan.record_batch import RecordBatch
from store.scan.record_scan import RecordScan, ScanEnd, Stop, record_at

# Log that the event loop reads at once: 3 ms with plain Python.
TURN_BYTES: Final = 256 * 1024
_EMPTY: Final = memoryview(b"")


class LogScan:
    """Scan of the records from `offset` on, one by one, to the first bytes that are not a record.

    Slow: for few records, and the reference for tests and benchmarks of `ChunkScan`.

    After the scan, `end_offset` is one past the last valid record (or past the blank of a last segment); `stop` and
    `reason` say why it stopped.  `check_crc` is that of `store.record.record.decode`.
    """

    def __init__(self, log: CommitLog, offset: int, *, check_crc: bool) -> None:
        self._log = log
        self._check_crc = check_crc
        self.end_offset = offset
        self.stop = Stop.END
        self.reason = ""

    def __iter__(self) -> Iterator[Record]:
        while (record := self.step()) is not None:
            yield record

    def step(self) -> Record | None:
        """Return the record at `end_offset`, after blanks; None at the end of the scan."""
        log = self._log
        while True:
            offset = self.end_offset
            segment_end = log.segment_end(offset)
            found = record_at(
                _rest_of_segment(log, offset), 0, offset, segment_end - offset,
                check_crc=self._check_crc, require_seal=log.requires_seals,
            )  # fmt: skip
            if not isinstance(found, ScanEnd):
                self.end_offset += found.size_bytes
                return found
            if found.stop is not Stop.BLANK:
                self.stop, self.reason = found.stop, found.reason
                return None
            self.end_offset = segment_end


class ChunkScan:
    """Scan of the records from `offset` on, in batches: the records, `end_offset`, `stop` and `reason` of `LogScan`.

    The records of a batch begin within `batch_bytes`, if given.
    """

    def __init__(self, log: CommitLog, offset: int, *, check_crc: bool, batch_bytes: int | None = None) -> None:
        self._log = log
        self._check_crc = check_crc
        self._batch_bytes = batch_bytes
        self.end_offset = offset
        self.stop = Stop.END
        self.reason = ""

    def __iter__(self) -> Iterator[RecordBatch]:
        log = self._log
        while True:
            base = self.end_offset
            segment_end = log.segment_end(base)
            scan = RecordScan(
                _rest_of_segment(log, base), base, segment_end - base,
                check_crc=self._check_crc, require_seal=log.requires_seals, limit=self._batch_bytes,
            )  # fmt: skip
            for batch in scan:
                self.end_offset = batch.end_offset
                yield batch
            if scan.end.stop is Stop.BLANK:
                self.end_offset = segment_end
            elif scan.end.stop is not Stop.LIMIT:
                self.stop, self.reason = scan.end.stop, scan.end.reason
                return


def _rest_of_segment(log: CommitLog, offset: int) -> memoryview:
    """Return the log from `offset` to the end of its segment, or to the log's end; empty if it has nothing there."""
    data = log.slice_at(offset, min(log.segment_end(offset), log.wrote_offset) - offset)
    return _EMPTY if data is None else data
