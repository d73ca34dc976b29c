"""The CommitLog: all messages of the broker in order of arrival.

Source: RocketMQ 5.3.3, `CommitLog`, `DefaultAppendMessageCallback`.
"""

import logging
import struct
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.remoting.message.record import MIN_RECORD_BYTES
from store.config.store_config import StoreConfig
from store.disk.disk import Disk, DiskFile
from store.disk.file_allocator import FileAllocator
from store.disk.mapped_file_queue import Detached, MappedFileQueue, zero_quietly
from store.layout import AFTER_ARCHIVES
from store.record.record import store_timestamp_of
from store.scan.columns import Integers
from store.worker import ThreadWorker, Workers

_log = logging.getLogger(__name__)
_SIZE: Final = struct.Struct(">i")
_EMPTY: Final = memoryview(b"")
_BETWEEN_CHUNKS: Final = failpoint("commit_log.between_chunks")
_BEFORE_ERASE: Final = failpoint("commit_log.before_erase")
_CUT_BEFORE_SYNC: Final = failpoint("commit_log.cut_before_sync")
_CUT_SYNCED: Final = failpoint("commit_log.cut_synced")


class CommitLog:
    """The segments and the position of the next record.

    Invariants: bytes from `wrote_offset` on are not part of the log, whatever they hold.  A record, and the blank after
    the last record of a segment, never cross a segment's end.
    """

    def __init__(self, config: StoreConfig, disk: Disk, workers: Workers = ThreadWorker) -> None:
        self.segment_bytes = config.mapped_file_size_commit_log
        # Where a new log begins.
        self._first_offset = AFTER_ARCHIVES - AFTER_ARCHIVES % self.segment_bytes if config.read_only_from else 0
        # Whether a record without a seal (`store.record.checksum`) counts as damaged.
        self.requires_seals = config.force_verify_prop_crc
        self._files = MappedFileQueue(disk, config.commit_log_path, self.segment_bytes, preallocate=True)
        self._allocator = FileAllocator(disk, workers, config.warm_bytes)
        self._reads_ahead = config.data_read_ahead_enable
        self._prepared_offset = -1
        # The segment that is written, and the range of its offsets where a write needs no other action.
        self._file: DiskFile | None = None
        self._file_start = self._file_end = 0
        self.wrote_offset = 0
        # Increases when readable bytes are dropped or may be replaced.
        self.revision = 0
        self.detached: list[Detached] = []
        # The segment that was read last, and the range of its offsets.
        self._view = _EMPTY
        self._view_start = self._view_end = 0

    @property
    def directory(self) -> Path:
        """Directory of the segments."""
        return self._files.directory

    @property
    def min_offset(self) -> int:
        """Offset of the first byte that is kept."""
        return self._files.first_offset

    def load(self) -> None:
        """Open the segments; then `wrote_offset` is their end, until recovery truncates the log.

        Raises `StoreError` if the first segment is a misfit with content.  `detached` gets the first misfit and all
        segments after it, unopened: recovery decides whether they are missed.
        """
        self.detached = self._files.load_front()
        if not self._reads_ahead:
            self._advise()
        if self.detached and not self._files.files and not self._files.is_hollow(self.detached[0]):
            raise StoreError(self.detached[0].reason)
        if not self._files.files:
            self._files.begin_at(self._first_offset)
        self.wrote_offset = self._files.end_offset

    def forget_detached(self) -> None:
        """Empty `detached`, because the files are gone."""
        self.detached = []

    def configure(self, config: StoreConfig) -> None:
        """Apply a changed configuration: the keys that may change while the log is open."""
        self.requires_seals = config.force_verify_prop_crc
        self._allocator.configure(config.warm_bytes)
        if config.data_read_ahead_enable != self._reads_ahead:
            self._reads_ahead = config.data_read_ahead_enable
            self._advise()

    def _advise(self) -> None:
        """Advise the system whether to read ahead in the segments; `_writable` advises it for new ones."""
        for file in self._files.files:
            file.read_ahead(self._reads_ahead)

    def segment_before(self, store_timestamp_ms: int) -> int:
        """Return the begin of the newest segment that was begun before this time, or of the log."""
        offset = self.segment_end(self.wrote_offset) - self.segment_bytes
        while offset > self.min_offset and not 0 <= self.segment_time(offset) < store_timestamp_ms:
            offset -= self.segment_bytes
        return max(offset, self.min_offset)

    def segment_end(self, offset: int) -> int:
        """Return the end of the segment that holds `offset`."""
        return offset - offset % self.segment_bytes + self.segment_bytes

    def write(self, chunks: list[tuple[int, bytes]], end_offset: int) -> None:
        """Write `chunks`, (offset, bytes) that do not cross a segment's end; then the log ends at `end_offset`.

        Raises `DiskFailed` if the bytes in the log are now unknown.  After any other exception the log is as before.
        """
        try:
            for offset, content in chunks:
                self.write_at(offset, content)
        except DiskFailed:
            raise
        except BaseException as error:
            self.erase(chunks, error)
            raise
        self.wrote_offset = end_offset

    def write_at(self, offset: int, content: bytes | memoryview) -> None:
        """Write bytes that do not cross a segment's end.  The log's end does not change.

        Raises `DiskFull` or `DiskFailed`; then the bytes at `offset` are unknown.
        """
        if self._file_start <= offset < self._file_end and self._file is not None:
            self._file.write(offset - self._file_start, content)
        else:
            _BETWEEN_CHUNKS()
            file, position = self._writable(offset)
            file.write(position, content)

    def begin_at(self, offset: int) -> None:
        """Make an empty log begin at `offset`, the begin of a segment, durably.

        Raises `StoreError` for any other offset, `DiskFull` or `DiskFailed`.
        """
        if self.wrote_offset or offset % self.segment_bytes:
            raise StoreError(f"a log of segments of {self.segment_bytes} bytes cannot begin at {offset}")
        # Even so a segment may exist, with bytes that never became a record.
        self.cut(self._files.first_offset)
        self._allocator.discard()
        self._prepared_offset = -1
        self._files.begin_at(offset)
        try:
            # Only the name of the file says where the log begins.
            self._writable(offset)[0].sync()
        except StoreError:
            if not self._files.files:
                self._files.begin_at(0)
            raise
        self.wrote_offset = offset

    def piece_at(self, offset: int, max_bytes: int) -> memoryview | None:
        """Return at most `max_bytes` bytes of one segment from `offset` on; None if the log has none there."""
        end = min(offset + max_bytes, self.wrote_offset, self.segment_end(offset))
        return self.slice_at(offset, end - offset)

    def erase(self, chunks: list[tuple[int, bytes]], cause: BaseException | None) -> None:
        """End the log before `chunks`, and zero their written bytes, so that recovery does not find records in them.

        Raises `DiskFailed` if that fails.
        """
        if chunks:
            self.wrote_offset = chunks[0][0]
        _BEFORE_ERASE()
        for offset, content in reversed(chunks):
            if offset < self._files.end_offset and not zero_quietly(self._files, offset, offset + len(content)):
                reason = f": {cause}" if cause is not None else ""
                raise DiskFailed(f"cannot roll back a failed write at physical offset {offset}{reason}") from cause

    def erase_between(self, start: int, end: int) -> None:
        """Zero the bytes from `start`, at or after the log's end, to before `end`.  Raises `DiskFailed`."""
        end = min(end, self._files.end_offset)
        if start < end and not zero_quietly(self._files, start, end):
            raise DiskFailed(f"cannot erase the bytes after physical offset {start}")

    def _writable(self, offset: int) -> tuple[DiskFile, int]:
        files = self._files
        located = files.locate(offset)
        if located is None:
            if offset != files.end_offset:
                raise StoreError(f"physical offset {offset} is not the log's end {files.end_offset}")
            file = self._allocator.take(files.path_at(offset), self.segment_bytes)
            file.read_ahead(self._reads_ahead)
            files.files.append(file)
            located = files.files[-1], 0
        next_offset = files.end_offset
        if self._prepared_offset != next_offset and next_offset - offset < self.segment_bytes // 2:
            # Reserving blocks takes long, so the next segment is created before it is needed.
            self._prepared_offset = next_offset
            self._allocator.prepare(files.path_at(next_offset), self.segment_bytes)
        self._file, position = located
        self._file_start = offset - position
        self._file_end = self._file_start + self.segment_bytes
        if self._prepared_offset != next_offset:
            self._file_end = min(self._file_end, next_offset - self.segment_bytes // 2)
        return located

    def slice_at(self, offset: int, size_bytes: int) -> memoryview | None:
        """Return `size_bytes` bytes at `offset`, without a copy; None if not all are in one segment of the log."""
        end = offset + size_bytes
        if size_bytes <= 0 or end > self.wrote_offset:
            return None
        if not self._view_start <= offset < self._view_end:
            self._turn_to(offset)
        start = self._view_start
        if offset < start or end > self._view_end:
            return None
        return self._view[offset - start : end - start]

    def segment_at(self, offset: int) -> tuple[memoryview, int, int]:
        """Return the segment that holds `offset`: its bytes, its first offset and its end; empty if there is none."""
        if not self._view_start <= offset < self._view_end:
            self._turn_to(offset)
        return self._view, self._view_start, self._view_end

    def run_at(self, entries: npt.NDArray[np.void]) -> tuple[memoryview, Integers, Integers]:
        """Return the segment of the record of the first entry, and positions and sizes of its records.

        `entries` have `physical_offset` and `size`.  The records are those of the first entry and of the following
        entries in the same segment.  There are none if the first record is gone, or was never there.
        """
        segment, start, end = self.segment_at(int(entries["physical_offset"][0]))
        end = min(end, self.wrote_offset)
        positions = entries["physical_offset"].astype(np.int64) - start
        sizes = entries["size"].astype(np.int64)
        outside = (positions < 0) | (positions + sizes > end - start)
        count = int(outside.argmax()) if outside.any() else len(positions)
        return segment, positions[:count], sizes[:count]

    def path_of(self, offset: int) -> Path:
        """Return the path of the segment that holds `offset`."""
        return self._files.path_at(offset - offset % self.segment_bytes)

    def _turn_to(self, offset: int) -> None:
        """Read from the segment that holds `offset` from now on; from none if there is none."""
        located = self._files.locate(offset)
        if located is None:
            self._view, self._view_start, self._view_end = _EMPTY, 0, 0
        else:
            self._view = located[0].view
            self._view_start = offset - located[1]
            self._view_end = self._view_start + self.segment_bytes

    def record_at(self, offset: int, size_bytes: int | None = None) -> memoryview | None:
        """Return the record at `offset`; its size is read from the log if not given.  None if there is none."""
        if size_bytes is None:
            head = self.slice_at(offset, 4)
            if head is None:
                return None
            size_bytes = int(_SIZE.unpack(head)[0])
        if size_bytes < MIN_RECORD_BYTES:
            return None
        return self.slice_at(offset, size_bytes)

    def store_time_at(self, offset: int, size_bytes: int) -> int:
        """Return the store timestamp, ms, of the record; -1 if it is not in the log."""
        record = self.record_at(offset, size_bytes)
        return -1 if record is None else store_timestamp_of(record)

    def first_store_time(self) -> int:
        """Return the store timestamp, ms, of the oldest record; -1 if the log is empty."""
        record = self.record_at(self.min_offset)
        return -1 if record is None else store_timestamp_of(record)

    def files_between(self, start: int, end: int) -> list[DiskFile]:
        """Return the segments with any of the bytes from `start` to before `end`, for a sync in another thread."""
        return self._files.between(start, end)

    def segment_time(self, offset: int) -> int:
        """Return the store timestamp, ms, of the first record of the segment at `offset`; -1 if there is none."""
        located = self._files.locate(offset)
        if located is None or offset + MIN_RECORD_BYTES > self.wrote_offset:
            return -1
        file, position = located
        # Not through the mapping: the segment is old and rarely read, and a mapping holds a descriptor.
        return store_timestamp_of(memoryview(file.read(position, MIN_RECORD_BYTES)))

    def drop_oldest(self) -> DiskFile:
        """Drop the oldest segment, never the only one: then the log begins after it.  Slices stay valid.

        Return its file, open: the caller removes it.
        """
        self.revision += 1
        self._turn_to(-1)
        return self._files.drop_oldest(1)[0]

    def cut(self, offset: int) -> None:
        """Truncate the log at `offset`, with zeros after it, synced.  Raises `DiskFull` or `DiskFailed`."""
        self.revision += 1
        self._turn_to(-1)
        self._forget_file()
        # A replica's log that begins after 0 may have no record yet.  At the next start it must not begin at 0.
        self._files.cut(offset, keeps_begin=offset > 0)
        located = self._files.locate(offset)
        if located is not None:
            _CUT_BEFORE_SYNC()
            located[0].sync()
        _CUT_SYNCED()
        self.wrote_offset = offset

    def close(self) -> None:
        """Close the segments and drop the one prepared ahead."""
        self._allocator.close()
        self._turn_to(-1)
        self._forget_file()
        self._files.close()

    def _forget_file(self) -> None:
        self._file, self._file_start, self._file_end = None, 0, 0
