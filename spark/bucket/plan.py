"""Plan of a read of archives: which parts of which segments each task reads, by what the manifests say of them."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from spark.decode.columns import nearest
from spark.options.bucket_options import BucketSettings
from spark.rows.filters import RowFilter
from sprocket.common.errors import ConfigError
from store.tier.manifest import CompactedEntry, Manifest, SegmentEntry
from store.tier.open_archive import open_archives
from store.tier.remote_store import Access, RemoteStore, open_store

# A task has at least this much to read, compressed, unless there is less.
_MIN_TASK_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class _OfGroup:
    """Something in the archive of a broker group, whose folder is `url`."""

    settings: BucketSettings
    url: str
    broker_name: str

    def open(self) -> RemoteStore:
        """Return the object store."""
        return open_store(self.url, access_of(self.settings))


@dataclass(frozen=True)
class BucketPart(_OfGroup):
    """Part `number` of `count` equal ones of a segment's log blocks; `topics` are those that may be read."""

    segment: SegmentEntry
    topics: frozenset[str]
    number: int
    count: int


@dataclass(frozen=True)
class BucketTable(_OfGroup):
    """A part of a compacted queue; its records before the physical offset `log_begin` are to be read.

    From there on the segments have the topic's messages.
    """

    entry: CompactedEntry
    log_begin: int


def now_ms() -> int:
    """Return the time by which messages of an archive have expired or not, ms since 1970."""
    return int(time.time() * 1000)


def access_of(settings: BucketSettings) -> Access:
    """Return the access that the options give."""
    return Access(settings.endpoint, settings.access_key, settings.secret_key)


def manifests(settings: BucketSettings) -> list[tuple[str, Manifest]]:
    """Return the folder and the manifest of each broker group that the URLs name.

    Raises ConfigError if there is none, and an `ObjectStoreError`.
    """

    async def found() -> list[tuple[str, Manifest]]:
        archives = [one for url in settings.urls for one in await open_archives(url.rstrip("/"), access_of(settings))]
        return [(archive.url, archive.manifest) for archive in archives]

    return asyncio.run(found())


def plan(
    settings: BucketSettings, rows: RowFilter, min_partitions: int, max_clock_step_back_ms: int
) -> list[BucketPart | BucketTable]:
    """Return the parts to read, one for each task.

    A segment is left out if no topic in it is wanted, or no message in it was stored within the times.  Of compacted
    topics what their queues keep from before the segments is read as well.  Raises ConfigError for a topic that no
    archive knows.
    """
    archives = manifests(settings)
    _check_topics(archives, rows.topics or frozenset())
    times, moment_ms = rows.times_to_read(), now_ms()
    kept: list[tuple[str, Manifest, SegmentEntry, frozenset[str]]] = []
    for url, manifest in archives:
        for segment in manifest.segments:
            is_late = segment.first_store_ms - max_clock_step_back_ms >= times.end_ms
            is_early = segment.last_store_ms + max_clock_step_back_ms < times.begin_ms
            topics = frozenset(
                topic
                for topic in segment.topics
                if rows.may_have(topic) and manifest.is_readable(segment, topic, moment_ms)
            )
            if topics and not is_late and not is_early:
                kept.append((url, manifest, segment, topics))
    tables = [
        BucketTable(settings, url, manifest.broker, entry, _begin_of(manifest, entry.topic, moment_ms))
        for url, manifest in archives
        for entry in manifest.compacted
        if entry.part.records and rows.may_have(entry.topic)
    ]
    if not kept:
        return [*tables]
    most = max(_MIN_TASK_BYTES, sum(segment.size_bytes for _, _, segment, _ in kept) // min_partitions)
    parts = [
        BucketPart(settings, url, manifest.broker, segment, topics, number, count)
        for url, manifest, segment, topics in kept
        for count in [-(-segment.size_bytes // most)]
        for number in range(count)
    ]
    return [*tables, *parts]


def _begin_of(manifest: Manifest, topic: str, moment_ms: int) -> int:
    """Return the physical offset from which on the segments have the topic's messages."""
    starts = (
        segment.start
        for segment in manifest.segments
        if topic in segment.topics and manifest.is_readable(segment, topic, moment_ms)
    )
    return min(starts, default=manifest.uploaded_end)


def _check_topics(archives: list[tuple[str, Manifest]], topics: frozenset[str]) -> None:
    found = {topic for _, manifest in archives for segment in manifest.segments for topic in segment.topics}
    known = sorted(found | {entry.topic for _, manifest in archives for entry in manifest.compacted})
    for topic in sorted(topics.difference(known)):
        raise ConfigError(
            f"no archive has the topic {topic!r}{nearest(topic, known)}; there are {', '.join(known[:10])}"
        )
