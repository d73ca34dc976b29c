"""A new manifest for an archive that has lost its own, from its objects: their keys, footers, records and hashes.

What the objects do not say is not guessed.  Where two of them contradict each other, or the size of CommitLog files is
not clear, there is no manifest.  Compacted queues are left out: their objects do not say whose they are.  Messages do
not expire until the group's master writes the times that are configured.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import numpy as np

from sprocket.common.errors import StoreError
from sprocket.remoting.message.record import BLANK_MIN_BYTES
from store.backup.copied_file import Progress
from store.repair.filler import FILLER_TOPIC
from store.scan.record_fields import store_timestamps
from store.scan.record_scan import RecordScan
from store.tier.manifest import (
    MAX_FOOTER_BYTES,
    MAX_LISTED_QUEUES,
    NAME,
    KeyFields,
    Manifest,
    SegmentEntry,
    TablesEntry,
    Writer,
    empty,
    encode,
    fields_of,
)
from store.tier.object_store import Damaged, NotFound, ObjectInfo, ObjectStore
from store.tier.reads.steps import read_footer
from store.tier.segment_object import MAGIC, TRAILER, Footer, LogBlock, open_block, open_footer
from store.tier.tables_object import MAX_BYTES as MAX_TABLES_BYTES
from store.tier.tables_object import decode_tables
from store.tier.whole_objects import SEGMENTS

_BLOCKS_AT_ONCE: Final = 4
_BATCH_RECORDS: Final = 16 * 1024
_FILLER: Final = FILLER_TOPIC.decode()
# For a time that is not known: nothing expires.
_LONGEST_MS: Final = 1 << 53


async def is_gone(objects: ObjectStore) -> bool:
    """Return whether there are segments, and no manifest.  Raises an `ObjectStoreError`."""
    try:
        await objects.head(NAME)
    except NotFound:
        async for _ in objects.list(SEGMENTS):
            return True
    return False


def group_in(url: str) -> tuple[str, str]:
    """Return cluster and broker of the folder at `url` (`folder_of`).  Raises `StoreError` if it names none."""
    parts = urlsplit(url)
    names = parts.path.strip("/").split("/")[1 if parts.scheme == "az" else 0 :]
    if len(names) < 2:
        raise StoreError(f"{url}: the manifest is gone: name the folder of a group, which ends with cluster/broker")
    return unquote(names[-2]), unquote(names[-1])


@dataclass
class _Seen:
    """What the records of one segment say."""

    records: int = 0
    dropped: int = 0
    first_ms: int = 0
    last_ms: int = 0
    log_hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def take(self, content: bytes, start: int) -> None:
        """Note the records of a block.  Raises `Damaged`."""
        room = len(content) + BLANK_MIN_BYTES  # a file ends with a blank at least
        scan = RecordScan(memoryview(content), start, room, check_crc=True, batch_records=_BATCH_RECORDS)
        end = start
        for batch in scan:
            kept = np.array([topic != _FILLER for topic in batch.topics], np.bool_)[batch.topic_index]
            self.records += (records := int(np.count_nonzero(kept)))
            self.dropped += len(batch) - records
            if records:
                times = store_timestamps(batch)[kept]
                self.first_ms = self.first_ms or int(times[0])
                self.last_ms = max(self.last_ms, int(times.max()))
            end = batch.end_offset
        if end != start + len(content):
            raise Damaged(f"physical offset {end}: {scan.end.reason}")
        self.log_hash.update(content)


class ManifestRebuild:
    """One rebuild of the archive of `group` in `objects`.  `segment_bytes` is the size of CommitLog files, if known."""

    def __init__(
        self,
        objects: ObjectStore,
        group: tuple[str, str],
        segment_bytes: int | None = None,
        progress: Progress = lambda size_bytes: None,
    ) -> None:
        self._objects, self._group, self._segment_bytes = objects, group, segment_bytes
        self._progress = progress
        # Where the records of each segment end, by key.
        self._records_ends: dict[str, int] = {}
        # What the manifest does not have, for an operator.
        self.missing: list[str] = []

    async def run(self, now_ms: int) -> Manifest:
        """Write the manifest, unless there is one, and return it.

        Raises `StoreError` where it would be a guess, and an `ObjectStoreError`: `Conflict` if there is one now.
        """
        found = {folder: await self._objects_in(folder) for folder in (SEGMENTS, "tables", "compacted")}
        segments = [entry for info, key in found[SEGMENTS] if (entry := await self._readable(info, key)) is not None]
        kept, superseded = await self._chosen(segments, [key for _, key in found[SEGMENTS]])
        if not kept:
            raise StoreError(f"{NAME}: no segment can be read: there is nothing to make a manifest of")
        segment_bytes = self._file_bytes(kept)
        everything = [one for objects in found.values() for one in objects]
        manifest = msgspec.structs.replace(
            empty(*self._group, segment_bytes, _LONGEST_MS), number=now_ms,
            writer=Writer(max(key.epoch for _, key in everything), "", 0), uploaded_end=kept[-1].end, segments=kept,
            superseded=superseded, tables=await self._tables(found["tables"]),
            written_ms=max(info.modified_ms for info, _ in everything),
        )  # fmt: skip
        self._tell(manifest, len(found["compacted"]))
        await self._objects.put_if(NAME, await asyncio.to_thread(encode, manifest), None)
        return manifest

    async def _objects_in(self, folder: str) -> list[tuple[ObjectInfo, KeyFields]]:
        found = [(info, fields_of(info.key)) async for info in self._objects.list(folder)]
        return sorted((info, key) for info, key in found if key is not None)

    # One segment

    async def _readable(self, info: ObjectInfo, key: KeyFields) -> SegmentEntry | None:
        """Return the entry of a segment; None if it is damaged, also when it is read again."""
        try:
            try:
                return await self._segment(info, key)
            except Damaged:
                return await self._segment(info, key)
        except Damaged as error:
            self.missing.append(f"{info.key}: cannot be read: {error}")
            return None

    async def _segment(self, info: ObjectInfo, key: KeyFields) -> SegmentEntry:
        tail = await self._tail(info)
        footer = await asyncio.to_thread(open_footer, tail, info.size_bytes)
        if footer.start != key.number:
            raise Damaged(f"its footer says that it begins at {footer.start}")
        seen = await self._scan(info.key, footer, footer.end)
        self._records_ends[info.key] = footer.records_end
        digest, ranges, left = hashlib.sha256(), footer.queue_ranges(), info.size_bytes
        async for piece in self._objects.stream(info.key):
            await asyncio.to_thread(digest.update, piece)
            left -= len(piece)
            self._progress(len(piece))
        if left:
            raise Damaged(f"{info.size_bytes - left} bytes came of {info.size_bytes}")
        return SegmentEntry(
            start=footer.start, end=footer.end, key=info.key, size_bytes=info.size_bytes, sha256=digest.hexdigest(),
            log_sha256=seen.log_hash.hexdigest(), footer_bytes=len(tail),
            footer_sha256=hashlib.sha256(tail).hexdigest(), records=seen.records, dropped=seen.dropped,
            first_store_ms=seen.first_ms, last_store_ms=seen.last_ms, epoch=key.epoch, created_ms=info.modified_ms,
            topics=footer.topics, queues=ranges if len(ranges) <= MAX_LISTED_QUEUES else None,
        )  # fmt: skip

    async def _tail(self, info: ObjectInfo) -> bytes:
        content_bytes = info.size_bytes - TRAILER.size
        if content_bytes <= 0:
            raise Damaged(f"{info.size_bytes} bytes are too few for a segment")
        magic, size_bytes = TRAILER.unpack(await self._objects.get_range(info.key, content_bytes, info.size_bytes))
        if magic != MAGIC or not 0 < size_bytes <= min(content_bytes, MAX_FOOTER_BYTES - TRAILER.size):
            raise Damaged("it does not end with a footer")
        return await self._objects.get_range(info.key, content_bytes - size_bytes, info.size_bytes)

    async def _scan(self, key: str, footer: Footer, until: int) -> _Seen:
        """Return what the records before the physical offset `until` say.  Raises `Damaged`."""
        seen, blocks = _Seen(), [one for one in footer.log if one.start < until]

        async def content_of(one: LogBlock) -> bytes:
            begin = one.block.position
            packed = await self._objects.get_range(key, begin, begin + one.block.size_bytes)
            return await asyncio.to_thread(open_block, one.block, packed)

        for at in range(0, len(blocks), _BLOCKS_AT_ONCE):
            some = blocks[at : at + _BLOCKS_AT_ONCE]
            for one, content in zip(some, await asyncio.gather(*map(content_of, some)), strict=True):
                await asyncio.to_thread(seen.take, content[: until - one.start], one.start)
        return seen

    # All segments

    async def _chosen(
        self, found: Sequence[SegmentEntry], keys: Sequence[KeyFields]
    ) -> tuple[list[SegmentEntry], list[SegmentEntry]]:
        """Return the segments that are the log, and those that a later master has superseded.  Raises `StoreError`.

        A master cuts the log before it uploads: a segment of it, readable or not, supersedes all older ones behind it.
        """
        begins: dict[int, int] = {}  # of the segments of each epoch
        for key in keys:
            begins[key.epoch] = min(key.number, begins.get(key.epoch, key.number))
        kept: list[SegmentEntry] = []
        superseded: list[SegmentEntry] = []
        for entry in sorted(found, key=lambda one: (one.start, one.end)):
            if any(epoch > entry.epoch and begin < entry.end for epoch, begin in begins.items()):
                superseded.append(entry)
            elif not kept or kept[-1].end <= entry.start:
                kept.append(entry)
            elif await self._begins_alike(kept[-1], entry):
                kept[-1] = entry  # what the other has is an upload that did not end
            else:
                raise StoreError(
                    f"{kept[-1].key} and {entry.key} have different messages at the offset {entry.start}, and nothing "
                    "says which of them count: bring the manifest back, or move one of them away"
                )
        return kept, superseded

    async def _begins_alike(self, short: SegmentEntry, long: SegmentEntry) -> bool:
        """Return whether `long` is the same part of the log, or more of it."""
        if short.start != long.start:
            return False
        end = self._records_ends[short.key]
        if end > self._records_ends[long.key]:
            return False
        try:
            seen = await self._scan(long.key, await read_footer(self._objects, long), end)
        except Damaged:
            return False  # no record ends there
        return seen.log_hash.hexdigest() == short.log_sha256

    def _file_bytes(self, kept: Sequence[SegmentEntry]) -> int:
        """Return the size of CommitLog files.  Raises `StoreError` if several sizes are possible.

        What is left out at the end of a segment is the blank at the end of its file.
        """
        ends = [one.end for one in kept if self._records_ends[one.key] < one.end]
        divisor, longest = gcd(*ends), max(one.end - one.start for one in kept)
        # A file is not smaller than the longest segment.
        sizes = [divisor // n for n in range(1, divisor // longest + 1) if divisor % n == 0] if divisor else []
        sizes = [size for size in sizes if all(one.start // size == (one.end - 1) // size for one in kept)]
        wanted = self._segment_bytes
        if wanted is None and len(sizes) == 1:
            return sizes[0]
        if wanted is None or (ends and wanted not in sizes):
            text = ", ".join(map(str, sizes[:5])) or "not known"
            raise StoreError(
                f"the size of the group's CommitLog files (mappedFileSizeCommitLog) is not clear from its segments "
                f"({text}): name it with --segment-bytes"
            )
        return wanted

    async def _tables(self, found: Sequence[tuple[ObjectInfo, KeyFields]]) -> TablesEntry | None:
        """Return the newest tables that can be read; each were true when they were uploaded."""
        for info, _ in sorted(found, key=lambda one: (one[1].number, one[1].epoch, one[0].modified_ms), reverse=True):
            try:
                content = (await self._objects.get(info.key, MAX_TABLES_BYTES)).content
                await asyncio.to_thread(decode_tables, content)
            except Damaged as error:
                self.missing.append(f"{info.key}: cannot be read: {error}")
                continue
            digest = hashlib.sha256(content).hexdigest()
            # Where the log was then is not known, and nobody reads it.
            return TablesEntry(info.key, len(content), digest, 0, info.modified_ms)
        return None

    def _tell(self, manifest: Manifest, compacted: int) -> None:
        """Note what an operator should know."""
        start = manifest.segments[0].start
        if start:
            self.missing.append(f"the log before offset {start}: it had expired, or its objects are gone")
        end = start
        for one in manifest.segments:
            if one.start > end:
                self.missing.append(f"the log from offset {end} to {one.start}")
            end = one.end
        self.missing.append(f"whatever came after offset {end}: there is no object of it")
        if manifest.tables is None:
            self.missing.append("topics, groups and offsets: the master uploads them again")
        if compacted:
            self.missing.append(f"{compacted} parts of compacted queues, which do not say whose they are: the master "
                                "uploads its own again; do not delete them before")  # fmt: skip
        if any(one.dropped for one in manifest.segments):
            self.missing.append("hashes of the log where messages were not archived: a broker that has this log on its "
                                "disk says kind=OtherLog, and needs another folder")  # fmt: skip
        self.missing.append("the times for which messages stay: nothing expires until the master writes them")
