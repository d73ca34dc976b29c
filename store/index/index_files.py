"""Folder of index files: which files to trust, how to name the next one, which have expired.

Source: RocketMQ 5.3.3, `IndexService`.  A file is named by the local time of its creation, and the names are in order.
All files but the last are full.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from store.config.store_config import StoreConfig
from store.disk.disk import Disk
from store.index.index_file import HEADER_BYTES, IndexDamaged, IndexFile, IndexHeader
from store.layout import index_file_bytes

_log = logging.getLogger(__name__)
NAME_DIGITS: Final = 17
_MILLISECOND: Final = timedelta(milliseconds=1)


class IndexFiles:
    """Open index files.

    `files` is replaced, never changed: a search in another thread reads it once.
    """

    def __init__(self, config: StoreConfig, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._directory = config.index_path
        self._slot_count = config.max_hash_slot_num
        self._max_units = config.max_index_num
        self._file_bytes = index_file_bytes(self._slot_count, self._max_units)
        self.files: tuple[IndexFile, ...] = ()

    @property
    def last(self) -> IndexFile | None:
        """The newest file."""
        return self.files[-1] if self.files else None

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, holes included."""
        return len(self.files) * self._file_bytes

    def load(self, *, durable_timestamp: int | None, log_end: int) -> None:
        """Open the files that can be trusted and remove the others, which are rebuilt from the log.

        After a crash `durable_timestamp` is the checkpoint's index_msg_timestamp, ms: the end of the newest file that
        was full and flushed.  Younger files, or files that are not full, may not be on the disk.  None after a clean
        stop.
        """
        names = [name for name in self._disk.names(self._directory) if self._is_name(name)]
        opened: list[IndexFile] = []
        for name in names:
            try:
                opened.append(self._open(name, opened, log_end))
            except IndexDamaged as error:
                _log.warning("event=index_rebuild reason=%r", str(error))
                break
        removed = names[len(opened) :]
        if durable_timestamp is not None:
            while opened and not (opened[-1].is_full and opened[-1].header.end_timestamp == durable_timestamp):
                file = opened.pop()
                file.close()
                removed.insert(0, file.path.name)
                # Normal after a crash for the file that was growing: no warning.
                _log.info("event=index_file_removed file=%s reason=not_known_to_be_durable", file.path)
        for name in removed:
            self._disk.remove(self._directory / name)
        self.files = tuple(opened)
        _log.info("event=index_files_loaded files=%d removed=%d", len(opened), len(removed))

    def _is_name(self, name: str) -> bool:
        if len(name) == NAME_DIGITS and name.isascii() and name.isdigit():
            return True
        _log.warning("event=index_file_ignored file=%s reason=not_named_by_time", self._directory / name)
        return False

    def _open(self, name: str, before: list[IndexFile], log_end: int) -> IndexFile:
        """Return the file if it can follow `before`.  Raises `IndexDamaged` if not."""
        path = self._directory / name
        size = self._disk.size(path)
        if size != self._file_bytes:
            raise IndexDamaged(f"{path}: size is {size} bytes, the configured size is {self._file_bytes}")
        opened = self._disk.open(path, preallocate=False)
        # Not through the mapping: on a full tmpfs even reading a page that was never written raises SIGBUS.
        try:
            header = IndexHeader.decode(memoryview(opened.read(0, HEADER_BYTES)))
        except StoreError:
            opened.close()
            raise
        file = IndexFile(opened, self._slot_count, self._max_units, header, is_new=False)
        reason = file.header_fault()
        if reason is None and header.index_count > 1 and header.end_physical_offset >= log_end:
            reason = f"it ends at physical offset {header.end_physical_offset}, the log at {log_end}"
        if reason is None and before:
            reason = _fault_between(before[-1], file)
        if reason is not None:
            file.close()
            raise IndexDamaged(f"{path}: {reason}")
        return file

    def create(self) -> IndexFile:
        """Add a file after the last.  Raises `DiskFull` or `DiskFailed`."""
        last = self.last
        path = self._directory / self._next_name()
        made = self._disk.create(path, self._file_bytes, preallocate=False)
        header = IndexHeader()
        if last is not None and last.header.end_physical_offset > 0:
            header.begin_physical_offset = header.end_physical_offset = last.header.end_physical_offset
        if last is not None and last.header.end_timestamp > 0:
            header.begin_timestamp = header.end_timestamp = last.header.end_timestamp
        file = IndexFile(made, self._slot_count, self._max_units, header, is_new=True)
        self.files = (*self.files, file)
        _log.info("event=index_file_created file=%s", path)
        return file

    def _next_name(self) -> str:
        """Return the local time to the millisecond, or a later name than the last one, so that names stay in order."""
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000)
        last = self.last
        name = _name_of(now)
        if last is None or name > last.path.name:
            return name
        try:
            return _name_of(datetime.strptime(last.path.name, "%Y%m%d%H%M%S%f") + _MILLISECOND)
        except ValueError:
            # The name's digits are not a time.
            return f"{int(last.path.name) + 1:0{NAME_DIGITS}d}"

    def remove(self, files: tuple[IndexFile, ...]) -> None:
        """Remove `files`.  Running searches continue: their views stay valid."""
        gone = set(map(id, files))
        self.files = tuple(file for file in self.files if id(file) not in gone)
        for file in files:
            file.close()
            self._disk.remove(file.path)
            _log.info("event=index_file_removed file=%s", file.path)

    def expired(self, min_physical_offset: int) -> tuple[IndexFile, ...]:
        """Return the first files, never the last, whose records all lie before `min_physical_offset`."""
        count = 0
        for file in self.files[:-1]:
            if file.header.end_physical_offset >= min_physical_offset:
                break
            count += 1
        return self.files[:count]

    def close(self) -> None:
        """Close all files without flushing them."""
        for file in self.files:
            file.close()
        self.files = ()


def _name_of(time: datetime) -> str:
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


def _fault_between(before: IndexFile, file: IndexFile) -> str | None:
    """Return why `file` cannot follow `before`; None if it can."""
    if not before.is_full:
        return f"the file before it, {before.path.name}, is not full"
    if file.header.begin_physical_offset < before.header.end_physical_offset:
        return f"it begins before the end of {before.path.name}"
    return None
