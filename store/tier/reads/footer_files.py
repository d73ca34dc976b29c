"""Footers of segment objects on the local disk, so that the first read of a segment costs one round trip, not two.

They are fetched when a manifest is new, the newest segments first, and are small: about 40 KB for a segment of 1 GiB.
A file is named by the hash of its content, which the manifest has, and is compared with it at each read; a file that
is missing, cut or changed is only fetched again.  So nothing is synced.
"""

import asyncio
import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from store.tier.manifest import Manifest, SegmentEntry
from store.tier.object_store import ObjectStore

# Footers of older segments are fetched when they are read.
MAX_BYTES: Final = 256 << 20
_AT_ONCE: Final = 4


class FooterFiles:
    """The footers of one archive, in `folder`; without a folder none is kept.  For one event loop."""

    def __init__(self, objects: ObjectStore, folder: Path | None) -> None:
        self._objects = objects
        self._folder = folder

    async def content(self, segment: SegmentEntry) -> bytes:
        """Return the bytes of a segment's footer, as they are in the object.  Raises an `ObjectStoreError`."""
        found = None if self._folder is None else await asyncio.to_thread(_read, self._folder, segment)
        if found is None:
            start = segment.size_bytes - segment.footer_bytes
            found = await self._objects.get_range(segment.key, start, segment.size_bytes)
            if self._folder is not None:
                await asyncio.to_thread(_keep, self._folder, segment, found)
        return found

    async def follow(self, manifest: Manifest) -> None:
        """Fetch the footers that are missing, and drop those of segments that the manifest has no more.

        Raises an `ObjectStoreError`.
        """
        if self._folder is None:
            return
        missing = await asyncio.to_thread(_missing, self._folder, manifest)
        for at in range(0, len(missing), _AT_ONCE):
            await asyncio.gather(*map(self.content, missing[at : at + _AT_ONCE]))


def _read(folder: Path, segment: SegmentEntry) -> bytes | None:
    try:
        content = (folder / segment.footer_sha256).read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == segment.footer_sha256 else None


def _keep(folder: Path, segment: SegmentEntry, content: bytes) -> None:
    """Write a file.  A disk that is full or broken is no fault of a read."""
    temporary = folder / f"{segment.footer_sha256}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(folder / segment.footer_sha256)
    except OSError:
        with suppress(OSError):
            temporary.unlink()


def _missing(folder: Path, manifest: Manifest) -> list[SegmentEntry]:
    """Return the segments whose footers are to be fetched, newest first, after unneeded files were removed."""
    wanted = {segment.footer_sha256: segment for segment in _newest(manifest.segments)}
    there = {entry.name for entry in os.scandir(folder)} if folder.is_dir() else set[str]()
    for name in there.difference(wanted):
        with suppress(OSError):
            (folder / name).unlink()
    return [segment for name, segment in wanted.items() if name not in there]


def _newest(segments: list[SegmentEntry]) -> Iterable[SegmentEntry]:
    size_bytes = 0
    for segment in reversed(segments):
        size_bytes += segment.footer_bytes
        if size_bytes > MAX_BYTES:
            return
        yield segment
