"""Restore: makes a store from a backup, in a folder that does not exist yet or is empty.

Everything is built in ``<folder>.restoring`` and renamed at the end, so a broker never finds half a store.  The list of
queues in it says that all queues have to be rebuilt: the broker's first start reads the whole log, and makes
ConsumeQueues, index and timer wheel from it.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from sprocket.common.files.atomic_file import sync_directory
from sprocket.common.files.regular_file import read_regular
from store.backup.copied_file import Progress, copy_file, make_directories, require_space, sync_folders, write_file
from store.backup.manifest import BackupDamaged, Manifest, Part, require
from store.disk.sealed_file import seal, unseal
from store.flush.queue_list import QUEUE_LIST_KIND, QueueList, decode, encode

COMMIT_LOG: Final = "commitlog"
_SUFFIX: Final = ".restoring"
_QUEUE_LIST: Final = "queuelist"


def restore(backup: Path, target: Path, progress: Progress = lambda size_bytes: None) -> Manifest:
    """Make the store at `target` from `backup`, and return what was restored.

    Every file is compared with its checksum while it is copied.
    Raises `StoreError`: `backup` is none or is damaged, `target` is not empty, or space is missing.
    """
    manifest = require(backup)
    size_bytes = sum(part.size_bytes for part in manifest.tables) + _log_bytes(manifest)
    with new_store(target, size_bytes) as (building, written):
        written += [_copied(backup, building, part, manifest, progress) for part in manifest.parts]
        written.append(write_queue_list(building, manifest.log_end))
    return manifest


@contextmanager
def new_store(target: Path, size_bytes: int) -> Iterator[tuple[Path, list[Path]]]:
    """Make the store at `target`: yield a folder beside it, with a CommitLog folder, and the list of files in it.

    The caller writes files there, syncs them, and adds their paths to the list.  At the end the folder gets its name.
    Raises `StoreError`: `target` is not empty, `size_bytes` are not free, or the disk fails.
    """
    target = target.absolute()
    building = target.with_name(target.name + _SUFFIX)
    written: list[Path] = []
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise StoreError(f"{target}: is not empty: name a new folder")
        if building.exists():
            shutil.rmtree(building)
        require_space(building, size_bytes)
        make_directories(building / COMMIT_LOG)
        yield building, written
        sync_folders([*written, building / COMMIT_LOG / "any"])
        building.replace(target)
        sync_directory(target.parent)
    except OSError as error:
        raise StoreError(f"{error.filename or target}: {error.strerror or error}") from error


def _log_bytes(manifest: Manifest) -> int:
    return len(manifest.segments) * manifest.segment_bytes


def _copied(backup: Path, building: Path, part: Part, manifest: Manifest, progress: Progress) -> Path:
    source, target = backup / part.file, building / part.name
    size = source.stat().st_size
    if size != part.size_bytes:
        raise BackupDamaged(f"{source}: has {size} bytes, not {part.size_bytes}: the backup is damaged")
    if copy_file(source, target, part.size_bytes, progress) != part.sha256:
        raise BackupDamaged(f"{source}: does not match its checksum: the backup is damaged; use another one")
    if part.start >= 0 and part.size_bytes < manifest.segment_bytes:
        with target.open("r+b") as file:
            # With its blocks, as a broker creates its segments.
            os.posix_fallocate(file.fileno(), 0, manifest.segment_bytes)
            os.fsync(file.fileno())
    return target


def write_queue_list(building: Path, log_end: int) -> Path:
    """Say that all queues must be rebuilt; keep the ends of queues whose messages have all expired."""
    path = building / _QUEUE_LIST
    content = unseal(QUEUE_LIST_KIND, read_regular(path)) if path.exists() else b""
    found = decode(content) if isinstance(content, bytes) else content
    listed = found if isinstance(found, QueueList) else QueueList(0)
    listed = replace(listed, log_offset=min(listed.log_offset, log_end), must_rebuild=True)
    write_file(path, seal(QUEUE_LIST_KIND, encode(listed)), 0o644)
    return path
