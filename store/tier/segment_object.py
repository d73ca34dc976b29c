"""Form of a segment object: one part of the log, readable in pieces by ranged reads.

An object is a sequence of blocks, each one zstd frame, then the footer::

    log blocks      about 1 MiB of the log each, whole records; together they are the log from start to records_end
    queue blocks    ConsumeQueue entries, grouped by topic and queue
    key blocks      index entries, sorted by hash
    footer          zstd of MessagePack (`Footer`); its size is in the manifest
    trailer         magic u64, size of the footer u32, big-endian, for tools that have no manifest

A log block is the bytes of the log, with two exceptions.  A record of a topic that is not archived is replaced by a
filler of the same size (`store.repair.filler`), which every reader of a log steps over.  The blank at the end of a
CommitLog file is left out: from `Footer.records_end` on there are no records up to `Footer.end`.  So a record at
physical offset x is at byte ``x - block.start`` of its block, and blocks put one after another are a CommitLog file.

Blocks are checked by hash before they are expanded.  The footer has their hashes, and the manifest that of the footer.
The reading side is here and is pure; `store.tier.segment_writer` writes.
"""

import hashlib
import struct
from bisect import bisect_right
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from store.layout import BATCH_CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_DTYPE
from store.tier.compression import decompress, max_packed_bytes, short_hash
from store.tier.manifest import MAX_FOOTER_BYTES, QueueRange
from store.tier.object_store import Damaged

TRAILER: Final = struct.Struct(">QI")
MAGIC: Final = int.from_bytes(b"SPRKTIER", "big")
FORMAT: Final = 1
# Limit of one expanded block: a block has more than 1 MiB only for a record that is larger.
MAX_BLOCK_BYTES: Final = 512 << 20
MAX_BLOCKS: Final = 1 << 20

# One entry of a key block: the hash of "topic#key" as in RocketMQ's index, the record, and its store time, ms.
KEY_DTYPE: Final = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("store_timestamp", ">i8")])
Entries = npt.NDArray[np.void]


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Position of a block in the object, its size there, its size expanded, and the hash of its bytes there."""

    position: int
    size_bytes: int
    raw_bytes: int
    sha: bytes


class LogBlock(msgspec.Struct, frozen=True, array_like=True):
    """The log from physical offset `start` to `end`."""

    start: int
    end: int
    block: Block


class QueueRun(msgspec.Struct, frozen=True, array_like=True):
    """Entries of one queue, in order: `count` units from unit `first_unit` of queue block `block` on.

    `topic` is an index in `Footer.topics`.  The run has the queue offsets `first` to before `end`.  With `is_batch`
    units are `BATCH_CONSUME_QUEUE_DTYPE` and may skip offsets; else `CONSUME_QUEUE_DTYPE`, one for each offset.
    """

    topic: int
    queue_id: int
    first: int
    end: int
    block: int
    first_byte: int
    count: int
    is_batch: bool
    first_store_ms: int
    last_store_ms: int

    @property
    def dtype(self) -> np.dtype[np.void]:
        """Type of the units."""
        return BATCH_CONSUME_QUEUE_DTYPE if self.is_batch else CONSUME_QUEUE_DTYPE


class KeyBlock(msgspec.Struct, frozen=True, array_like=True):
    """Index entries with hashes from `first_hash` to `last_hash`; blocks may overlap."""

    first_hash: int
    last_hash: int
    block: Block


class Footer(msgspec.Struct, frozen=True):
    """Where everything is in the object.  `log` is in order and has no gaps; `runs` of one queue are in order."""

    format: int
    start: int
    end: int
    records_end: int
    log: list[LogBlock]
    topics: list[str]
    queues: list[Block]
    runs: list[QueueRun]
    keys: list[KeyBlock]

    def block_of(self, physical_offset: int) -> LogBlock | None:
        """Return the log block that has `physical_offset`; None if no record is there."""
        index = bisect_right(self.log, physical_offset, key=lambda block: block.start) - 1
        return self.log[index] if index >= 0 and physical_offset < self.log[index].end else None

    def queue_ranges(self) -> list[QueueRange]:
        """Return the queues of the segment, for the manifest."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for run in self.runs:
            first, end = found.get((run.topic, run.queue_id), (run.first, run.end))
            found[run.topic, run.queue_id] = min(first, run.first), max(end, run.end)
        return [QueueRange(self.topics[topic], queue_id, *ends) for (topic, queue_id), ends in sorted(found.items())]

    def runs_of(self, topic: str, queue_id: int) -> list[QueueRun]:
        """Return the runs of one queue, in order."""
        if topic not in self.topics:
            return []
        index = self.topics.index(topic)
        return [run for run in self.runs if run.topic == index and run.queue_id == queue_id]

    def key_blocks_of(self, key_hash: int) -> list[KeyBlock]:
        """Return the key blocks that may have `key_hash` (`store.index.key_scan.index_hash`)."""
        return [block for block in self.keys if block.first_hash <= key_hash <= block.last_hash]


def open_footer(tail: bytes, object_bytes: int, sha256: str | None = None) -> Footer:
    """Return the footer in `tail`, the last `SegmentEntry.footer_bytes` bytes of an object.

    `sha256` is `SegmentEntry.footer_sha256`; a tool without a manifest has none.  Raises `Damaged`.
    """
    if sha256 is not None and hashlib.sha256(tail).hexdigest() != sha256:
        raise Damaged("segment object: its footer is not what was written there")
    if len(tail) < TRAILER.size:
        raise Damaged(f"segment object: {len(tail)} bytes are too few for a footer")
    magic, size_bytes = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)
    if magic != MAGIC or size_bytes != len(tail) - TRAILER.size:
        raise Damaged("segment object: does not end with a footer")
    raw = decompress(tail[:size_bytes], MAX_FOOTER_BYTES, "segment object: footer")
    try:
        footer = msgspec.msgpack.decode(raw, type=Footer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"segment object: footer: {error}") from error
    _check(footer, object_bytes - len(tail))
    return footer


def units_in(run: QueueRun, raw: bytes) -> Entries:
    """Return the queue entries of `run` from its expanded block, ``footer.queues[run.block]``."""
    units: Entries = np.frombuffer(raw, run.dtype, run.count, run.first_byte)
    return units


def all_keys(raw: bytes) -> Entries:
    """Return the entries (`KEY_DTYPE`) of an expanded key block, by hash, equal ones by offset.  Raises `Damaged`."""
    if len(raw) % KEY_DTYPE.itemsize:
        raise Damaged(f"segment object: key block of {len(raw)} bytes has no whole number of entries")
    entries: Entries = np.frombuffer(raw, KEY_DTYPE)
    return entries


def keys_in(entries: Entries, key_hash: int) -> Entries:
    """Return the entries with `key_hash`."""
    hashes = entries["key_hash"]
    first, end = np.searchsorted(hashes, key_hash, "left"), np.searchsorted(hashes, key_hash, "right")
    return entries[int(first) : int(end)]


def open_block(block: Block, content: bytes) -> bytes:
    """Return an expanded block; several runs may be in one.  Raises `Damaged`."""
    if len(content) != block.size_bytes or short_hash(content) != block.sha:
        raise Damaged(f"segment object: the block at {block.position} is not what was written there")
    raw = decompress(content, block.raw_bytes, f"segment object: block at {block.position}")
    if len(raw) != block.raw_bytes:
        raise Damaged(f"segment object: the block at {block.position} expands to {len(raw)} bytes")
    return raw


def _check(footer: Footer, content_bytes: int) -> None:
    """Raise `Damaged` unless all that readers rely on holds."""
    if footer.format != FORMAT:
        raise Damaged(f"segment object: has format {footer.format}, this version reads {FORMAT}")
    if not 0 <= footer.start <= footer.records_end <= footer.end:
        raise Damaged("segment object: its offsets are out of range")
    blocks = [*(one.block for one in footer.log), *footer.queues, *(one.block for one in footer.keys)]
    if len(blocks) > MAX_BLOCKS:
        raise Damaged(f"segment object: names more than {MAX_BLOCKS} blocks")
    for block in blocks:
        is_inside = block.position >= 0 and 0 < block.size_bytes <= content_bytes - block.position
        is_small = 0 < block.raw_bytes <= MAX_BLOCK_BYTES and block.size_bytes <= max_packed_bytes(block.raw_bytes)
        if not is_inside or not is_small:
            raise Damaged(f"segment object: a block at {block.position} is out of range")
    at = footer.start
    for one in footer.log:
        if one.start != at or one.end - one.start != one.block.raw_bytes:
            raise Damaged(f"segment object: log block {one.start} does not continue {at}")
        at = one.end
    if at != footer.records_end:
        raise Damaged(f"segment object: its log ends at {at}, not at {footer.records_end}")
    for run in footer.runs:
        is_named = 0 <= run.topic < len(footer.topics) and 0 <= run.block < len(footer.queues)
        if not is_named or run.count <= 0 or run.first_byte < 0 or not 0 <= run.first < run.end:
            raise Damaged("segment object: a run of queue entries is out of range")
        if run.first_byte + run.count * run.dtype.itemsize > footer.queues[run.block].raw_bytes:
            raise Damaged("segment object: a run of queue entries is longer than its block")
        if not run.is_batch and run.end - run.first != run.count:
            raise Damaged("segment object: a run of queue entries does not have one for each offset")
