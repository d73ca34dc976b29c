"""A month of a broker with an archive: on each day it is killed, while it uploads and while a group reads.

A day: messages are sent, closed CommitLog files are uploaded, the disk drops some that are archived, and a group reads
on where it was, from disk and archive.  Requests to the object store fail, come late or repeated, and one of them is
the last that the process makes.  What the group got, day by day, must be what was sent, each message once and in order.
"""

import asyncio
import contextlib
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from store.message_store import MessageStore
from store.queue.get_result import GetResult, GetStatus
from store.tier.archive_writer import ArchiveWriter
from store.tier.object_store import ObjectStoreError
from store.tier.reads import tiered_reads
from store.tier.reads.archive_view import ArchiveView
from store.tier.reads.queue_reads import TierRead
from store.tier.reads.tiered_reads import TieredReads
from tests.store.insides import flush_queues
from tests.store.reading import records_of
from tests.store.rig import Stores, message
from tests.store.tier.archive_rig import FakeSource, at_once, writer_of
from tests.store.tier.fake_store import FakeBucket, FakeStore, Killed
from tests.store.tier.reads.read_rig import answer

DAYS = 30
QUEUES = 2
_FAULTS = 0.1
_STEPS = 60


@dataclass
class Month:
    """One seed's month, and what came of it."""

    seed: int
    sent: dict[int, list[bytes]] = field(default_factory=lambda: {queue_id: [] for queue_id in range(QUEUES)})
    got: dict[int, list[bytes]] = field(default_factory=lambda: {queue_id: [] for queue_id in range(QUEUES)})
    problems: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    dropped_files: int = 0
    archived_reads: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._bucket = FakeBucket()
        self._known_end = 0  # what a broker knew to be archived
        self._commits = dict.fromkeys(range(QUEUES), 0)

    def report(self) -> str:
        return f"seed {self.seed}: {'; '.join(self.problems)}"

    async def play(self, folder: Path) -> None:
        """Live the month, then read the rest without faults."""
        stores = Stores(folder)
        for day in range(DAYS):
            await self._day(stores, day, FakeStore(
                self._bucket, self._random, faults=_FAULTS, dies_at=self._random.randrange(5, 90)
            ))  # fmt: skip
        while self._bucket.late:
            self._bucket.deliver()
        await self._day(stores, DAYS, FakeStore(self._bucket, self._random))
        for queue_id, bodies in self.sent.items():
            got = self.got[queue_id]
            if got != bodies:
                at = next((n for n, pair in enumerate(zip(got, bodies, strict=False)) if pair[0] != pair[1]), -1)
                self.problems.append(f"queue {queue_id}: {len(bodies)} sent, {len(got)} read, differ at {at}")

    async def _day(self, stores: Stores, day: int, objects: FakeStore) -> None:
        store = self._opened(stores)
        for number in range(self._random.randrange(10, 80)):
            queue_id = self._random.randrange(QUEUES)
            body = b"day %d message %d " % (day, number) * self._random.randrange(1, 40)
            store.append([message("Orders", queue_id, body)])
            self.sent[queue_id].append(body)
            stores.clock.advance(60.0)
        store.flush()
        flush_queues(store)  # the disk drops a file only after its queue entries were synced
        source = FakeSource(store)
        source.min_offset = store.first_physical_offset
        writer = writer_of(objects, source, stores.clock, incarnation=f"day{day}")
        view = ArchiveView(objects)
        reads = TieredReads(lambda: stores.config, store, stores.clock, view)
        try:
            await self._live(writer, reads, store, ends=day == DAYS)
            self.faults["none"] += 1
        except Killed:
            self.faults["kill"] += 1
        reads.close()
        await asyncio.sleep(0)
        source.end_offset = source.safe_offset
        if self._random.random() < 0.5:
            stores.crash(store)
        else:
            stores.close(store)
        stores.notified.clear()

    def _opened(self, stores: Stores) -> MessageStore:
        """Start the store, after the disk dropped some files that were known to be archived."""
        files = sorted((stores.root / "commitlog").iterdir()) if (stores.root / "commitlog").exists() else []
        size = stores.config.mapped_file_size_commit_log
        droppable = [path for path in files[:-1] if int(path.name) + size <= self._known_end]
        for path in droppable[: self._random.randrange(len(droppable) + 1)]:
            path.unlink()
            self.dropped_files += 1
        return stores.open()

    async def _live(self, writer: ArchiveWriter, reads: TieredReads, store: MessageStore, *, ends: bool) -> None:
        # On most days the group is slow or away, so that it needs what the disk has dropped.
        is_claimed, pace = False, self._random.choice((0.0, 0.0, 0.05, 0.5))
        for _ in range(_STEPS * (100 if ends else 1)):
            with contextlib.suppress(ObjectStoreError):
                if not is_claimed:
                    await writer.claim()
                    is_claimed = True
                is_busy = await writer.step(60.0)
                await writer.save_tables()
                await reads.adopt(writer.manifest)
                self._known_end = max(self._known_end, writer.manifest.uploaded_end)
                if ends and not is_busy and self._has_all(store):
                    return
            for queue_id in range(QUEUES):
                if ends or self._random.random() < pace:
                    await self._pull(reads, store, queue_id)

    def _has_all(self, store: MessageStore) -> bool:
        return all(self._commits[queue_id] >= store.max_offset("Orders", queue_id) for queue_id in range(QUEUES))

    async def _pull(self, reads: TieredReads, store: MessageStore, queue_id: int) -> None:
        """One pull of the group; the offset is committed with what it got, so no message may come twice."""
        offset, most = self._commits[queue_id], self._random.randrange(1, 33)
        if not reads.serves("Orders", queue_id, offset):
            result = store.get("Orders", queue_id, offset, most, 1 << 20)
        else:
            result = await self._archived(reads, TierRead("group", "Orders", queue_id, offset, most, 1 << 20, None))
            self.archived_reads += result.message_count
        self.answers[result.status.name] += 1
        if result.status is GetStatus.FOUND:
            self.got[queue_id] += [bytes(record.body) for record in records_of(result.slices)]
        if result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE):
            self._commits[queue_id] = result.next_offset
        elif result.status is GetStatus.OFFSET_TOO_SMALL:
            self.problems.append(f"queue {queue_id}: moved from {offset} to {result.next_offset}")
            self._commits[queue_id] = result.next_offset

    async def _archived(self, reads: TieredReads, read: TierRead) -> GetResult:
        try:
            return await answer(reads, read)
        except ObjectStoreError:  # cut short: the broker refuses, and the client asks again
            return GetResult(GetStatus.MESSAGE_WAS_REMOVING, read.offset, 0, 0, [], 0, 0, False)


def play_month(seed: int) -> Month:
    """Play one seed."""
    month = Month(seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(asyncio, "to_thread", at_once),
        patch.object(tiered_reads, "_PAUSE_S", 0.0),
    ):
        asyncio.run(month.play(Path(folder) / "store"))
    return month
