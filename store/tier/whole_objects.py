"""Whole objects of an archive, compared before they are used: its manifest, its tables, and any other by its hash."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from store.backup.copied_file import Progress
from store.tier.manifest import MAX_BYTES, NAME, Manifest, TablesEntry, decode
from store.tier.object_store import Damaged, NotFound, ObjectStore, Version
from store.tier.tables_object import MAX_BYTES as MAX_TABLES_BYTES
from store.tier.tables_object import decode_tables

# Folder of the segments.
SEGMENTS: Final = "segments"
# What to do if the manifest is gone.
BRING_BACK: Final = (
    "bring the manifest back, as from the versions that the bucket keeps, make a new one with "
    "`sprocket store check URL --repair`, or use another folder"
)
# Calls a function in a thread, with its arguments; `asyncio.to_thread`.
InThread = Callable[..., Awaitable[Any]]


async def read_manifest(objects: ObjectStore, in_thread: InThread = asyncio.to_thread) -> tuple[Manifest, Version]:
    """Return the manifest as it is now.  Raises an `ObjectStoreError`: `NotFound`, `Damaged`."""
    found = await objects.get(NAME, MAX_BYTES)
    return await in_thread(decode, found.content), found.version


async def find_manifest(
    objects: ObjectStore, in_thread: InThread = asyncio.to_thread
) -> tuple[Manifest, Version] | None:
    """Return the manifest as it is now; None if nobody has begun this archive.

    Raises an `ObjectStoreError`: `Damaged` if there are segments without a manifest, which must not be forgotten.
    """
    with suppress(NotFound):
        return await read_manifest(objects, in_thread)
    async for found in objects.list(SEGMENTS):
        raise Damaged(f"{NAME}: is not there, but {found.key} is: {BRING_BACK}")
    return None


async def read_tables(objects: ObjectStore, entry: TablesEntry) -> dict[str, bytes]:
    """Return the broker's small files by their paths.  Raises an `ObjectStoreError`."""
    content = (await objects.get(entry.key, MAX_TABLES_BYTES)).content

    def opened() -> dict[str, bytes]:
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise Damaged(f"{entry.key}: is not what was uploaded there")
        return decode_tables(content)

    return await asyncio.to_thread(opened)


async def is_intact(
    objects: ObjectStore,
    key: str,
    size_bytes: int,
    sha256: str,
    *,
    in_thread: InThread = asyncio.to_thread,
    progress: Progress = lambda size_bytes: None,
) -> bool:
    """Read an object.  Return whether it has this size and hash.  Raises an `ObjectStoreError`."""
    digest, left = hashlib.sha256(), size_bytes
    async for piece in objects.stream(key):
        left -= len(piece)
        if left < 0:
            return False
        await in_thread(digest.update, piece)
        progress(len(piece))
    return left == 0 and digest.hexdigest() == sha256
