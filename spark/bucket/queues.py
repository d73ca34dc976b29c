"""Archives by queue offset: the ranges of queues that the manifests say, and the rows of some of them.

Of a segment a task reads the footer, the blocks with entries of its queues, and the log blocks with their records.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from spark.bucket.plan import BucketPart, access_of, manifests, now_ms
from spark.bucket.reader import contents
from spark.decode.decoder import CHUNK_ROWS, DecodeOptions
from spark.options.bucket_options import BucketSettings
from spark.queues.data_loss import LostRange
from spark.queues.entries import OnLoss
from spark.queues.positions import QueueId
from spark.queues.ranges import QueueRange, QueueSelection
from spark.queues.source import Snapshot
from spark.rows.chunk_rows import Rows, chunk_rows
from spark.rows.filters import RowFilter
from spark.wire.records import PulledChunk, PulledSegment
from sprocket.common.errors import ConfigError
from store.queue.get_result import Boundary
from store.tier.manifest import SegmentEntry
from store.tier.object_store import NotFound, ObjectStore
from store.tier.reads.archive_view import ArchiveView
from store.tier.reads.queue_ranges import Piece, QueueRanges
from store.tier.reads.queue_reads import offset_by_time
from store.tier.reads.steps import read_block, read_footer, read_part, result_of
from store.tier.remote_store import open_store
from store.tier.segment_object import Footer, units_in

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Archive:
    """One broker group's archive, as its newest manifest says."""

    url: str
    ranges: QueueRanges


@dataclass(frozen=True)
class _SegmentRead:
    """Ranges of queues in one segment."""

    part: BucketPart
    ranges: tuple[QueueRange, ...]


class BucketQueues:
    """Queues that `selection` selects, in the archives of `settings`."""

    def __init__(self, settings: BucketSettings, selection: QueueSelection) -> None:
        self._settings = settings
        self._selection = selection
        self._archives: dict[str, _Archive] = {}

    def snapshot(self, strict: bool = True) -> Snapshot:
        """Return what is archived now.

        Raises ConfigError if two archives have a broker of the same name, and an `ObjectStoreError`.
        """
        moment_ms = now_ms()
        found: dict[str, _Archive] = {}
        for url, manifest in manifests(self._settings):
            name = manifest.broker
            if name in found:
                raise ConfigError(f"{url} and {found[name].url} both are of a broker {name}: read them by two queries")
            known = self._archives.get(name)
            if known is None or known.url != url or known.ranges.manifest.number != manifest.number:
                view = ArchiveView(self._objects(url))
                asyncio.run(view.adopt(manifest))
                known = _Archive(url, view.ranges)
            found[name] = known
        self._archives = found
        ranges: dict[QueueId, tuple[int, int]] = {}
        for name, archive in found.items():
            for topic, queue_id in archive.ranges.ends():
                queue = QueueId(name, topic, queue_id)
                if self._selection.wants(queue) and (pieces := archive.ranges.readable(topic, queue_id, moment_ms)):
                    ranges[queue] = pieces[0].first, pieces[-1].end
        return Snapshot(tuple(sorted(found)), ranges)

    def _objects(self, url: str) -> ObjectStore:
        return open_store(url, access_of(self._settings))

    def at_time(self, queue: QueueId, milliseconds: int, step_back_ms: int, *, is_end: bool = False) -> int:
        """Return the offset found by a search that assumes that store timestamps never step back.

        Raises an `ObjectStoreError`.
        """
        archive = self._archives[queue.broker_name]
        steps = offset_by_time(archive.ranges, queue.topic, queue.queue_id, milliseconds, Boundary.LOWER, now_ms())
        found = asyncio.run(result_of(steps, partial(read_part, self._objects(archive.url))))
        return archive.ranges.ends()[queue.topic, queue.queue_id] if found is None else found

    def tasks(self, packs: Sequence[Sequence[QueueRange]]) -> "list[BucketTask]":
        """Raise ConfigError for a range of a broker without an archive."""
        if not {each.queue.broker_name for pack in packs for each in pack} <= self._archives.keys():
            self.snapshot()
        return [self._task(pack) for pack in packs]

    def _task(self, ranges: Sequence[QueueRange]) -> "BucketTask":
        moment_ms = now_ms()
        lost: list[LostRange] = []
        wanted: dict[tuple[str, int], tuple[_Archive, SegmentEntry, list[QueueRange]]] = {}
        for each in ranges:
            archive = self._archives.get(each.queue.broker_name)
            if archive is None:
                raise ConfigError(f"the batch reads {each.queue.broker_name}, and path has no archive of that name now")
            at = each.begin
            for piece in _overlapping(archive.ranges.readable(each.queue.topic, each.queue.queue_id, moment_ms), each):
                begin, end = max(each.begin, piece.first), min(each.end, piece.end)
                if begin > at:
                    lost.append(LostRange(each.queue, at, begin, "not archived"))
                key = each.queue.broker_name, piece.segment.start
                wanted.setdefault(key, (archive, piece.segment, []))[2].append(QueueRange(each.queue, begin, end))
                at = end
            if at < each.end:
                lost.append(LostRange(each.queue, at, each.end))
        reads = tuple(self._read(*wanted[key]) for key in sorted(wanted))
        return BucketTask(tuple(ranges), reads, tuple(lost))

    def _read(self, archive: _Archive, segment: SegmentEntry, ranges: list[QueueRange]) -> _SegmentRead:
        broker, topics = archive.ranges.manifest.broker, frozenset(each.queue.topic for each in ranges)
        return _SegmentRead(BucketPart(self._settings, archive.url, broker, segment, topics, 0, 1), tuple(ranges))

    def close(self) -> None:
        """Do nothing: no connection stays open."""


def _overlapping(pieces: Sequence[Piece], wanted: QueueRange) -> Iterator[Piece]:
    first = bisect_right(pieces, wanted.begin, key=lambda piece: piece.end)
    for piece in pieces[first:]:
        if piece.first >= wanted.end:
            return
        yield piece


@dataclass(frozen=True)
class BucketTask:
    """Ranges of archived queues for one task, segment by segment; `lost` are those that no segment has."""

    ranges: Sequence[QueueRange]
    reads: tuple[_SegmentRead, ...]
    lost: tuple[LostRange, ...]

    def read(self, columns: Sequence[str], rows: RowFilter, decode: DecodeOptions, on_loss: OnLoss) -> Iterator[Rows]:
        if self.lost:
            on_loss(list(self.lost))
        with asyncio.Runner() as runner:
            for each in self.reads:
                options = replace(decode, broker_name=each.part.broker_name)
                try:
                    places = runner.run(_places(each.part.open(), each))
                    yield from _rows(runner, each.part, places, columns, rows, options)
                except NotFound:
                    on_loss([LostRange(one.queue, one.begin, one.end) for one in each.ranges])


@dataclass(frozen=True)
class _Places:
    """Physical offsets of wanted records, in order, and the queue offsets [begin, end) that are wanted of each."""

    footer: Footer
    starts: Integers
    begins: Integers
    ends: Integers


async def _places(objects: ObjectStore, read: _SegmentRead) -> _Places:
    segment = read.part.segment
    footer = await read_footer(objects, segment)
    found = [np.empty((3, 0), np.int64)]
    for each in read.ranges:
        for run in footer.runs_of(each.queue.topic, each.queue.queue_id):
            if run.end <= each.begin or run.first >= each.end:
                continue
            units = units_in(run, await read_block(objects, segment, footer.queues[run.block]))
            firsts = units["base_offset"].astype(np.int64) if run.is_batch else run.first + np.arange(len(units))
            counts = units["batch_size"].astype(np.int64) if run.is_batch else np.ones(len(units), np.int64)
            wanted = (firsts < each.end) & (firsts + counts > each.begin)
            starts = units["physical_offset"].astype(np.int64)[wanted]
            bounds = np.full(starts.size, each.begin), np.full(starts.size, each.end)
            found.append(np.stack((starts, *bounds)))
    joined = np.concatenate(found, axis=1)
    return _Places(footer, *joined[:, np.argsort(joined[0], kind="stable")])


def _rows(
    runner: asyncio.Runner,
    part: BucketPart,
    places: _Places,
    columns: Sequence[str],
    rows: RowFilter,
    options: DecodeOptions,
) -> Iterator[Rows]:
    bounds = [np.searchsorted(places.starts, (block.start, block.end)).tolist() for block in places.footer.log]
    blocks = [block for block, (first, past) in zip(places.footer.log, bounds, strict=True) if first < past]
    for content in contents(runner, part.open(), part, blocks):
        segment = PulledSegment(f"{part.url}/{part.segment.key}", [content])
        at = np.minimum(np.searchsorted(places.starts, segment.physical_offsets), places.starts.size - 1)
        positions = segment.positions[places.starts[at] == segment.physical_offsets]
        at = at[places.starts[at] == segment.physical_offsets]
        for first in range(0, positions.size, CHUNK_ROWS):
            some = slice(first, first + CHUNK_ROWS)
            chunk = PulledChunk(segment, positions[some], options)
            if segment.has_batches:  # of a record of several messages, some may be outside of the range
                record = at[some][np.searchsorted(positions[some], chunk.positions)]
                offsets = chunk.queue_offsets().to_numpy()
                chunk.filter((offsets >= places.begins[record]) & (offsets < places.ends[record]))
            yield from chunk_rows(chunk, columns, rows, options)
