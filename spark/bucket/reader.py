"""Rows of a part of a segment: its log blocks, some on their way while others are decoded."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from spark.bucket.plan import BucketPart, BucketTable
from spark.decode.decoder import CHUNK_ROWS, DecodeOptions
from spark.read.compacted import CompactedPart, read_compacted
from spark.rows.chunk_rows import Rows, chunk_rows
from spark.rows.filters import RowFilter
from spark.wire.records import PulledChunk, PulledSegment
from store.repair.filler import FILLER_TOPIC
from store.tier.compacted_object import write_part
from store.tier.reads.steps import read_block, read_footer
from store.tier.remote_store import RemoteStore
from store.tier.segment_object import Footer, LogBlock, units_in

# Blocks of 1 MiB that are on their way.
_AHEAD: Final = 8
_FILLER: Final = FILLER_TOPIC.decode()
# Of a topic with a larger share of a segment's records, almost every block has some.
_SPARSE_SHARE: Final = 1 / 16


def read_rows(
    part: BucketPart | BucketTable, columns: Sequence[str], rows: RowFilter, options: DecodeOptions
) -> Iterator[Rows]:
    """Yield (one array per column, number of rows) for each chunk with rows that pass `rows`.

    Raises an `ObjectStoreError`: `Damaged` for a block that is not what was uploaded, `NotFound` for an object that was
    deleted since the query was planned.
    """
    if isinstance(part, BucketTable):
        return _read_table(part, columns, rows, options)
    return _read_part(part, columns, rows, options)


def _read_part(part: BucketPart, columns: Sequence[str], rows: RowFilter, options: DecodeOptions) -> Iterator[Rows]:
    with asyncio.Runner() as runner:
        objects = part.open()
        blocks = runner.run(_blocks(objects, part))
        for content in contents(runner, objects, part, blocks):
            segment = PulledSegment(f"{part.url}/{part.segment.key}", [content])
            for at in range(0, segment.positions.size, CHUNK_ROWS):
                chunk = PulledChunk(segment, segment.positions[at : at + CHUNK_ROWS], options)
                if part.segment.dropped or len(part.topics) < len(part.segment.topics):
                    _keep_topics(chunk, part.topics)
                yield from chunk_rows(chunk, columns, rows, options)


def _read_table(table: BucketTable, columns: Sequence[str], rows: RowFilter, options: DecodeOptions) -> Iterator[Rows]:
    # Its object has no index, so all of it comes to a folder.
    with TemporaryDirectory(prefix="sprocket-spark-") as folder:
        asyncio.run(write_part(table.open(), table.entry, Path(folder)))
        part = CompactedPart(table.broker_name, Path(folder), table.entry.part, table.log_begin)
        yield from read_compacted(part, columns, rows, options)


def _keep_topics(chunk: PulledChunk, topics: frozenset[str]) -> None:
    """Drop the records of other topics, and the fillers of messages that are not archived."""
    found = chunk.column("topic").to_pylist()
    chunk.filter(np.fromiter((topic in topics and topic != _FILLER for topic in found), np.bool_, len(found)))


async def _blocks(objects: RemoteStore, part: BucketPart) -> list[LogBlock]:
    """Return the blocks of the part, without those that have no record of its topics."""
    footer = await read_footer(objects, part.segment)
    blocks, count = footer.log, len(footer.log)
    mine = blocks[count * part.number // part.count : count * (part.number + 1) // part.count]
    runs = [run for run in footer.runs if footer.topics[run.topic] in part.topics]
    if sum(run.count for run in runs) > part.segment.records * _SPARSE_SHARE:
        return mine
    starts = await _starts(objects, part, footer)
    return [block for block in mine if np.searchsorted(starts, block.start) < np.searchsorted(starts, block.end)]


async def _starts(
    objects: RemoteStore, part: BucketPart, footer: Footer
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the physical offsets of the records of the part's topics, in order."""
    found = [np.empty(0, np.int64)]
    for number, runs in groupby(footer.runs, lambda run: run.block):
        wanted = [run for run in runs if footer.topics[run.topic] in part.topics]
        if wanted:
            content = await read_block(objects, part.segment, footer.queues[number])
            found += [units_in(run, content)["physical_offset"].astype(np.int64) for run in wanted]
    return np.sort(np.concatenate(found))


def contents(
    runner: asyncio.Runner, objects: RemoteStore, part: BucketPart, blocks: Sequence[LogBlock]
) -> Iterator[bytes]:
    """Yield the contents of blocks, in order."""

    async def begun(one: LogBlock) -> asyncio.Task[bytes]:
        task = asyncio.ensure_future(read_block(objects, part.segment, one))
        await asyncio.sleep(0)  # the request goes out now; its answer comes in a thread of the client
        return task

    async def ended(task: asyncio.Task[bytes]) -> bytes:
        return await task

    waiting = deque(runner.run(begun(one)) for one in blocks[:_AHEAD])
    for number in range(len(blocks)):
        found = runner.run(ended(waiting.popleft()))
        if number + _AHEAD < len(blocks):
            waiting.append(runner.run(begun(blocks[number + _AHEAD])))
        yield found
