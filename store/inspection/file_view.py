"""Read-only access to the files of a store that may be damaged, or in use by a broker.

The edge of this package: nothing here creates a file, changes one, or takes a lock.
"""

import fcntl
import mmap
import os
import struct
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError

_EMPTY: Final = memoryview(b"")
_COMPARE_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_COMPARE_BYTES)
# struct flock of fcntl(2) for the whole file: what a broker holds while it runs.
_WRITE_LOCK: Final = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_SMALL_BYTES: Final = 256 * 1024 * 1024


class FileView:
    """The content of one file as it was when it was opened, mapped and not copied.

    Raises `StoreError` if it cannot be opened.  `data` stays valid as long as any slice of it lives.
    """

    __slots__ = ("_extents", "data", "path", "size_bytes")

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.size_bytes = os.fstat(descriptor).st_size
                self._extents = _extents(descriptor, self.size_bytes)
                self.data = _EMPTY
                if self.size_bytes:
                    self.data = memoryview(mmap.mmap(descriptor, self.size_bytes, mmap.MAP_SHARED, mmap.PROT_READ))
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error

    def extents(self) -> list[tuple[int, int]]:
        """(start, end) of the parts that the file system keeps; what lies between them is zeros."""
        return self._extents

    def end_of_content(self, start: int = 0) -> int:
        """One past the last byte from `start` on that is not zero; `start` if all of them are."""
        for begin, end in reversed(self._extents):
            begin = max(begin, start)
            while end > begin:
                at = max(begin, end - _COMPARE_BYTES)
                piece = self.data[at:end]
                if piece != _ZEROS[: len(piece)]:
                    return at + len(bytes(piece).rstrip(b"\0"))
                end = at
        return start


def _extents(descriptor: int, size_bytes: int) -> list[tuple[int, int]]:
    found = []
    at = 0
    try:
        while at < size_bytes:
            begin = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, begin, os.SEEK_HOLE)
            found.append((begin, min(at, size_bytes)))
    except OSError:
        # ENXIO: no data behind `at`.  A file system that knows no holes says that all is data.
        pass
    return found


def read_small(path: Path) -> bytes | None:
    """Content of a small file; None if there is none.  Raises `StoreError` if it cannot be read or is not small."""
    try:
        if path.stat().st_size > _SMALL_BYTES:
            raise StoreError(f"{path}: has {path.stat().st_size} bytes, far more than a file of this kind")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error


def is_locked(path: Path) -> bool:
    """Whether a process, this one or a Java broker, holds the lock file; nothing is locked by asking."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
    """(name, whether it is a directory, bytes) of what is in `directory`, sorted; empty if it does not exist.

    Raises `StoreError` if it cannot be read.  A link that leads nowhere counts as an empty file.
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
