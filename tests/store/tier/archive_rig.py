"""A log that is archived, and what must hold of an archive at any time."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from store.compaction.manifest import Part, compacted_parts
from store.message_store import MessageStore
from store.record.record import TagsCodes, store_timestamp_of
from store.tier.archive_writer import ArchiveWriter
from store.tier.manifest import NAME, Manifest, decode
from store.tier.object_store import ObjectStore
from store.tier.segment_writer import Kept, SegmentWriter
from store.tier.tables_object import decode_tables
from store.tier.upload_plan import ArchiveRules, LogView
from tests.clock import ManualClock
from tests.store.insides import commit_log_of
from tests.store.tier.fake_store import FakeBucket
from tests.store.tier.parts import log_of

HOUR_MS = 3_600_000
GROUP = ("DefaultCluster", "broker-a")


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in this thread, in place of another one."""
    return function(*arguments)


class FakeSource:
    """The log of a store, of which a test says how much is confirmed and how much is left."""

    def __init__(self, store: MessageStore) -> None:
        self._log = commit_log_of(store)
        self.safe_offset = self._log.wrote_offset
        self.min_offset = 0
        self.end_offset = self._log.wrote_offset
        self.archive_rules = ArchiveRules(72 * HOUR_MS, {}, 0, 1, deletes=True)
        self.archived = Kept()
        self.compaction_end = self._log.wrote_offset
        self.compacted_root: Path | None = None
        self.small_files = {"config/topics.json": b"{}"}

    def view(self) -> LogView:
        return LogView(self.min_offset, self.end_offset, self.safe_offset, self._log.segment_bytes)

    def rules(self) -> ArchiveRules:
        return self.archive_rules

    def set_rules(self, **fields: Any) -> None:
        self.archive_rules = replace(self.archive_rules, **fields)

    def store_time_at(self, offset: int) -> int:
        record = self._log.record_at(offset)
        return -1 if record is None else store_timestamp_of(record)

    def kept(self) -> Kept:
        return self.archived

    def read(self, offset: int, size_bytes: int) -> bytes:
        found = self._log.slice_at(offset, min(size_bytes, self._log.wrote_offset - offset))
        return b"" if found is None else bytes(found)

    def tables(self) -> dict[str, bytes]:
        return dict(self.small_files)

    def compacted_end(self) -> int:
        return self.compaction_end

    def compacted(self) -> dict[tuple[str, int], tuple[Path, Sequence[Part]]]:
        return {} if self.compacted_root is None else compacted_parts(self.compacted_root)


def writer_of(
    store: ObjectStore, source: FakeSource, clock: ManualClock, *, epoch: int = 0, incarnation: str = "one"
) -> ArchiveWriter:
    return ArchiveWriter(
        store, source, clock, group=GROUP, epoch=epoch, incarnation=incarnation, in_thread=at_once,
        segments=lambda part, kept: SegmentWriter(part, source.read, kept, TagsCodes("1s 5s")),
    )  # fmt: skip


async def upload_all(writer: ArchiveWriter) -> None:
    """Do every step there is."""
    while await writer.step(60.0):
        pass


def manifest_in(bucket: FakeBucket) -> Manifest | None:
    """Return the manifest that is in the bucket."""
    found = bucket.objects.get(NAME)
    return None if found is None else decode(found[0])


def check_archive(bucket: FakeBucket, source: FakeSource) -> Manifest | None:
    """Assert that all that the manifest names is there and is the log; return the manifest."""
    manifest = manifest_in(bucket)
    if manifest is None:
        return None
    assert manifest.uploaded_end <= source.end_offset
    end = 0
    for entry in manifest.segments:
        assert entry.start == end, "the archive has a hole"
        content = bucket.objects[entry.key][0]
        assert hashlib.sha256(content).hexdigest() == entry.sha256
        log = log_of(content)
        assert log == source.read(entry.start, len(log))
        assert hashlib.sha256(log).hexdigest() == entry.log_sha256
        end = entry.end
    assert end == manifest.uploaded_end
    if manifest.tables is not None:
        assert decode_tables(bucket.objects[manifest.tables.key][0])
    return manifest


Run = Callable[[], Awaitable[None]]
