"""An archive that a test makes of a store's log, in memory, and reads of it as a broker's."""

import asyncio
from collections.abc import Callable

from store.message_store import MessageStore
from store.queue.get_result import GetResult
from store.tier.manifest import Manifest, SegmentEntry, empty
from store.tier.object_store import ObjectStore
from store.tier.reads.archive_view import ArchiveView
from store.tier.reads.queue_reads import TierRead
from store.tier.reads.tiered_reads import TieredReads
from store.tier.remote_store import RemoteStore, open_store
from store.tier.segment_writer import Written
from tests.store.insides import commit_log_of
from tests.store.rig import Stores
from tests.store.tier.parts import part_at, write

DAY_MS = 24 * 3_600_000


class SlowStore:
    """An object store whose ranged reads wait for the test, or fail as it says."""

    def __init__(self, inner: RemoteStore) -> None:
        self._inner = inner
        self.fault: Callable[[str], Exception | None] = lambda key: None
        self.reads: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        self.reads.append(key)
        error = self.fault(key)
        if error is not None:
            raise error
        await self.gate.wait()
        return await self._inner.get_range(key, start, end)


def entry_of(start: int, key: str, written: Written, *, lists_queues: bool = True) -> SegmentEntry:
    """Return what the manifest says of an object."""
    return SegmentEntry(
        start=start, end=written.end, key=key, size_bytes=written.size_bytes, sha256=written.sha256,
        log_sha256=written.log_sha256, footer_bytes=written.footer_bytes, footer_sha256=written.footer_sha256,
        records=written.records, dropped=written.dropped, first_store_ms=written.first_store_ms,
        last_store_ms=written.last_store_ms, epoch=0, created_ms=written.last_store_ms, topics=written.topics,
        queues=written.queues if lists_queues else None,
    )  # fmt: skip


async def archive(
    store: MessageStore,
    objects: ObjectStore,
    keeps: Callable[[str], bool] = lambda topic: True,
    *,
    lists_queues: bool = True,
    block_bytes: int = 4096,
    held_entries: int = 200,
    part_bytes: int = 1 << 30,
) -> Manifest:
    """Write every closed segment of the store's log to `objects`, in parts, and return the manifest."""
    log = commit_log_of(store)
    manifest = empty("DefaultCluster", "broker-a", log.segment_bytes, 7 * DAY_MS)
    start, number = log.min_offset, 0
    while log.segment_end(start) <= log.wrote_offset:
        part = part_at(store, start, min(start + part_bytes, log.segment_end(start)))
        content, written = write(store, part, keeps, block_bytes=block_bytes, held_entries=held_entries)
        key = f"segments/{start}-0-test-{number}"
        await objects.put(key, content)
        entry = entry_of(start, key, written, lists_queues=lists_queues)
        manifest = manifest.with_segment(entry, written.last_store_ms)
        start, number = written.end, number + 1
    return manifest


def memory_objects() -> RemoteStore:
    """Return an empty store in memory."""
    return open_store("memory:///")


def without_segments(stores: Stores, store: MessageStore, count: int) -> MessageStore:
    """Open the store again without its oldest segments, as retention leaves it."""
    stores.close(store)
    for path in stores.segments()[:count]:
        path.unlink()
    return stores.open()


async def tiered(stores: Stores, store: MessageStore, objects: ObjectStore, manifest: Manifest) -> TieredReads:
    """Return the reads of a broker with this store."""
    reads = TieredReads(lambda: stores.config, store, stores.clock, ArchiveView(objects))
    await reads.adopt(manifest)
    return reads


async def answer(reads: TieredReads, read: TierRead) -> GetResult:
    """Return the answer to a pull.  Raises what refuses it."""
    answered: asyncio.Future[GetResult] = asyncio.get_running_loop().create_future()
    reads.read(read, answered.set_result, answered.set_exception)
    return await answered
