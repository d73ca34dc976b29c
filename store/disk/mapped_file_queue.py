"""A byte sequence in files of equal size, each named by the offset of its first byte.

The CommitLog and every ConsumeQueue are such sequences.  Source: RocketMQ 5.3.3, `MappedFileQueue`.
"""

import logging
from pathlib import Path
from typing import Final, NamedTuple

from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from store.disk.disk import Content, Disk, DiskFile
from store.layout import FILE_NAME_DIGITS, file_name

_log = logging.getLogger(__name__)
_ZEROS_AT_ONCE: Final = 1 << 20
# Allocated in advance: the failure that makes an erasure necessary may be a lack of memory.
_ZEROS: Final = bytes(64 * 1024)
_STRANGERS_SHOWN: Final = 5
_CUT_BETWEEN_FILES: Final = failpoint("mapped_file_queue.cut_between_files")
_HALF_CREATED: Final = failpoint("mapped_file_queue.half_created")


class Detached(NamedTuple):
    """A file that is not part of the sequence; `reason` names it and says why.  `size_bytes`: None if not a file."""

    path: Path
    offset: int
    size_bytes: int | None
    reason: str


def warn_of_strangers(directory: Path, names: list[str]) -> None:
    """Log which entries of `directory` are not the store's.  The store does not touch them."""
    shown = names[:_STRANGERS_SHOWN]
    _log.warning("event=unknown_files_ignored directory=%s count=%d names=%r", directory, len(names), shown)


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
        """Open the existing files.  Raises `StoreError` that names the first misfit, see `load_front`."""
        detached = self.load_front()
        if detached:
            raise StoreError(detached[0].reason)

    def load_only(self, offset: int, position: int, size_bytes: int) -> bytes | None:
        """Take the file that begins at `offset` as the only one, without a look at the directory.

        Return `size_bytes` of it from `position` on.  Return None if there is no such file of the configured size; then
        nothing is open.  Raises `DiskFailed`.
        """
        path = self.path_at(offset)
        content = self._disk.peek(path, self.file_bytes, position, size_bytes)
        if content is not None:
            self.first_offset = offset
            self.files.append(self._disk.open(path, preallocate=self._preallocate))
        return content

    def load_front(self) -> list["Detached"]:
        """Open the files before the first misfit; return the misfit and all files after it.

        A misfit is: a file of another size than configured, a file after a gap, an entry that is not a file, or a first
        file whose offset is not a multiple of the size.  Last files that a crash left half created (empty, or too short
        and without content) are removed.  Entries whose name is not an offset are ignored.  Raises `DiskFailed`.
        """
        found = self._without_half_created(self._named_by_offset())
        for number, (name, size) in enumerate(found):
            reason = self._misfit(name, size)
            if reason is not None:
                return [Detached(self.directory / name, int(name), size, reason) for name, size in found[number:]]
            if not self.files:
                self.first_offset = int(name)
            self.files.append(self._disk.open(self.directory / name, preallocate=self._preallocate))
        return []

    def _named_by_offset(self) -> list[tuple[str, int | None]]:
        found, strange = [], []
        for name, size in self._disk.entries(self.directory):
            if len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit():
                found.append((name, size))
            else:
                strange.append(name)
        if strange:
            warn_of_strangers(self.directory, strange)
        return found

    def _without_half_created(self, found: list[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
        while found:
            name, size = found[-1]
            path = self.directory / name
            if size is None or size >= self.file_bytes or (size and self._has_content(path)):
                break
            _log.warning("event=half_created_file_removed file=%s size=%d", path, size)
            self._disk.remove(path)
            _HALF_CREATED()
            found.pop()
        return found

    def _has_content(self, path: Path) -> bool:
        file = self._disk.open(path, preallocate=False)
        try:
            return file.content_end(0) > 0
        finally:
            file.close()

    def begin_at(self, offset: int) -> None:
        """Make the first file of an empty queue begin at `offset`."""
        self.first_offset = offset

    def is_hollow(self, detached: Detached) -> bool:
        """Return whether a file is too short and without content: a power cut leaves a file like this before a sync."""
        size = detached.size_bytes
        return size is not None and size < self.file_bytes and not (size and self._has_content(detached.path))

    def _misfit(self, name: str, size: int | None) -> str | None:
        """Return why the file cannot be the next one; None if it can."""
        if size is None:
            reason = "is not a file; move it away"
        elif self.files and int(name) != self.end_offset:
            reason = f"expected the file {file_name(self.end_offset)} before it; it is missing"
        elif size != self.file_bytes:
            reason = (
                f"size is {size} bytes, configured are {self.file_bytes}; set the configured size back to that of the"
                " files, or restore the file"
            )
        elif int(name) % self.file_bytes:
            reason = f"its offset is not a multiple of the configured file size {self.file_bytes}"
        else:
            return None
        return f"{self.directory / name}: {reason}"

    def path_at(self, offset: int) -> Path:
        """Return the path of the file that begins at `offset`."""
        return self.directory / file_name(offset)

    def create_next(self) -> DiskFile:
        """Add a file at `end_offset`.  Raises `DiskFull` or `DiskFailed`."""
        file = self._disk.create(self.path_at(self.end_offset), self.file_bytes, preallocate=self._preallocate)
        self.files.append(file)
        return file

    def locate(self, offset: int) -> tuple[DiskFile, int] | None:
        """Return the file that holds `offset`, and the position in it; None outside the files."""
        distance = offset - self.first_offset
        if distance < 0:
            return None
        index, position = divmod(distance, self.file_bytes)
        return (self.files[index], position) if index < len(self.files) else None

    def between(self, start: int, end: int) -> list[DiskFile]:
        """Return the files that hold any of the bytes from `start` to before `end`.

        Another thread may call this while the owner adds files or drops the oldest.
        """
        while True:
            files, first_offset = self.files, self.first_offset
            # A drop replaces both, one after the other: between the two they do not match.
            if not files or files[0].path.name == file_name(first_offset):
                break
        if end <= start:
            return []
        first = max(0, (start - first_offset) // self.file_bytes)
        last = (end - 1 - first_offset) // self.file_bytes
        return files[first : max(0, last + 1)]

    def drop_oldest(self, count: int) -> list[DiskFile]:
        """Take the `count` oldest files out of the sequence.  Return them, open: the caller removes them."""
        if not count:
            return []
        dropped = self.files[:count]
        # A new list: another thread may be iterating over the old one.
        self.files = self.files[count:]
        self.first_offset += len(dropped) * self.file_bytes
        return dropped

    def drop_before(self, offset: int) -> list[DiskFile]:
        """Do the same with the files that end at `offset` or before it, except the last file of the sequence."""
        whole = (offset - self.first_offset) // self.file_bytes
        return self.drop_oldest(max(0, min(whole, len(self.files) - 1)))

    def write(self, offset: int, content: Content) -> None:
        """Write `content` at `offset`, across ends of files if necessary; add files as needed."""
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

    def cut(self, offset: int, *, keeps_begin: bool = False) -> None:
        """Make `offset` the end: remove later files, and zero the rest of its file.  The zeros are not synced.

        The file is overwritten, never shortened: after a crash it has its full size.  With `keeps_begin`, a first file
        that begins at `offset` stays: only its name says where the sequence begins.
        """
        min_files = int(keeps_begin and offset == self.first_offset)
        while len(self.files) > min_files and self.end_offset - self.file_bytes >= offset:
            file = self.files.pop()
            file.close()
            self._disk.remove(file.path)
            _CUT_BETWEEN_FILES()
        located = self.locate(offset)
        if located is not None:
            file, position = located
            end = file.content_end(position)
            while position < end:
                count = min(end - position, _ZEROS_AT_ONCE)
                file.write(position, bytes(count))
                position += count

    def destroy(self) -> None:
        """Close and remove all files, and the directory if it is empty after that.  Not durable: no sync."""
        self.close()
        self.first_offset = 0
        names = (name for name, size in self._disk.entries(self.directory) if size is not None)
        own = [name for name in names if len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()]
        self._disk.remove_files(self.directory, own)

    def close(self) -> None:
        """Close all files; slices of their views stay valid."""
        # A new list, as in `drop_oldest`.
        files, self.files = self.files, []
        for file in files:
            file.close()


def zero_quietly(queue: MappedFileQueue, start: int, end: int) -> bool:
    """Overwrite the rest of a failed write with zeros; return whether that succeeded.  For error paths only."""
    try:
        for at in range(start, end, len(_ZEROS)):
            queue.write(at, _ZEROS[: end - at])
    except BaseException:  # whatever the error is, the bytes may not be zero
        return False
    return True
