"""Scan of the log in arrays, chunk by chunk; unusual parts record by record."""

from collections.abc import Iterator
from typing import Final

from store.log.commit_log import CommitLog, LogScan
from store.record.log_walk import Positions, walk
from store.record.record import Record
from store.record.record_batch import RecordBatch, read_batch

# Bytes of the log walked at once, and records decoded at once.  Arrays that fit the processor's cache are several times
# as fast as larger ones.
MAX_WALK_BYTES: Final = 16 * 1024 * 1024
MAX_BATCH_RECORDS: Final = 4 * 1024
# After a walk that broke off, the next is short: if many break off, little is walked in vain.
MIN_WALK_BYTES: Final = 256 * 1024
_GROWTH: Final = 4


class ChunkScan:
    """A fast `LogScan`: the same records, the same `end_offset`, the same `reason`.

    Records that pass all checks come as a `RecordBatch`.  Where a batch breaks off (a blank, the log's end, damage, a
    valid but rare record), a `LogScan` decides.  The first walk is over `first_walk_bytes`.
    """

    def __init__(self, log: CommitLog, offset: int, *, check_crc: bool, first_walk_bytes: int = MIN_WALK_BYTES) -> None:
        self._log = log
        self._first_walk_bytes = min(max(first_walk_bytes, MIN_WALK_BYTES), MAX_WALK_BYTES)
        self._check_crc = check_crc
        self._single = LogScan(log, offset, check_crc=check_crc)

    @property
    def end_offset(self) -> int:
        """One past the last valid record found so far."""
        return self._single.end_offset

    @property
    def reason(self) -> str:
        """Why the scan stopped."""
        return self._single.reason

    def __iter__(self) -> Iterator[RecordBatch | Record]:
        log, single = self._log, self._single
        walk_bytes = self._first_walk_bytes
        while True:
            base = single.end_offset
            segment = log.slice_at(base, min(log.segment_end(base), log.wrote_offset) - base)
            if segment is not None:
                for batch in self._batches(segment, base, walk(segment, base, walk_bytes)):
                    single.end_offset = batch.end_offset
                    yield batch
                if single.end_offset - base >= min(walk_bytes, len(segment)):
                    walk_bytes = min(walk_bytes * _GROWTH, MAX_WALK_BYTES)
                    continue
                walk_bytes = MIN_WALK_BYTES
            record = single.step()
            if record is None:
                return
            yield record

    def _batches(self, segment: memoryview, base: int, positions: Positions) -> Iterator[RecordBatch]:
        """Yield the records at `positions`, up to the first unusual one."""
        for first in range(0, positions.size, MAX_BATCH_RECORDS):
            part = positions[first : first + MAX_BATCH_RECORDS]
            start = int(part[0])
            batch = read_batch(
                segment[start:], base + start, part - start,
                check_crc=self._check_crc, require_seal=self._log.requires_seals,
            )  # fmt: skip
            if len(batch):
                yield batch
            if len(batch) < part.size:
                return
