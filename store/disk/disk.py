"""The disk seam: every access of the store to files goes through a `Disk`.

Facts that shape it (Linux, CPython): `mmap.flush` holds the GIL, so files are synced with
`os.fdatasync` on a descriptor that stays open.  A store through a mapping of a sparse file kills the
process with SIGBUS when the disk is full, so mappings here are read-only and all writes are `pwrite`,
which reports ENOSPC as an error.  The page cache makes a write visible in the mapping at once.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from sprocket.common.atomic_file import sync_directory
from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.failpoints import failpoint
from store.disk.file_system_sync import can_sync_file_systems, sync_file_system
from store.disk.new_directories import NewDirectories, holders_of_missing
from store.disk.real_file import Content, RealFile, as_store_error
from store.disk.store_lock import take_lock

__all__ = ["Content", "Disk", "DiskFile", "DiskLock", "RealDisk", "RealFile"]

# From so many files on one sync of the whole file system is cheaper than one of each.
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
    """One file of fixed size.  `view` shows every write at once; slices of it stay valid after `close`."""

    path: Path

    @property
    def view(self) -> memoryview:
        """The whole file, read-only."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """A copy of so many bytes, for a look that is not worth a mapping.  Raises `DiskFailed`."""
        ...

    def write(self, position: int, content: Content) -> None:
        """Write all of `content`, whose items are bytes.  Raises `DiskFull` or `DiskFailed`; part may be there."""
        ...

    def sync(self) -> None:
        """Return when everything written is on the disk.  Raises `DiskFailed`.  May run in any thread."""
        ...

    def content_end(self, position: int) -> int:
        """One past the last byte from `position` on that is not zero; `position` if all are.

        Cheap where nothing was ever written.  Raises `DiskFailed`.
        """
        ...

    def read_ahead(self, enabled: bool) -> None:
        """Let the system read ahead where `view` is read, or not: advice for reads far apart."""
        ...

    def cached_pages(self) -> bytes:
        """One byte for each page: odd if the page is in the page cache.  May run in any thread."""
        ...

    def close(self) -> None:
        """Release the descriptor."""
        ...


class DiskLock(Protocol):
    """A held lock; `release` gives it up."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Directories and files.  Paths are absolute."""

    def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> DiskFile:
        """Make a zero-filled file, its directories included.

        With `preallocate` its blocks are reserved.  The first `sync` of the file makes its directory entry
        and those of its directories durable too.  Raises `DiskFull` or `DiskFailed`; the file is then not there.
        """
        ...

    def open(self, path: Path, *, preallocate: bool) -> DiskFile:
        """Open an existing file for reading and writing.  Raises `DiskFailed`."""
        ...

    def names(self, directory: Path) -> list[str]:
        """Names in `directory`, sorted; empty if it does not exist."""
        ...

    def entries(self, directory: Path) -> list[tuple[str, int | None]]:
        """(name, size in bytes) of all in `directory`, sorted; the size of what is no regular file is None.

        Empty if it does not exist.  Raises `DiskFailed`, also if it is a file.
        """
        ...

    def size(self, path: Path) -> int | None:
        """Bytes of a file; None if there is none."""
        ...

    def read(self, path: Path) -> bytes | None:
        """Content of a small file; None if there is none."""
        ...

    def write_small(self, path: Path, content: bytes) -> None:
        """Write a small file in place and sync it and its directory.  Raises `DiskFull` or `DiskFailed`.

        A crash in the middle may leave any mixture of old and new; see `store.disk.sealed_file`.
        """
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name in the same directory, durably, in place of what had that name.

        A crash in the middle leaves the old `target` or the new one.  Raises `DiskFull` or `DiskFailed`.
        """
        ...

    def remove_files(self, directory: Path, names: Sequence[str]) -> None:
        """Remove files of `directory`, and `directory` itself if it is then empty.  Not durable: no sync.

        What does not exist is fine.  Raises `DiskFailed`.
        """
        ...

    def remove(self, path: Path) -> None:
        """Remove a file, durably; one that does not exist is fine."""
        ...

    def sync_many(self, files: Sequence[DiskFile]) -> None:
        """As `sync` of each of `files`, which this disk opened, and possibly much faster.  Raises `DiskFailed`."""
        ...

    def sync_entries(self, directory: Path) -> None:
        """Make the names in `directory` durable; one that does not exist is fine.  Raises `DiskFailed`."""
        ...

    def remove_tree(self, directory: Path) -> None:
        """Remove a directory and all in it, durably; one that does not exist is fine."""
        ...

    def lock(self, path: Path) -> DiskLock:
        """Take the lock file; its directories are made, durably.

        Raises `StoreError` if another process or store holds it.
        """
        ...

    def used_ratio(self, path: Path) -> float:
        """Used share, 0 to 1, of the file system that holds `path`; -1 if unknown."""
        ...


class RealDisk:
    """The operating system's files."""

    def __init__(self) -> None:
        self._new_directories = NewDirectories()
        self._can_sync_all = can_sync_file_systems()
        # A descriptor of each file system that was synced as a whole, by device.
        self._file_systems: dict[int, int] = {}

    def __del__(self) -> None:
        for descriptor in self._file_systems.values():
            os.close(descriptor)

    def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> RealFile:
        descriptor = -1
        try:
            _CREATE()
            self._new_directories.make(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
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
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            return RealFile(path, descriptor, os.fstat(descriptor).st_size, self._new_directories)
        except OSError as error:
            raise as_store_error(error, "open", path) from error

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise as_store_error(error, "list", directory) from error

    def entries(self, directory: Path) -> list[tuple[str, int | None]]:
        try:
            with os.scandir(directory) as found:
                return sorted(_sizes(found))
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
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise as_store_error(error, "read", path) from error

    def write_small(self, path: Path, content: bytes) -> None:
        try:
            _make_directories(path.parent)
            created = not path.exists()
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
        # Those of one file system have one of them, kept from the first time on, to learn of errors by.
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
            shutil.rmtree(directory)
            sync_directory(directory.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise as_store_error(error, "remove", directory) from error

    def lock(self, path: Path) -> DiskLock:
        try:
            # Durably: the store's first segment does not know that the root it lies in is new as well.
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
            continue  # it went meanwhile, and the others did not
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            yield entry.name, None


def _open_above(path: Path, device: int) -> int:
    """A descriptor of the nearest directory above `path` that is there and on `device`; -1 if none can be opened."""
    for directory in path.parents:
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            if os.fstat(descriptor).st_dev == device:
                return descriptor
            os.close(descriptor)
    return -1


def _make_directories(directory: Path) -> None:
    """Make `directory` and its parents, durably."""
    changed = holders_of_missing(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for holder in changed:
        sync_directory(holder)


def _write_all(descriptor: int, content: bytes) -> None:
    """Write from the file's begin on; a disk that is nearly full takes a part of it without an error."""
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, memoryview(content)[written:], written)


def _extend(descriptor: int, size_bytes: int, preallocate: bool) -> None:
    if preallocate:
        os.posix_fallocate(descriptor, 0, size_bytes)
    else:
        os.ftruncate(descriptor, size_bytes)
