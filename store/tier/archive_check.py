"""Check of an archive without a broker: what is damaged, missing or unnamed in it; and repair of its manifest."""

import asyncio
from itertools import pairwise
from typing import Final

from store.backup.copied_file import Progress
from store.inspection.finding import Findings, Severity
from store.tier.manifest import NAME, Manifest, SegmentEntry, encode
from store.tier.object_store import Damaged, NotFound, ObjectInfo, ObjectStore, Version
from store.tier.reads.steps import read_footer
from store.tier.whole_objects import is_intact

_AT_ONCE: Final = 4
_FOLDERS: Final = ("segments", "tables", "compacted")
_FORGET: Final = "forget the segment: readers then pass its messages, and a restore puts fillers there"


class ArchiveCheck:
    """One check of `manifest`'s archive in `objects`; `quick` looks at sizes and footers, and reads no messages."""

    def __init__(
        self, objects: ObjectStore, manifest: Manifest, *, quick: bool, progress: Progress = lambda size_bytes: None
    ) -> None:
        self._objects = objects
        self._manifest = manifest
        self._quick = quick
        self._progress = progress
        self.findings = Findings()
        # Keys of objects that cannot be read: a repair forgets them.
        self.lost: set[str] = set()
        self.unnamed: list[ObjectInfo] = []

    async def run(self) -> None:
        """Check everything.  Raises an `ObjectStoreError` if the store does not answer."""
        manifest, found = self._manifest, await self._objects_there()
        for before, after in pairwise(manifest.segments):
            if before.end != after.start:
                text = f"the log from {before.end} to {after.start} is not archived"
                self.findings.add("gap", Severity.NOTE, before.key, text)
        segments = [*manifest.segments, *manifest.superseded]
        for at in range(0, len(segments), _AT_ONCE):
            await asyncio.gather(*(self._segment(one, found.get(one.key)) for one in segments[at : at + _AT_ONCE]))
        for one in manifest.compacted:
            fault = await self._fault_of(one.key, one.size_bytes, one.sha256, found.get(one.key))
            if fault is not None:
                self.lost.add(one.key)
                text = f"compacted queue {one.queue_id} of {one.topic}, {one.part.records} messages: {fault}"
                repair = "forget what is archived of this queue: its master uploads it again"
                self.findings.add("compacted", Severity.LOSS, one.key, text, repair)
        tables = manifest.tables
        if tables is None:
            self.findings.add("no_tables", Severity.NOTE, NAME, "there are no topics, groups and offsets to restore")
        elif await self._fault_of(tables.key, tables.size_bytes, tables.sha256, found.get(tables.key)) is not None:
            self.lost.add(tables.key)
            text = "the tables are damaged or missing: a restore lacks topics, groups and offsets"
            self.findings.add("tables", Severity.WRONG, tables.key, text, "forget them: the broker uploads them again")
        self.unnamed = [info for key, info in sorted(found.items()) if key not in manifest.keys]
        for info in self.unnamed:
            text = f"the manifest does not name its {info.size_bytes} bytes; uploads that did not end leave such"
            self.findings.add("unnamed", Severity.NOTE, info.key, text, size_bytes=info.size_bytes)

    async def _objects_there(self) -> dict[str, ObjectInfo]:
        return {info.key: info for folder in _FOLDERS async for info in self._objects.list(folder)}

    async def _segment(self, segment: SegmentEntry, info: ObjectInfo | None) -> None:
        fault = await self._fault_of(segment.key, segment.size_bytes, segment.sha256, info)
        if fault is None:
            fault = await self._footer_fault(segment)
        if fault is None:
            return
        self.lost.add(segment.key)
        text = f"the log from {segment.start} to {segment.end}, {segment.records} messages: {fault}"
        self.findings.add("segment", Severity.LOSS, segment.key, text, _FORGET)

    async def _fault_of(self, key: str, size_bytes: int, sha256: str, info: ObjectInfo | None) -> str | None:
        if info is None:
            return "the object is missing"
        if info.size_bytes != size_bytes:
            return f"the object has {info.size_bytes} bytes, not {size_bytes}"
        if self._quick:
            return None
        try:
            is_sound = await is_intact(self._objects, key, size_bytes, sha256, progress=self._progress)
        except NotFound:
            return "the object is missing"
        return None if is_sound else "the object is not what was written there"

    async def _footer_fault(self, segment: SegmentEntry) -> str | None:
        try:
            footer = await read_footer(self._objects, segment)
        except Damaged as error:
            return str(error)
        if (footer.start, footer.end) != (segment.start, segment.end):
            return f"its footer says {footer.start} to {footer.end}"
        listed = segment.queues
        if listed is not None and set(footer.queue_ranges()) != set(listed):
            return "its footer has other queues than the manifest"
        return None


async def repair(objects: ObjectStore, manifest: Manifest, version: Version, lost: set[str], now_ms: int) -> Manifest:
    """Write a manifest without the objects of `lost`, and return it.

    Raises `Conflict` if a broker has written it meanwhile: check again.
    """
    repaired = manifest.without(lost, now_ms)
    await objects.put_if(NAME, encode(repaired), version)
    return repaired
