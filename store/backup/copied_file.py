"""Copies of files with their checksum: the edge of the package to the disk."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sprocket.common.errors import DiskFull, StoreError
from sprocket.common.files.atomic_file import sync_directory
from sprocket.common.files.regular_file import open_regular
from store.disk.new_directories import holders_of_missing

_PIECE_BYTES: Final = 4 * 1024 * 1024
Progress = Callable[[int], None]


def copy_file(source: Path, target: Path, size_bytes: int, progress: Progress, mode: int = 0o600) -> str:
    """Copy the first `size_bytes` of `source` to the new file `target`, sync it, and return the SHA-256.

    Directories of `target` are created.  Its own name is durable after `sync_directory` of its folder.
    Raises `StoreError` if `source` is shorter, and OSError.
    """
    make_directories(target.parent)
    digest = hashlib.sha256()
    with os.fdopen(open_regular(source), "rb", buffering=0) as reading, target.open("wb", buffering=0) as writing:
        os.fchmod(writing.fileno(), mode)
        left = size_bytes
        while left:
            piece = reading.read(min(left, _PIECE_BYTES))
            if not piece:
                raise StoreError(f"{source}: ends {left} bytes before byte {size_bytes}")
            digest.update(piece)
            rest = memoryview(piece)
            while rest:
                rest = rest[writing.write(rest) :]
            left -= len(piece)
            progress(len(piece))
        os.fsync(writing.fileno())
    return digest.hexdigest()


def write_file(target: Path, content: bytes, mode: int) -> str:
    """Write a small new file, sync it, and return the SHA-256.  Raises OSError."""
    make_directories(target.parent)
    with target.open("wb", buffering=0) as writing:
        os.fchmod(writing.fileno(), mode)
        rest = memoryview(content)
        while rest:
            rest = rest[writing.write(rest) :]
        os.fsync(writing.fileno())
    return hashlib.sha256(content).hexdigest()


def sha256_of(path: Path, progress: Progress) -> str:
    """Return the SHA-256 of a whole file.  Raises OSError."""
    digest = hashlib.sha256()
    with os.fdopen(open_regular(path), "rb", buffering=0) as reading:
        while piece := reading.read(_PIECE_BYTES):
            digest.update(piece)
            progress(len(piece))
    return digest.hexdigest()


def make_directories(directory: Path) -> None:
    """Create `directory` and its parents, durably and for the owner alone.  Raises OSError."""
    missing = holders_of_missing(directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for holder in missing:
        sync_directory(holder)


def sync_folders(paths: list[Path]) -> None:
    """Make the names of these files durable.  Raises OSError."""
    for folder in {path.parent for path in paths}:
        sync_directory(folder)


def require_space(folder: Path, size_bytes: int) -> None:
    """Raise `DiskFull` if the file system of `folder`, which need not exist, has less than `size_bytes` free."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if size_bytes > free:
        raise DiskFull(
            f"{folder}: needs {size_bytes} bytes, its file system has {free} free; nothing was written. Free space, or "
            "name a folder on another disk"
        )
