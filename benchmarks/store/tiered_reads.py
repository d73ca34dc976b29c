"""How fast messages come back from an object store of known latency and bandwidth, beside the store itself.

    python -m benchmarks.store.tiered_reads [--messages 120000] [--latency-ms 30] [--mib-s 100] [--topics 1]

A log is archived into memory, and a consumer reads a queue from its first message on in pulls of 32 messages.  The
object store answers each request after the latency, and all requests share the bandwidth.  The control asks the same
store for the same log blocks, as many at a time as a group may have under way, and opens none of them.  Rounds
alternate.  Goals: the first message within 50 ms of the store's own first byte, then 60 % of its throughput.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from sprocket.common.clock import SystemClock
from store.config.store_config import StoreConfig
from store.message_store import MessageStore, PendingMessage
from store.queue.get_result import GetResult
from store.tier.manifest import Manifest
from store.tier.reads.archive_view import FOOTERS, ArchiveView
from store.tier.reads.queue_reads import TierRead
from store.tier.reads.steps import read_footer
from store.tier.reads.tiered_reads import TieredReads
from store.tier.remote_store import RemoteStore, open_store
from tests.store.tier.reads.read_rig import archive

TOPIC = "Orders0"
HOST = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
SEGMENT_BYTES = 32 << 20
BODY_BYTES = 1000
BATCH = 500


class LimitedStore(RemoteStore):
    """An object store in memory whose ranged reads take time."""

    def __init__(self, inner: RemoteStore, latency_s: float, bytes_s: float) -> None:
        self._inner, self._latency_s, self._bytes_s = inner, latency_s, bytes_s
        self._free_at = 0.0

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + (end - start) / self._bytes_s
        await asyncio.sleep(self._free_at - now + self._latency_s)
        return await self._inner.get_range(key, start, end)


class Drained:
    """A broker's own store from which everything has expired."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def max_offset(self, topic: str, queue_id: int, /) -> int:
        return self._store.max_offset(topic, queue_id)

    min_offset = max_offset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def filled(root: Path, messages: int, topics: int) -> MessageStore:
    """Return a store with messages that compress to about half."""
    config = StoreConfig(store_path_root_dir=root, mapped_file_size_commit_log=SEGMENT_BYTES)
    store = MessageStore(config, clock=SystemClock(), notify=lambda callback: None)
    store.start()
    rng = random.Random(7)
    for first in range(0, messages, BATCH):
        batch = []
        for number in range(first, first + BATCH):
            body = rng.randbytes(BODY_BYTES // 2).hex().encode()
            batch.append(PendingMessage(f"Orders{number % topics}", 0, body, b"", 0, 0, 0, 1_700_000_000_000, HOST))
        store.append(batch)
    return store


async def raw(objects: LimitedStore, manifest: Manifest, at_once: int) -> tuple[float, float]:
    """Return the seconds until the store's first byte, and until all log blocks are here."""
    parts = [(one.key, block.block) for one in manifest.segments for block in (await read_footer(objects, one)).log]
    began = time.monotonic()
    first: list[float] = []
    waiting = iter(parts)

    async def take() -> None:
        for key, block in waiting:
            await objects.get_range(key, block.position, block.position + block.size_bytes)
            first.append(time.monotonic() - began)

    await asyncio.gather(*(take() for _ in range(at_once)))
    return first[0], time.monotonic() - began


async def consumed(reads: TieredReads, end: int) -> tuple[float, float, int]:
    """Return the seconds until the first message, and until the last before queue offset `end`, and their bytes."""
    began, offset, size_bytes, first = time.monotonic(), 0, 0, 0.0
    while offset < end:
        answered: asyncio.Future[GetResult] = asyncio.get_running_loop().create_future()
        read = TierRead("group", TOPIC, 0, offset, 32, 1 << 20, None)
        reads.read(read, answered.set_result, answered.set_exception)
        result = await answered
        first = first or time.monotonic() - began
        offset, size_bytes = result.next_offset, size_bytes + result.size_bytes
    return first, time.monotonic() - began, size_bytes


async def run(args: argparse.Namespace, root: Path) -> None:
    """Measure, and print the medians."""
    store = filled(root, args.messages, args.topics)
    inner = open_store("memory:///")
    manifest = await archive(store, inner, block_bytes=1 << 20, held_entries=512 * 1024)
    objects = LimitedStore(inner, args.latency_ms / 1000, args.mib_s * (1 << 20))
    end = max(queue.end for one in manifest.segments for queue in one.queues or () if queue.topic == TOPIC)
    rows = []
    for _ in range(args.rounds):
        raw_first, raw_all = await raw(objects, manifest, store.config.tiered_store_max_reads_per_group)
        view = ArchiveView(objects, root / FOOTERS)
        reads = TieredReads(lambda: store.config, cast(MessageStore, Drained(store)), SystemClock(), view)
        await reads.adopt(manifest)
        await view.fetch_footers()  # as a broker has them soon after it read the manifest
        began_s = time.process_time()
        first, whole, size_bytes = await consumed(reads, end)
        rows.append((raw_first * 1e3, first * 1e3, raw_all, whole, size_bytes, time.process_time() - began_s))
    store_first, first, raw_all, whole, size_bytes, cpu_s = map(statistics.median, zip(*rows, strict=True))
    print(f"latency {args.latency_ms} ms, {args.mib_s} MiB/s, {args.topics} topics, {len(manifest.segments)} segments")
    print(f"first byte of the store  {store_first:8.1f} ms")
    print(f"first message            {first:8.1f} ms   {first - store_first:+.1f} ms")
    print(f"all blocks, store        {raw_all:8.2f} s")
    print(
        f"all messages             {whole:8.2f} s    {raw_all / whole:.0%} of the store; "
        f"{size_bytes / whole / 1e6:.0f} MB/s, {cpu_s:.2f} s of CPU"
    )
    store.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=120_000)
    parser.add_argument("--latency-ms", type=float, default=30.0)
    parser.add_argument("--mib-s", type=float, default=100.0)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(args, Path(folder) / "store"))


if __name__ == "__main__":
    main()
