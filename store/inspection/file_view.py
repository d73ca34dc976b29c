"""Read-only access to the files of a store that may be damaged, or in use by a broker.

This is the edge of the package: nothing here creates or changes a file, or takes a lock.
"""

import fcntl
import mmap
import os
import struct
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from sprocket.common.files.regular_file import open_regular, read_regular
from store.disk.file_extents import data_extents

_EMPTY: Final = memoryview(b"")
_COMPARE_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_COMPARE_BYTES)
# struct flock of fcntl(2) for the whole file: the lock of a running broker.
_WRITE_LOCK: Final = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_SMALL_BYTES: Final = 256 * 1024 * 1024


class FileView:
    """Content of one file at the time it was opened, mapped and not copied.

    Raises `StoreError` if it cannot be opened.  `data` stays valid while any slice of it exists.
    """

    __slots__ = ("_extents", "data", "path", "size_bytes")

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = open_regular(path)
            try:
                self.size_bytes = os.fstat(descriptor).st_size
                self._extents = data_extents(descriptor, 0, self.size_bytes)
                self.data = _EMPTY
                if self.size_bytes:
                    self.data = memoryview(mmap.mmap(descriptor, self.size_bytes, mmap.MAP_SHARED, mmap.PROT_READ))
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error

    def extents(self) -> list[tuple[int, int]]:
        """Return (start, end) of the parts that the file system stores; between them are zeros."""
        return self._extents

    def end_of_content(self, start: int = 0) -> int:
        """Return the end of the last byte from `start` on that is not zero; `start` if all are."""
        for begin, end in reversed(self._extents):
            begin = max(begin, start)
            while end > begin:
                at = max(begin, end - _COMPARE_BYTES)
                piece = self.data[at:end]
                if piece != _ZEROS[: len(piece)]:
                    return at + len(bytes(piece).rstrip(b"\0"))
                end = at
        return start


def read_small(path: Path) -> bytes | None:
    """Return the content of a small file; None without one.  Raises `StoreError` if it is unreadable or large."""
    try:
        return read_regular(path, _SMALL_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error


def is_locked(path: Path) -> bool:
    """Return whether a process, this one or a Java broker, holds the lock file.  Takes no lock."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WRITE_LOCK)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    kind: int = struct.unpack_from("h", answer)[0]
    return kind != fcntl.F_UNLCK


def list_directory(directory: Path) -> list[tuple[str, bool, int]]:
    """Return (name, whether it is a directory, bytes) of the entries of `directory`, sorted; empty if it is missing.

    Raises `StoreError` if it cannot be read.  A dangling link counts as an empty file.
    """
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    found.append((entry.name, entry.is_dir(), entry.stat().st_size))
                except OSError:
                    found.append((entry.name, False, 0))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{directory}: cannot be read: {error.strerror or error}") from error
    return sorted(found)
