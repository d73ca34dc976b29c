"""Interface of the disk: every access of the store to files goes through a `Disk`.

Its design follows from these facts (Linux, CPython):

- `mmap.flush` holds the GIL.  So files are synced with `os.fdatasync`, on a descriptor that stays open.
- On a full disk, a store through a mapping of a sparse file kills the process with SIGBUS.  So mappings are read-only,
  and all writes use `pwrite`, which reports ENOSPC as an error.
- The page cache makes a write visible in the mapping at once.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.files.atomic_file import sync_directory
from sprocket.common.files.disk_errors import as_store_error
from sprocket.common.files.regular_file import open_regular, open_sized, read_regular
from sprocket.common.spare_descriptors import spare_descriptors
from store.disk.file_system_sync import can_sync_file_systems, sync_file_system
from store.disk.new_directories import NewDirectories, holders_of_missing
from store.disk.real_file import Content, RealFile
from store.disk.store_lock import take_lock

__all__ = ["Content", "Disk", "DiskFile", "DiskLock", "RealDisk", "RealFile"]

# For this many files or more, one sync of the whole file system is cheaper than one sync per file.
_MANY_FILES: Final = 64
_CREATE: Final = failpoint("disk.create", takes_error=True)
_BEFORE_ALLOCATE: Final = failpoint("disk.before_allocate", takes_error=True)
_CREATED: Final = failpoint("disk.created")
_WRITE_SMALL: Final = failpoint("disk.write_small", takes_error=True)
_SMALL_WRITTEN: Final = failpoint("disk.small_written", takes_error=True)
_RENAMED: Final = failpoint("disk.renamed", takes_error=True)
_REMOVE: Final = failpoint("disk.remove", takes_error=True)
_FILES_REMOVED: Final = failpoint("disk.files_removed", takes_error=True)


class DiskFile(Protocol):
    """One open file of fixed size.  `view` shows every write at once; slices of it stay valid after `close`."""

    path: Path

    @property
    def view(self) -> memoryview:
        """The whole file, read-only."""

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return a copy of `size_bytes` bytes, where a mapping would cost more.  Raises `DiskFailed`."""

    def write(self, position: int, content: Content) -> None:
        """Write all of `content`, whose items are bytes.

        Raises `DiskFull` or `DiskFailed`; then a part of it may be written.
        """

    def sync(self) -> None:
        """Sync the file: return when all written bytes are on the disk.  Raises `DiskFailed`.  For any thread."""

    def content_end(self, position: int) -> int:
        """Return one past the last byte from `position` on that is not zero; `position` if all are zero.

        Cheap in parts of the file that were never written.  Raises `DiskFailed`.
        """

    def read_ahead(self, enabled: bool) -> None:
        """Advise the system whether to read ahead of reads of `view`."""

    def cached_pages(self) -> bytes:
        """Return one byte per page: odd if the page is in the page cache.  For any thread."""

    def close(self) -> None:
        """Close the descriptor."""


class DiskLock(Protocol):
    """A held lock of a store."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Directories and files.  Paths are absolute."""

    def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> DiskFile:
        """Create a zero-filled file and its directories.

        With `preallocate`, reserve its blocks.  The first `sync` of the file also makes its name and those of its
        directories durable.  Raises `DiskFull` or `DiskFailed`; then the file does not exist.
        """

    def open(self, path: Path, *, preallocate: bool) -> DiskFile:
        """Open an existing file for reading and writing.  Raises `DiskFailed`."""

    def peek(self, path: Path | str, file_bytes: int, position: int, size_bytes: int) -> bytes | None:
        """Return a part of a file without keeping it open; None without a file of `file_bytes` at `path`.

        Raises `DiskFailed` for a file that cannot be opened for reading and writing.
        """

    def names(self, directory: Path) -> list[str]:
        """Return the names in `directory`, sorted; empty if it does not exist."""

    def entries(self, directory: Path, skipped: Container[str] = ()) -> list[tuple[str, int | None]]:
        """Return (name, size in bytes) of all entries of `directory`, sorted; size None if not a regular file.

        Without those in `skipped`.  Empty if `directory` does not exist.  Raises `DiskFailed`, also if it is a file.
        """

    def size(self, path: Path) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""

    def read(self, path: Path) -> bytes | None:
        """Return the content of a small file; None if it does not exist."""

    def write_small(self, path: Path, content: bytes) -> None:
        """Write a small file in place and sync it and its directory.  Raises `DiskFull` or `DiskFailed`.

        A crash during the write may leave any mixture of old and new content; see `store.disk.sealed_file`.
        """

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file within its directory, durably; replace an existing `target`.

        A crash leaves the old `target` or the new one.  Raises `DiskFull` or `DiskFailed`.
        """

    def remove_files(self, directory: Path, names: Sequence[str]) -> None:
        """Remove files of `directory`, and `directory` itself if it is empty after that.  Not durable: no sync.

        Files that do not exist are ignored.  Raises `DiskFailed`.
        """

    def remove(self, path: Path) -> None:
        """Remove a file, durably.  A file that does not exist is ignored."""

    def sync_many(self, files: Sequence[DiskFile]) -> None:
        """Sync `files`, which this disk opened; much faster than one by one if they are many.  Raises `DiskFailed`."""

    def sync_entries(self, directory: Path) -> None:
        """Make the names in `directory` durable.  A missing directory is ignored.  Raises `DiskFailed`."""

    def remove_tree(self, directory: Path) -> None:
        """Remove a directory and everything in it, durably.  A missing directory is ignored."""

    def lock(self, path: Path) -> DiskLock:
        """Lock the lock file; create its directories, durably.

        Raises `StoreError` if another process or store holds the lock.
        """

    def used_ratio(self, path: Path) -> float:
        """Return the used share, 0 to 1, of the file system of `path`; -1 if unknown."""


class RealDisk:
    """The `Disk` of the operating system."""

    def __init__(self) -> None:
        self._new_directories = NewDirectories()
        self._can_sync_all = can_sync_file_systems()
        # Device number -> descriptor, of each file system that was synced as a whole.
        self._file_systems: dict[int, int] = {}

    def __del__(self) -> None:
        for descriptor in self._file_systems.values():
            os.close(descriptor)

    def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> RealFile:
        descriptor = -1
        try:
            _CREATE()
            self._new_directories.make(path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            descriptor = spare_descriptors.use(lambda: os.open(path, flags, 0o644))
            _BEFORE_ALLOCATE()
            _extend(descriptor, size_bytes, preallocate)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
                with contextlib.suppress(OSError):
                    path.unlink()
            raise as_store_error(error, "create", path) from error
        file = RealFile(path, descriptor, size_bytes, self._new_directories)
        file.is_created()
        _CREATED()
        return file

    def open(self, path: Path, *, preallocate: bool) -> RealFile:
        try:
            return RealFile(path, *open_sized(path, os.O_RDWR), self._new_directories)
        except OSError as error:
            raise as_store_error(error, "open", path) from error

    def peek(self, path: Path | str, file_bytes: int, position: int, size_bytes: int) -> bytes | None:
        try:
            descriptor, found_bytes = open_sized(path, os.O_RDWR)
            try:
                return os.pread(descriptor, size_bytes, position) if found_bytes == file_bytes else None
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise as_store_error(error, "open", Path(path)) from error

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in spare_descriptors.use(lambda: list(directory.iterdir())))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise as_store_error(error, "list", directory) from error

    def entries(self, directory: Path, skipped: Container[str] = ()) -> list[tuple[str, int | None]]:
        try:
            with spare_descriptors.use(lambda: os.scandir(directory)) as found:
                sizes = dict(_sizes(entry for entry in found if entry.name not in skipped))
            # Python keeps 2,000 tuples that are freed for later ones.  Sorting tuples would scatter those over memory.
            return [(name, sizes[name]) for name in sorted(sizes)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise as_store_error(error, "list", directory) from error

    def size(self, path: Path) -> int | None:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise as_store_error(error, "look at", path) from error

    def read(self, path: Path) -> bytes | None:
        try:
            return read_regular(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise as_store_error(error, "read", path) from error

    def write_small(self, path: Path, content: bytes) -> None:
        try:
            _make_directories(path.parent)
            created = not path.exists()
            descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT)
            try:
                _WRITE_SMALL()
                _write_all(descriptor, content)
                os.ftruncate(descriptor, len(content))
                _SMALL_WRITTEN()
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if created:
                sync_directory(path.parent)
        except OSError as error:
            raise as_store_error(error, "write", path) from error

    def rename(self, source: Path, target: Path) -> None:
        try:
            source.replace(target)
            _RENAMED()
            sync_directory(target.parent)
        except OSError as error:
            raise as_store_error(error, "rename", source) from error

    def remove_files(self, directory: Path, names: Sequence[str]) -> None:
        try:
            for name in names:
                (directory / name).unlink(missing_ok=True)
            _FILES_REMOVED()
            directory.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise as_store_error(error, "remove", directory) from error

    def remove(self, path: Path) -> None:
        try:
            path.unlink()
            _REMOVE()
            sync_directory(path.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise as_store_error(error, "remove", path) from error

    def sync_many(self, files: Sequence[DiskFile]) -> None:
        real = [file for file in files if isinstance(file, RealFile)]
        if len(real) < max(len(files), _MANY_FILES) or not self._can_sync_all:
            for file in files:
                file.sync()
            return
        # One descriptor per file system stays open from the first sync on: syncfs reports errors since its opening.
        for device, file in {file.device: file for file in real}.items():
            descriptor = self._file_systems.get(device, -1)
            if descriptor < 0:
                descriptor = _open_above(file.path, device)
                if descriptor >= 0:
                    self._file_systems[device] = descriptor
                file.sync()
            if descriptor >= 0:
                try:
                    sync_file_system(descriptor)
                except OSError as error:
                    raise DiskFailed(f"sync the file system of {file.path}: {error}") from error
        for file in real:
            if file.device in self._file_systems:
                file.is_synced()
            else:
                file.sync()

    def sync_entries(self, directory: Path) -> None:
        try:
            sync_directory(directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise DiskFailed(f"sync {directory}: {error}") from error

    def remove_tree(self, directory: Path) -> None:
        try:
            spare_descriptors.use(lambda: shutil.rmtree(directory))
            sync_directory(directory.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise as_store_error(error, "remove", directory) from error

    def lock(self, path: Path) -> DiskLock:
        try:
            # Durably: the first sync of the store's first segment does not cover these new directories.
            _make_directories(path.parent)
            lock = take_lock(path)
        except OSError as error:
            raise as_store_error(error, "lock", path) from error
        if lock is None:
            raise StoreError(f"{path}: the store is in use by another broker")
        return lock

    def used_ratio(self, path: Path) -> float:
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            return -1.0
        return usage.used / max(1, usage.used + usage.free)


def _sizes(found: Iterable[os.DirEntry[str]]) -> Iterator[tuple[str, int | None]]:
    for entry in found:
        try:
            yield entry.name, entry.stat().st_size if entry.is_file() else None
        except FileNotFoundError:
            continue  # removed since the listing began
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            yield entry.name, None


def _open_above(path: Path, device: int) -> int:
    """Open the nearest existing directory above `path` on `device`; return -1 if none can be opened."""
    for directory in path.parents:
        with contextlib.suppress(OSError):
            descriptor = spare_descriptors.use(partial(os.open, directory, os.O_RDONLY | os.O_CLOEXEC))
            if os.fstat(descriptor).st_dev == device:
                return descriptor
            os.close(descriptor)
    return -1


def _make_directories(directory: Path) -> None:
    """Create `directory` and its parents, durably."""
    changed = holders_of_missing(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for holder in changed:
        sync_directory(holder)


def _write_all(descriptor: int, content: bytes) -> None:
    """Write `content` at the file's begin.  In a loop: a nearly full disk accepts a part without an error."""
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, memoryview(content)[written:], written)


def _extend(descriptor: int, size_bytes: int, preallocate: bool) -> None:
    if preallocate:
        os.posix_fallocate(descriptor, 0, size_bytes)
    else:
        os.ftruncate(descriptor, size_bytes)
