"""Restore: makes a store from an archive, in a folder that does not exist yet or is empty.

As a restore from a backup, everything is built in ``<folder>.restoring`` and renamed at the end, and the broker's first
start makes ConsumeQueues, index and timer wheel from the log.  Every byte keeps its physical offset: records that are
not archived are fillers already, and what the archive lacks in the middle of the log becomes fillers, or a file that is
one blank.
"""

import asyncio
import os
import shutil
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from sprocket.common.files.atomic_file import sync_directory
from store.backup.copied_file import Progress, make_directories, require_space, sync_folders, write_file
from store.backup.restore import SUFFIX, write_queue_list
from store.layout import file_name
from store.record.record import blank
from store.repair.filler import closing_blank, fillers
from store.tier.manifest import Manifest, SegmentEntry
from store.tier.object_store import ObjectStore
from store.tier.segment_object import LogBlock, open_footer, open_log_block
from store.tier.tables_object import MAX_BYTES, decode_tables

_BLOCKS_AT_ONCE: Final = 8
_COMMIT_LOG: Final = "commitlog"


@dataclass
class Restored:
    """What a restored store has: its log is [`log_start`, `log_end`) in physical offsets, and what it lacks."""

    log_start: int
    log_end: int
    records: int = 0
    tables: list[str] = field(default_factory=list)
    # Ranges of the log that the archive does not have, between its first and last segment.
    gaps: list[tuple[int, int]] = field(default_factory=list)
    # Records that are not archived, by a rule; the log is not byte for byte that of the broker then.
    dropped: int = 0
    last_store_ms: int = 0

    def missing(self) -> list[str]:
        """Return what the store lacks, for an operator."""
        lines = []
        if self.log_start:
            lines.append(f"the log before offset {self.log_start}: it had expired in the archive, or was never there")
        lines += [f"the log from offset {start} to {end}" for start, end in self.gaps]
        if self.dropped:
            lines.append(f"{self.dropped} messages of topics that are not archived; fillers are in their places")
        if not self.tables:
            lines.append("topics, groups and offsets: the archive has no tables yet")
        lines.append(f"whatever came after offset {self.log_end}: it was never uploaded")
        return lines


class ArchiveRestore:
    """One restore of `manifest`'s archive in `objects` to the folder `target`.  For one event loop."""

    def __init__(
        self, objects: ObjectStore, manifest: Manifest, target: Path, progress: Progress = lambda size_bytes: None
    ) -> None:
        self._objects = objects
        self._manifest = manifest
        self._target = target.absolute()
        self._building = self._target.with_name(self._target.name + SUFFIX)
        self._progress = progress

    async def run(self) -> Restored:
        """Make the store.

        Raises `StoreError`: `target` is not empty, or space is missing; and an `ObjectStoreError`, such as `Damaged`.
        Then there is no store.
        """
        try:
            return await self._run()
        except OSError as error:
            raise StoreError(f"{error.filename or self._target}: {error.strerror or error}") from error

    async def _run(self) -> Restored:
        target, building, segments = self._target, self._building, self._manifest.segments
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise StoreError(f"{target}: is not empty: name a new folder")
        if building.exists():
            shutil.rmtree(building)
        files = {start: list(parts) for start, parts in groupby(segments, self._file_start)}
        size_bytes = self._manifest.segment_bytes
        span = range(min(files, default=0), max(files, default=-size_bytes) + size_bytes, size_bytes)
        require_space(building, len(files) * size_bytes)
        make_directories(building / _COMMIT_LOG)
        end = segments[-1].end if segments else 0
        restored = Restored(segments[0].start if segments else 0, end)
        restored.gaps = [(one.end, other.start) for one, other in pairwise(segments) if one.end != other.start]
        written = [await self._file(start, files.get(start, []), end, restored) for start in span]
        written += await self._tables(restored)
        written.append(write_queue_list(building, end))
        sync_folders([*written, building / _COMMIT_LOG / "any"])
        building.replace(target)
        sync_directory(target.parent)
        return restored

    def _file_start(self, segment: SegmentEntry) -> int:
        return segment.start - segment.start % self._manifest.segment_bytes

    async def _file(self, start: int, parts: list[SegmentEntry], log_end: int, restored: Restored) -> Path:
        """Write one CommitLog file from the segments in it."""
        path, size_bytes = self._building / _COMMIT_LOG / file_name(start), self._manifest.segment_bytes
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
            at = start
            for part in parts:
                if part.start > at:
                    # A log that begins within a file begins there with fillers, as everything before it is gone.
                    for offset, record in fillers(at, part.start - at, part.first_store_ms):
                        os.pwrite(descriptor, record, offset - start)
                at = await self._segment(descriptor, start, part)
                restored.records += part.records
                restored.dropped += part.dropped
                restored.last_store_ms = max(restored.last_store_ms, part.last_store_ms)
            if at < start + size_bytes and log_end >= start + size_bytes:
                left = start + size_bytes - at
                os.pwrite(descriptor, closing_blank(left) if parts else blank(left), at - start)
            await asyncio.to_thread(os.fsync, descriptor)
        finally:
            os.close(descriptor)
        return path

    async def _segment(self, descriptor: int, file_start: int, segment: SegmentEntry) -> int:
        """Write the records of one segment; return where they end."""
        tail_at = segment.size_bytes - segment.footer_bytes
        tail = await self._objects.get_range(segment.key, tail_at, segment.size_bytes)
        footer = await asyncio.to_thread(open_footer, tail, segment.size_bytes, segment.footer_sha256)

        async def block(one: LogBlock) -> None:
            place = one.block
            content = await self._objects.get_range(segment.key, place.position, place.position + place.size_bytes)
            await asyncio.to_thread(lambda: os.pwrite(descriptor, open_log_block(one, content), one.start - file_start))
            self._progress(place.size_bytes)

        for at in range(0, len(footer.log), _BLOCKS_AT_ONCE):
            await asyncio.gather(*map(block, footer.log[at : at + _BLOCKS_AT_ONCE]))
        return footer.records_end

    async def _tables(self, restored: Restored) -> list[Path]:
        entry = self._manifest.tables
        if entry is None:
            return []
        tables = decode_tables((await self._objects.get(entry.key, MAX_BYTES)).content)
        for name, content in tables.items():
            write_file(self._building / name, content, 0o600)
        restored.tables = sorted(tables)
        return [self._building / name for name in tables]
