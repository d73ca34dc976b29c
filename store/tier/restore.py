"""Restore: makes a store from an archive, in a folder that does not exist yet or is empty.

As a restore from a backup, everything is built in ``<folder>.restoring`` and renamed at the end, and the broker's first
start makes ConsumeQueues, index and timer wheel from the log.  Every byte keeps its physical offset: records that are
not archived are fillers already, and what the archive lacks in the middle of the log becomes fillers, or a file that is
one blank.
"""

import asyncio
import os
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

from store.backup.copied_file import Progress, write_file
from store.backup.restore import COMMIT_LOG, new_store, write_queue_list
from store.compaction.manifest import DIRECTORY, MANIFEST, Part, damage_of, encode_manifest
from store.compaction.manifest import Manifest as CompactedQueue
from store.layout import file_name
from store.record.record import blank
from store.repair.filler import closing_blank, fillers
from store.tier.compacted_object import write_part
from store.tier.manifest import Manifest, SegmentEntry
from store.tier.object_store import Damaged, NotFound, ObjectStore, Unavailable
from store.tier.partial_restore import PartialRestore, write_mark
from store.tier.reads.steps import read_block, read_footer
from store.tier.segment_object import LogBlock
from store.tier.whole_objects import read_manifest, read_tables

_BLOCKS_AT_ONCE: Final = 8
_TRIES: Final = 5


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
    # Messages in compacted queues; some of them are in the log, too.
    compacted: int = 0
    # Before this physical offset there are fillers for messages that the broker's log had.
    fillers_end: int = 0

    def missing(self) -> list[str]:
        """Return what the store lacks, for an operator."""
        lines = []
        if self.log_start:
            lines.append(f"the log before offset {self.log_start}: it had expired in the archive, or was never there")
        lines += self.filled()
        if self.fillers_end:
            lines.append("a slave cannot start from this store: its log has fillers that its master's has not")
        if not self.tables:
            lines.append("topics, groups and offsets: the archive has no tables yet")
        lines.append(f"whatever came after offset {self.log_end}: it was never uploaded")
        return lines

    def filled(self) -> list[str]:
        """Return the messages for which fillers are in the log."""
        lines = [f"the log from offset {start} to {end}" for start, end in self.gaps]
        if self.dropped:
            lines.append(f"{self.dropped} messages of topics that are not archived; fillers are in their places")
        return lines


class ArchiveRestore:
    """One restore of `manifest`'s archive in `objects` to the folder `target`.  For one event loop."""

    def __init__(
        self, objects: ObjectStore, manifest: Manifest, target: Path, progress: Progress = lambda size_bytes: None
    ) -> None:
        self._objects = objects
        self._manifest = manifest
        self._target = target
        self._progress = progress

    async def run(self) -> Restored:
        """Make the store.  If its broker replaces an object meanwhile, begin again with the newest manifest.

        Raises `StoreError`: `target` is not empty, or space is missing; and an `ObjectStoreError`, such as `Damaged`.
        Then there is no store.
        """
        for _ in range(_TRIES):
            try:
                return await self._run()
            except NotFound:
                newest, _ = await read_manifest(self._objects)
                if newest.number == self._manifest.number:
                    raise
                self._manifest = newest
        raise Unavailable("the archive changes all the time: run the restore again")

    async def _run(self) -> Restored:
        segments = self._manifest.segments
        files = {start: list(parts) for start, parts in groupby(segments, self._file_start)}
        size_bytes = self._manifest.segment_bytes
        span = range(min(files, default=0), max(files, default=-size_bytes) + size_bytes, size_bytes)
        end = segments[-1].end if segments else 0
        restored = Restored(segments[0].start if segments else 0, end)
        restored.gaps = [(one.end, other.start) for one, other in pairwise(segments) if one.end != other.start]
        # Of a log that begins within a file, that file begins with fillers.
        begins_within = restored.log_start if restored.log_start % size_bytes else 0
        restored.fillers_end = max([begins_within, *(gap_end for _, gap_end in restored.gaps)])
        kept_bytes = sum(sum(one.part.file_bytes) for one in self._manifest.compacted)
        with new_store(self._target, len(files) * size_bytes + kept_bytes) as (building, written):
            written += await self._tables(building, restored)
            written += await self._compacted(building, restored)
            for start in span:
                path = building / COMMIT_LOG / file_name(start)
                await self._file(path, start, files.get(start, []), end, restored)
                written.append(path)
            written.append(write_queue_list(building, end))
            if restored.fillers_end:
                lacks = restored.filled() or [f"the log before offset {restored.log_start}"]
                written.append(write_mark(building, PartialRestore(restored.fillers_end, lacks)))
        return restored

    def _file_start(self, segment: SegmentEntry) -> int:
        return segment.start - segment.start % self._manifest.segment_bytes

    async def _file(self, path: Path, start: int, parts: list[SegmentEntry], log_end: int, restored: Restored) -> None:
        """Write one CommitLog file from the segments in it."""
        size_bytes = self._manifest.segment_bytes
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
                if part.dropped:
                    restored.fillers_end = max(restored.fillers_end, part.end)
                restored.last_store_ms = max(restored.last_store_ms, part.last_store_ms)
            if at < start + size_bytes and log_end >= start + size_bytes:
                left = start + size_bytes - at
                os.pwrite(descriptor, closing_blank(left) if parts else blank(left), at - start)
            await asyncio.to_thread(os.fsync, descriptor)
        finally:
            os.close(descriptor)

    async def _segment(self, descriptor: int, file_start: int, segment: SegmentEntry) -> int:
        """Write the records of one segment; return where they end."""
        footer = await read_footer(self._objects, segment)

        async def block(one: LogBlock) -> None:
            content = await read_block(self._objects, segment, one)
            await asyncio.to_thread(os.pwrite, descriptor, content, one.start - file_start)
            self._progress(one.block.size_bytes)

        for at in range(0, len(footer.log), _BLOCKS_AT_ONCE):
            await asyncio.gather(*map(block, footer.log[at : at + _BLOCKS_AT_ONCE]))
        return footer.records_end

    async def _tables(self, building: Path, restored: Restored) -> list[Path]:
        entry = self._manifest.tables
        if entry is None:
            return []
        tables = await read_tables(self._objects, entry)
        for name, content in tables.items():
            write_file(building / name, content, 0o600)
        restored.tables = sorted(tables)
        return [building / name for name in tables]

    async def _compacted(self, building: Path, restored: Restored) -> list[Path]:
        """Write the compacted queues."""
        written: list[Path] = []
        queues: dict[Path, list[Part]] = {}
        for entry in self._manifest.compacted:
            directory = building / DIRECTORY / entry.topic / str(entry.queue_id)
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            written += await write_part(self._objects, entry, directory)
            self._progress(entry.size_bytes)
            queues.setdefault(directory, []).append(entry.part)
            restored.compacted += entry.part.records
        for directory, parts in queues.items():
            if damage := damage_of(parts):
                raise Damaged(f"manifest: compacted queue {directory.relative_to(building)}: {damage}")
            write_file(directory / MANIFEST, encode_manifest(CompactedQueue(tuple(parts))), 0o600)
            written.append(directory / MANIFEST)
        return written
