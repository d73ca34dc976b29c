"""Compacted queues of an archive on a reader's disk: their objects have no index, so reads need whole files.

The files of a part are in a folder with the name of its object's hash, which it gets when they are complete and synced.
So a restart fetches nothing again, and what a crash leaves has another name and is removed.
"""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from sprocket.common.errors import StoreError
from sprocket.common.files.atomic_file import sync_directory
from sprocket.common.files.disk_errors import as_store_error
from store.compaction.compacted_queue import CompactedQueue, OpenPart
from store.compaction.manifest import damage_of
from store.disk.disk import RealDisk
from store.tier.compacted_object import write_part
from store.tier.manifest import CompactedEntry
from store.tier.object_store import Damaged, NotFound, ObjectStore

# Folder in the store's root.
TABLES: Final = "tiertables"
_Key: TypeAlias = tuple[str, int]
_Queues: TypeAlias = dict[_Key, CompactedQueue]


class CompactedFiles:
    """The compacted queues of one archive, in `folder`.  For one event loop."""

    def __init__(self, objects: ObjectStore, folder: Path) -> None:
        self._objects = objects
        self._folder = folder
        self._disk = RealDisk()
        self._opened: dict[_Key, tuple[list[CompactedEntry], CompactedQueue]] = {}
        # Queues that cannot be read in the archive are left out, and the topics that have one.
        self._unreadable: dict[_Key, list[CompactedEntry]] = {}
        self.damaged: set[str] = set()

    async def follow(self, entries: Iterable[CompactedEntry], served: Mapping[_Key, CompactedQueue]) -> _Queues:
        """Fetch the queues of `entries`, and drop all others; return them, open.

        `served` are the queues that are served now: one of them that has not changed is returned again.  Raises an
        `ObjectStoreError`, and `StoreError` if the disk is full.
        """
        for key, (_, queue) in list(self._opened.items()):
            if served.get(key) is not queue:
                # Its topic was deleted here, or a failure came before it was served.
                queue.close()
                del self._opened[key]
        wanted: dict[_Key, list[CompactedEntry]] = {}
        for entry in entries:
            wanted.setdefault((entry.topic, entry.queue_id), []).append(entry)
        self.damaged = set()
        for key, parts in wanted.items():
            known = self._opened.get(key)
            if known is not None and known[0] == parts:
                continue
            if self._unreadable.get(key) != parts:
                try:
                    self._opened[key] = parts, await self._queue(parts)
                    continue
                except Damaged:
                    self._unreadable[key] = parts
                except NotFound:
                    # The newest manifest may have other parts.  If it has not, the queue is left out then.
                    self._unreadable[key] = parts
                    raise
            self._opened.pop(key, None)
            self.damaged.add(key[0])
        self._opened = {key: one for key, one in self._opened.items() if key in wanted}
        await asyncio.to_thread(self._drop_others, {part.sha256 for parts in wanted.values() for part in parts})
        return {key: queue for key, (_, queue) in self._opened.items()}

    async def _queue(self, entries: list[CompactedEntry]) -> CompactedQueue:
        if damage := damage_of([entry.part for entry in entries]):
            raise Damaged(f"manifest: compacted queue {entries[0].queue_id} of {entries[0].topic}: {damage}")
        for entry in entries:
            if not (self._folder / entry.sha256).is_dir():
                await self._fetch(entry)
        return await asyncio.to_thread(self._open, entries)

    def _open(self, entries: list[CompactedEntry]) -> CompactedQueue:
        try:
            return CompactedQueue([OpenPart(self._disk, self._folder / one.sha256, one.part) for one in entries])
        except StoreError:
            # Somebody removed files: the next try fetches them again.
            for one in entries:
                self._disk.remove_tree(self._folder / one.sha256)
            raise

    async def _fetch(self, entry: CompactedEntry) -> None:
        folder, temporary = self._folder / entry.sha256, self._folder / f"{entry.sha256}.tmp"
        try:
            await asyncio.to_thread(self._disk.remove_tree, temporary)
            temporary.mkdir(parents=True)
            await write_part(self._objects, entry, temporary)
            await asyncio.to_thread(sync_directory, temporary)
            temporary.rename(folder)
        except OSError as error:
            raise as_store_error(error, "write", temporary) from error

    def _drop_others(self, hashes: set[str]) -> None:
        """Remove the folders of other parts.  Who still reads them has their files open."""
        for name in self._disk.names(self._folder):
            if name not in hashes:
                self._disk.remove_tree(self._folder / name)
