"""The disk seam: every access of the store to files goes through a `Disk`.

Facts that shape it (Linux, CPython): `mmap.flush` holds the GIL, so files are synced with
`os.fdatasync` on a descriptor that stays open.  A store through a mapping of a sparse file kills the
process with SIGBUS when the disk is full, so mappings here are read-only and all writes are `pwrite`,
which reports ENOSPC as an error.  The page cache makes a write visible in the mapping at once.
"""

import contextlib
import errno
import mmap
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from sprocket.common.atomic_file import sync_directory
from sprocket.common.errors import DiskFailed, DiskFull, StoreError
from sprocket.common.failpoints import failpoint
from store.file_extents import content_end
from store.store_lock import take_lock

Content: TypeAlias = bytes | bytearray | memoryview
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_CREATE: Final = failpoint("disk.create", takes_error=True)
_BEFORE_ALLOCATE: Final = failpoint("disk.before_allocate", takes_error=True)
_CREATED: Final = failpoint("disk.created")
_WRITE: Final = failpoint("disk.write", takes_error=True)
_SYNC: Final = failpoint("disk.sync", takes_error=True)
_BEFORE_DIRECTORY_SYNC: Final = failpoint("disk.before_directory_sync", takes_error=True)
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

        A crash in the middle may leave any mixture of old and new; see `store.sealed_file`.
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


class RealFile:
    """A `DiskFile` on the operating system."""

    __slots__ = ("_descriptor", "_is_new", "_unsynced_directories", "_view", "path", "size_bytes")

    def __init__(self, path: Path, descriptor: int, size_bytes: int, unsynced_directories: set[Path]) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._descriptor = descriptor
        self._unsynced_directories = unsynced_directories
        self._is_new = False
        self._view: memoryview | None = None

    def is_created(self) -> None:
        """Remember that the file's name needs a sync of its own."""
        self._is_new = True

    @property
    def view(self) -> memoryview:
        if self._view is None:
            # A mapping keeps a descriptor of its own, so files that nobody reads are not mapped.
            self._view = memoryview(mmap.mmap(self._descriptor, self.size_bytes, mmap.MAP_SHARED, mmap.PROT_READ))
        return self._view

    def read(self, position: int, size_bytes: int) -> bytes:
        try:
            return os.pread(self._descriptor, size_bytes, position)
        except OSError as error:
            raise _as_store_error(error, "read", self.path) from error

    def write(self, position: int, content: Content) -> None:
        try:
            _WRITE()
            written = os.pwrite(self._descriptor, content, position)
            if written == len(content):
                return
            view = memoryview(content)
            while written < len(view):
                written += os.pwrite(self._descriptor, view[written:], position + written)
        except OSError as error:
            raise _as_store_error(error, "write", self.path) from error

    def sync(self) -> None:
        try:
            _SYNC()
            os.fdatasync(self._descriptor)
            if self._is_new:
                _BEFORE_DIRECTORY_SYNC()
                # Another file may have come first into a new directory without being synced yet.
                unsynced = self._unsynced_directories.intersection(self.path.parents)
                for directory in {self.path.parent} | unsynced:
                    with contextlib.suppress(FileNotFoundError):  # removed, and this file with it
                        sync_directory(directory)
                self._unsynced_directories -= unsynced
                self._is_new = False
        except OSError as error:
            # Whatever the cause, the kernel may have marked the failed pages clean: never retry.
            raise DiskFailed(f"sync {self.path}: {error}") from error

    def content_end(self, position: int) -> int:
        try:
            return content_end(self._descriptor, position, self.size_bytes)
        except OSError as error:
            raise _as_store_error(error, "read", self.path) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._view = None


class RealDisk:
    """The operating system's files."""

    def __init__(self) -> None:
        # Directories in which another directory is new and not durable yet.
        self._unsynced_directories: set[Path] = set()

    def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> RealFile:
        descriptor = -1
        try:
            _CREATE()
            self._unsynced_directories.update(_make_directories(path.parent))
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            _BEFORE_ALLOCATE()
            _extend(descriptor, size_bytes, preallocate)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
                with contextlib.suppress(OSError):
                    path.unlink()
            raise _as_store_error(error, "create", path) from error
        file = RealFile(path, descriptor, size_bytes, self._unsynced_directories)
        file.is_created()
        _CREATED()
        return file

    def open(self, path: Path, *, preallocate: bool) -> RealFile:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            return RealFile(path, descriptor, os.fstat(descriptor).st_size, self._unsynced_directories)
        except OSError as error:
            raise _as_store_error(error, "open", path) from error

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _as_store_error(error, "list", directory) from error

    def entries(self, directory: Path) -> list[tuple[str, int | None]]:
        try:
            with os.scandir(directory) as found:
                return sorted((entry.name, entry.stat().st_size if entry.is_file() else None) for entry in found)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _as_store_error(error, "list", directory) from error

    def size(self, path: Path) -> int | None:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _as_store_error(error, "look at", path) from error

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _as_store_error(error, "read", path) from error

    def write_small(self, path: Path, content: bytes) -> None:
        try:
            for directory in _make_directories(path.parent):
                sync_directory(directory)
            created = not path.exists()
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _WRITE_SMALL()
                os.pwrite(descriptor, content, 0)
                os.ftruncate(descriptor, len(content))
                _SMALL_WRITTEN()
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if created:
                sync_directory(path.parent)
        except OSError as error:
            raise _as_store_error(error, "write", path) from error

    def rename(self, source: Path, target: Path) -> None:
        try:
            source.replace(target)
            _RENAMED()
            sync_directory(target.parent)
        except OSError as error:
            raise _as_store_error(error, "rename", source) from error

    def remove_files(self, directory: Path, names: Sequence[str]) -> None:
        try:
            for name in names:
                (directory / name).unlink(missing_ok=True)
            _FILES_REMOVED()
            directory.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise _as_store_error(error, "remove", directory) from error

    def remove(self, path: Path) -> None:
        try:
            path.unlink()
            _REMOVE()
            sync_directory(path.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _as_store_error(error, "remove", path) from error

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
            raise _as_store_error(error, "remove", directory) from error

    def lock(self, path: Path) -> DiskLock:
        try:
            # Durably: the store's first segment does not know that the root it lies in is new as well.
            for changed in _make_directories(path.parent):
                sync_directory(changed)
            lock = take_lock(path)
        except OSError as error:
            raise _as_store_error(error, "lock", path) from error
        if lock is None:
            raise StoreError(f"{path}: the store is in use by another broker")
        return lock

    def used_ratio(self, path: Path) -> float:
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            return -1.0
        return usage.used / max(1, usage.used + usage.free)


def _make_directories(directory: Path) -> list[Path]:
    """Make `directory` and its parents; return the directories in which another one is new."""
    changed = []
    missing = directory
    while not missing.exists():
        missing = missing.parent
        changed.append(missing)
    directory.mkdir(parents=True, exist_ok=True)
    return changed


def _extend(descriptor: int, size_bytes: int, preallocate: bool) -> None:
    if preallocate:
        os.posix_fallocate(descriptor, 0, size_bytes)
    else:
        os.ftruncate(descriptor, size_bytes)


def _as_store_error(error: OSError, action: str, path: Path) -> StoreError:
    kind = DiskFull if error.errno in _FULL else DiskFailed
    return kind(f"{action} {path}: {error.strerror or error}")
