"""What a reader knows of the archive: its newest manifest, the queues in it, and where its blocks are.

A broker adopts each manifest before anything is deleted locally, so for a reader no message is in neither place.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from store.tier.manifest import Manifest, QueueRange, SegmentEntry, empty
from store.tier.object_store import ObjectStore
from store.tier.reads.block_cache import Cached
from store.tier.reads.footer_files import FooterFiles
from store.tier.reads.queue_ranges import QueueRanges
from store.tier.reads.steps import Wanted, read_part
from store.tier.segment_object import Footer

# Folder in the store's root for the footers of segments.
FOOTERS: Final = "tierfooters"
_FOOTERS_AT_ONCE: Final = 8


class ArchiveView:
    """The archive of one broker group, in `objects`; footers are kept in `folder`, if there is one.

    With `serves` the archive is that of other brokers, and has all messages of the topics for which it is true, and
    none of the others.  Lives in the event loop's thread.
    """

    def __init__(
        self, objects: ObjectStore, folder: Path | None = None, serves: Callable[[str], bool] | None = None
    ) -> None:
        self.serves = serves
        self._objects = objects
        self._footers = FooterFiles(objects, folder)
        # Whether the manifest was read, and all its queues are known.  Before, nobody can say what is not there.
        self.is_known = False
        # Queues of the segments that have more than the manifest lists, by key.
        self._listed: dict[str, Sequence[QueueRange]] = {}
        self.ranges = QueueRanges(empty("", "", 1, 0), {})
        self._adopting = asyncio.Lock()

    @property
    def manifest(self) -> Manifest:
        """The newest manifest that is known."""
        return self.ranges.manifest

    async def adopt(self, manifest: Manifest) -> None:
        """Read by `manifest` from now on.  Raises an `ObjectStoreError` if a footer that this needs cannot be read."""
        async with self._adopting:
            if not self.is_known or manifest.number != self.manifest.number:
                await self._list_queues(manifest)
                # In a thread: with many segments and queues it would hold the loop.
                before = self.ranges if self.serves is None else None
                self.ranges = await asyncio.to_thread(self._ranges, manifest, before)
                self.is_known = True

    async def load(self, wanted: Wanted) -> Cached:
        """Return what a part of an object holds.  Raises an `ObjectStoreError`."""
        if wanted.part is not None:
            return await read_part(self._objects, wanted)
        return await asyncio.to_thread(wanted.opened, await self._footers.content(wanted.segment))

    async def fetch_footers(self) -> None:
        """Fetch what the first reads of segments need.  Raises an `ObjectStoreError`."""
        await self._footers.follow(self.manifest)

    def nothing_archived(self) -> None:
        """Note that there is no manifest yet."""
        self.is_known = True

    def _ranges(self, manifest: Manifest, before: QueueRanges | None) -> QueueRanges:
        return QueueRanges(manifest, self._listed, self.serves or (lambda topic: True), before)

    async def _list_queues(self, manifest: Manifest) -> None:
        """Ask the footers of segments whose queues the manifest does not list."""
        unlisted = {one.key: one for one in manifest.segments if one.queues is None}
        self._listed = {key: queues for key, queues in self._listed.items() if key in unlisted}
        missing = [one for key, one in unlisted.items() if key not in self._listed]
        for at in range(0, len(missing), _FOOTERS_AT_ONCE):
            some = missing[at : at + _FOOTERS_AT_ONCE]
            for segment, queues in zip(some, await asyncio.gather(*map(self._queues, some)), strict=True):
                self._listed[segment.key] = queues

    async def _queues(self, segment: SegmentEntry) -> Sequence[QueueRange]:
        footer = await self.load(Wanted(segment, None))
        assert isinstance(footer, Footer)
        return await asyncio.to_thread(footer.queue_ranges)
