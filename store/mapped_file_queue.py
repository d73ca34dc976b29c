"""A byte sequence kept in files of equal size, each named by the offset of its first byte.

Both the CommitLog and every ConsumeQueue are one.  Source: RocketMQ 5.3.3, `MappedFileQueue`.
"""

import logging
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from store.disk import Content, Disk, DiskFile
from store.layout import FILE_NAME_DIGITS, file_name

_log = logging.getLogger(__name__)
_HEAD_BYTES: Final = 8
_CUT_BETWEEN_FILES: Final = failpoint("mapped_file_queue.cut_between_files")
_HALF_CREATED: Final = failpoint("mapped_file_queue.half_created")


class MappedFileQueue:
    """Files ``first_offset``, ``first_offset + file_bytes``, ... without a gap.

    Invariant: `files[i]` holds the offsets from ``first_offset + i * file_bytes`` on.
    """

    __slots__ = ("_disk", "_preallocate", "directory", "file_bytes", "files", "first_offset")

    def __init__(self, disk: Disk, directory: Path, file_bytes: int, *, preallocate: bool) -> None:
        self._disk = disk
        self._preallocate = preallocate
        self.directory = directory
        self.file_bytes = file_bytes
        self.files: list[DiskFile] = []
        self.first_offset = 0

    @property
    def end_offset(self) -> int:
        """One past the last byte that the files can hold."""
        return self.first_offset + len(self.files) * self.file_bytes

    def load(self) -> None:
        """Open the files that are there.

        A last file that a crash left half created (empty, or too short and without content) is removed.
        Raises `StoreError` naming the file for any other size, a bad name, or a gap.
        """
        names = self._file_names()
        for number, name in enumerate(names):
            path, offset = self.directory / name, int(name)
            size = self._disk.size(path)
            if size != self.file_bytes:
                if number == len(names) - 1 and self._is_half_created(path, size or 0):
                    _log.warning("file=%s size=%d action=removed reason=half-created", path, size)
                    self._disk.remove(path)
                    _HALF_CREATED()
                    return
                raise StoreError(
                    f"{path}: size is {size} bytes, configured are {self.file_bytes}; set the configured size back to"
                    " that of the files, or restore the file"
                )
            if not self.files:
                self._check_first(path, offset)
            elif offset != self.end_offset:
                raise StoreError(f"{path}: expected the file {file_name(self.end_offset)} before it; it is missing")
            self.files.append(self._disk.open(path, preallocate=self._preallocate))

    def _file_names(self) -> list[str]:
        names = []
        for name in self._disk.names(self.directory):
            if len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit():
                names.append(name)
            else:
                _log.warning("file=%s action=ignored reason=not-named-by-offset", self.directory / name)
        return names

    def _check_first(self, path: Path, offset: int) -> None:
        if offset % self.file_bytes:
            raise StoreError(f"{path}: its offset is no multiple of the configured file size {self.file_bytes}")
        self.first_offset = offset

    def _is_half_created(self, path: Path, size: int) -> bool:
        if size == 0:
            return True
        if size > self.file_bytes or size < _HEAD_BYTES:
            return size < _HEAD_BYTES
        file = self._disk.open(path, preallocate=False)
        empty = not any(file.view[:_HEAD_BYTES])
        file.close()
        return empty

    def path_at(self, offset: int) -> Path:
        """Path of the file that begins at `offset`."""
        return self.directory / file_name(offset)

    def create_next(self) -> DiskFile:
        """Add a file at `end_offset`.  Raises `DiskFull` or `DiskFailed`."""
        file = self._disk.create(self.path_at(self.end_offset), self.file_bytes, preallocate=self._preallocate)
        self.files.append(file)
        return file

    def locate(self, offset: int) -> tuple[DiskFile, int] | None:
        """File and position in it of `offset`; None outside the files."""
        distance = offset - self.first_offset
        if distance < 0:
            return None
        index, position = divmod(distance, self.file_bytes)
        return (self.files[index], position) if index < len(self.files) else None

    def write(self, offset: int, content: Content) -> None:
        """Write `content` at `offset`, over file ends where needed; files are added as needed."""
        view = memoryview(content)
        while len(view):
            if offset == self.end_offset:
                self.create_next()
            located = self.locate(offset)
            if located is None:
                raise StoreError(f"{self.directory}: offset {offset} is outside its files")
            file, position = located
            part = view[: self.file_bytes - position]
            file.write(position, part)
            offset += len(part)
            view = view[len(part) :]

    def cut(self, offset: int) -> None:
        """Make `offset` the end: later files are removed, the rest of its file is zero.  Not synced."""
        while self.files and self.end_offset - self.file_bytes >= offset:
            file = self.files.pop()
            file.close()
            self._disk.remove(file.path)
            _CUT_BETWEEN_FILES()
        located = self.locate(offset)
        if located is not None:
            file, position = located
            file.cut(position)

    def destroy(self) -> None:
        """Close and remove all files."""
        for file in self.files:
            file.close()
        self.files.clear()
        self.first_offset = 0
        self._disk.remove_tree(self.directory)

    def close(self) -> None:
        """Close all files; slices of their views stay valid."""
        for file in self.files:
            file.close()
        self.files.clear()


def zero_quietly(queue: MappedFileQueue, start: int, end: int) -> bool:
    """Overwrite what a failed write may have left; True if that worked.  Used only on the way to an error."""
    try:
        queue.write(start, bytes(end - start))
    except StoreError:
        return False
    return True
