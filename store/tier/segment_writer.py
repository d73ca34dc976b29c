"""Writer of a segment object, from a part of the log, in one pass and in bounded memory.

It runs in a worker thread.  It reads the log through a function that copies, about 1 MiB at a time, and checks every
record as recovery does: damage is never uploaded.  Queue and key entries are kept until a limit, then written as
blocks between those of the log.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from sprocket.common.errors import StoreError
from sprocket.remoting.message.properties import INNER_NUM, encoded_name
from sprocket.remoting.message.topic_names import LIGHT_QUEUE_ID
from store.index.key_scan import entries_of
from store.layout import BATCH_CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_DTYPE
from store.queue.inner_batch import message_count
from store.queue.multi_dispatch import NAMES, dispatches, places
from store.record.record import TagsCodes
from store.repair.filler import filler
from store.scan.columns import Integers
from store.scan.queue_codes import queue_codes_of
from store.scan.record_batch import RecordBatch
from store.scan.record_fields import store_timestamps
from store.scan.record_scan import UNFINISHED, RecordScan, ScanEnd, Stop
from store.tier.compression import compressor, short_hash
from store.tier.manifest import MAX_LISTED_QUEUES, QueueRange
from store.tier.segment_object import (
    FORMAT,
    KEY_DTYPE,
    MAGIC,
    TRAILER,
    Block,
    Entries,
    Footer,
    KeyBlock,
    LogBlock,
    QueueRun,
)

BLOCK_BYTES: Final = 1 << 20
# Entries kept before they are written as blocks: 20 bytes each, and about as much again to sort them.
_HELD_ENTRIES: Final = 512 * 1024
_BLOCK_ENTRIES: Final = 64 * 1024
# As many as a block has of small records: the arrays of a batch cost the same for any number.
_BATCH_RECORDS: Final = 16 * 1024
_INNER_NUM: Final = encoded_name(INNER_NUM)
# With this both that name and `NAMES` begin.
_INNER: Final = b"INNER_"
_DROPPED_TEXT: Final = b"The message that was here is not archived. "
# One held queue entry: where it goes, then the fields of both kinds of units.
_HELD: Final = np.dtype(
    [("topic", "i4"), ("queue_id", "i4"), ("queue_offset", "i8"), ("physical_offset", "i8"), ("size", "i4"),
     ("tags_code", "i8"), ("store_timestamp", "i8"), ("count", "i4")]
)  # fmt: skip
_SINGLE: Final = 0  # the count of an entry that is no unit of a batch queue

# Returns a copy of at most so many bytes of the log from an offset on, within one CommitLog file.
ReadLog = Callable[[int, int], bytes]


class LogDamaged(StoreError):
    """A part of the log that should be uploaded holds bytes that are not a record."""


class Kept(msgspec.Struct, frozen=True):
    """Which topics are archived: `topics`; None: all."""

    topics: frozenset[str] | None = None

    def __call__(self, topic: str) -> bool:
        """Return whether `topic` is archived."""
        return self.topics is None or topic in self.topics


class LogPart(NamedTuple):
    """A part of the log to upload: from `start`, where a record begins, to `end`, within one CommitLog file.

    `file_end` is the end of that file.  If `end` is before it, the part ends with the last record before `end`.
    """

    start: int
    end: int
    file_end: int


class Written(NamedTuple):
    """What was written, for the manifest.  See `store.tier.manifest.SegmentEntry`."""

    end: int
    size_bytes: int
    sha256: str
    log_sha256: str
    footer_bytes: int
    footer_sha256: str
    records: int
    dropped: int
    first_store_ms: int
    last_store_ms: int
    topics: list[str]
    queues: list[QueueRange] | None


class SegmentPieces(Protocol):
    """One object.  Iterate once over its bytes, in worker threads, then ask `written`.

    The iteration raises `LogDamaged`, or a `StoreError` if the log cannot be read.
    """

    def __iter__(self) -> Iterator[bytes]: ...

    @property
    def written(self) -> Written:
        """What was written; only after the iteration has ended."""
        ...

    def hurry(self) -> None:
        """Go on without regard for other work, from now on.  For the owner's thread."""
        ...


class SegmentWriter:
    """Writer of one object: `SegmentPieces` in this process.

    `keeps` says which topics are archived; records of others are replaced.
    """

    def __init__(
        self,
        part: LogPart,
        read: ReadLog,
        keeps: Callable[[str], bool],
        tags_codes: TagsCodes,
        *,
        block_bytes: int = BLOCK_BYTES,
        held_entries: int = _HELD_ENTRIES,
    ) -> None:
        self._part, self._read, self._keeps, self._tags_codes = part, read, keeps, tags_codes
        self._compress = compressor()
        self._block_bytes, self._held_entries = block_bytes, held_entries
        self._position = 0
        self._hash, self._log_hash = hashlib.sha256(), hashlib.sha256()
        self._log: list[LogBlock] = []
        self._queues: list[Block] = []
        self._runs: list[QueueRun] = []
        self._keys: list[KeyBlock] = []
        self._topics: dict[str, int] = {}
        self._held: list[Entries] = []
        self._held_keys: list[Entries] = []
        self._held_count = 0
        self._records = self._dropped = 0
        self._first_ms = self._last_ms = 0
        self._written: Written | None = None

    @property
    def written(self) -> Written:
        """What was written; only after the iteration has ended."""
        assert self._written is not None, "the object is not complete"
        return self._written

    def hurry(self) -> None:
        """Do nothing: it has no other priority than this process."""

    def __iter__(self) -> Iterator[bytes]:
        """Return the bytes of the object, block by block.  Raises `LogDamaged`, or what the read raises."""
        part, at = self._part, self._part.start
        while at < part.end:
            content, end, is_last = self._whole_records(at)
            if content:
                packed = self._block(content)
                self._log.append(LogBlock(at, at + len(content), packed[0]))
                yield packed[1]
            at = end
            if self._held_count >= self._held_entries:
                yield from self._flush()
            if is_last:
                break
        yield from self._flush()
        footer = Footer(
            FORMAT, part.start, at, self._log[-1].end if self._log else part.start, self._log, list(self._topics),
            self._queues, self._runs, self._keys,
        )  # fmt: skip
        packed_footer = self._compress(msgspec.msgpack.encode(footer))
        tail = packed_footer + TRAILER.pack(MAGIC, len(packed_footer))
        self._count(tail)
        ranges = footer.queue_ranges()
        self._written = Written(
            at, self._position, self._hash.hexdigest(), self._log_hash.hexdigest(), len(tail),
            hashlib.sha256(tail).hexdigest(), self._records, self._dropped, self._first_ms, self._last_ms,
            list(self._topics), ranges if len(ranges) <= MAX_LISTED_QUEUES else None,
        )  # fmt: skip
        yield tail

    # The log

    def _whole_records(self, at: int) -> tuple[memoryview, int, bool]:
        """Return the next records, where to continue, and whether the part ends there."""
        part, wanted = self._part, self._block_bytes
        while True:
            content = self._read(at, min(wanted, part.end - at))
            if len(content) < min(wanted, part.end - at):
                raise LogDamaged(f"the log has no bytes at {at + len(content)}, but they should be uploaded")
            scan = RecordScan(memoryview(content), at, part.file_end - at, check_crc=True, batch_records=_BATCH_RECORDS)
            taken, fillers = 0, list[tuple[int, bytes]]()
            for batch in scan:
                fillers += self._take(batch, content, at)
                taken = batch.end_offset - at
            records = _replaced(content, at, fillers)[:taken]
            stop, reached = scan.end, at + len(content) >= part.end
            if stop.stop is Stop.BLANK:
                return records, part.file_end, True
            if stop.stop not in UNFINISHED:
                raise LogDamaged(f"physical offset {at + stop.position}: {stop.reason}")
            if taken or reached:
                return records, at + taken, reached
            wanted = self._larger(stop, wanted)

    def _larger(self, stop: ScanEnd, wanted: int) -> int:
        if wanted >= self._part.file_end - self._part.start:
            raise LogDamaged(f"physical offset {self._part.start}: {stop.reason}")
        return wanted * 2

    def _take(self, batch: RecordBatch, content: bytes, at: int) -> list[tuple[int, bytes]]:
        """Note the records of `batch`.  Return what replaces those that are not archived, by physical offset.

        `content` is the log from `at` on.
        """
        first, last = int(batch.positions[0]), int(batch.positions[-1] + batch.sizes[-1])
        # The hash is that of the log as it is, before records are replaced.
        self._log_hash.update(batch.data[first:last])
        kept = np.array([self._keeps(topic) for topic in batch.topics], np.bool_)[batch.topic_index]
        times = store_timestamps(batch)
        records = int(np.count_nonzero(kept))
        self._dropped += len(batch) - records
        if records:
            self._records += records
            self._first_ms = self._first_ms or int(times[kept][0])
            self._last_ms = max(self._last_ms, int(times[kept].max()))
            place = batch.begin_offset - at, batch.end_offset - at
            # Searched at once: few logs have any.
            is_unusual = content.find(_INNER, *place) >= 0
            self._hold(batch, kept, times, is_unusual=is_unusual)
        return [
            (offset, filler(offset, size, int(times[record]), _DROPPED_TEXT))
            for record in np.flatnonzero(~kept).tolist()
            for offset, size in [(batch.base + int(batch.positions[record]), int(batch.sizes[record]))]
        ]

    # Queue and key entries

    def _hold(self, batch: RecordBatch, kept: npt.NDArray[np.bool_], times: Integers, *, is_unusual: bool) -> None:
        """Hold the entries of the records `kept`."""
        # A name is noted only if the topic is archived: names can be secrets too.
        numbers = np.array([self._number_of(topic) if self._keeps(topic) else -1 for topic in batch.topics], np.int32)
        records = np.flatnonzero(kept & batch.in_consume_queue)
        held = np.zeros(records.size, _HELD)
        held["topic"], held["queue_id"] = numbers[batch.topic_index[records]], batch.queue_ids[records]
        held["queue_offset"], held["size"] = batch.queue_offsets[records], batch.sizes[records]
        held["physical_offset"] = batch.positions[records] + batch.base
        held["tags_code"] = queue_codes_of(batch, self._tags_codes)[records]
        held["store_timestamp"] = times[records]
        if is_unusual:
            held = np.concatenate((held, self._unusual(batch, records.tolist(), held)))
        self._held.append(held)
        entries = entries_of(batch)
        is_kept = kept[np.searchsorted(batch.positions + batch.base, entries.physical_offsets)]
        keys = np.zeros(int(np.count_nonzero(is_kept)), KEY_DTYPE)
        keys["key_hash"], keys["physical_offset"] = entries.key_hashes[is_kept], entries.physical_offsets[is_kept]
        keys["store_timestamp"] = entries.store_timestamps[is_kept]
        self._held_keys.append(keys)
        self._held_count += held.size + keys.size

    def _number_of(self, topic: str) -> int:
        return self._topics.setdefault(topic, len(self._topics))

    def _unusual(self, batch: RecordBatch, records: list[int], held: Entries) -> Entries:
        """Mark the units of batch queues in `held`, and return those of light queues that records enter as well."""
        light = []
        for row, record in enumerate(records):
            properties = batch.properties(record)
            if _INNER_NUM in properties:
                held["count"][row] = message_count(properties)
            if NAMES in properties and dispatches(batch.topics[batch.topic_index[record]]):
                for name, offset in places(properties):
                    copy = held[row].copy()
                    copy["topic"] = self._number_of(name)
                    copy["queue_id"], copy["queue_offset"], copy["count"] = LIGHT_QUEUE_ID, offset, _SINGLE
                    light.append(copy)
        return np.array(light, _HELD)

    def _flush(self) -> Iterator[bytes]:
        """Write the held entries as blocks."""
        held = np.concatenate(self._held) if self._held else np.empty(0, _HELD)
        keys = np.concatenate(self._held_keys) if self._held_keys else np.empty(0, KEY_DTYPE)
        self._held, self._held_keys, self._held_count = [], [], 0
        held = held[np.lexsort((held["physical_offset"], held["queue_id"], held["topic"]))]
        for first in range(0, held.size, _BLOCK_ENTRIES):
            yield self._queue_block(held[first : first + _BLOCK_ENTRIES])
        keys = keys[np.lexsort((keys["physical_offset"], keys["key_hash"]))]
        for first in range(0, keys.size, _BLOCK_ENTRIES):
            # Joined arrays have the machine's byte order.
            part = keys[first : first + _BLOCK_ENTRIES].astype(KEY_DTYPE)
            block, packed = self._block(part.tobytes())
            self._keys.append(KeyBlock(int(part["key_hash"][0]), int(part["key_hash"][-1]), block))
            yield packed

    def _queue_block(self, held: Entries) -> bytes:
        """Return one queue block, and note its runs."""
        # A run ends where the queue or the kind of unit changes, or where an offset does not follow the one before.
        ends = np.ones(held.size, np.bool_)
        same = np.ones(held.size - 1, np.bool_)
        is_batch = held["count"] != _SINGLE
        for column in (held["topic"], held["queue_id"], is_batch):
            same &= column[1:] == column[:-1]
        offsets = held["queue_offset"]
        ends[:-1] = ~(same & (offsets[1:] - offsets[:-1] == np.maximum(held["count"], 1)[:-1]))
        pieces, position, first = [], 0, 0
        for last in np.flatnonzero(ends).tolist():
            units = _units(held[first : last + 1], is_batch=bool(is_batch[first]))
            head, tail = held[first], held[last]
            self._runs.append(
                QueueRun(
                    int(head["topic"]), int(head["queue_id"]), int(head["queue_offset"]),
                    int(tail["queue_offset"]) + max(int(tail["count"]), 1), len(self._queues), position, len(units),
                    bool(is_batch[first]), int(head["store_timestamp"]), int(tail["store_timestamp"]),
                )
            )  # fmt: skip
            pieces.append(units.tobytes())
            position += len(pieces[-1])
            first = last + 1
        block, packed = self._block(b"".join(pieces))
        self._queues.append(block)
        return packed

    def _block(self, content: bytes | memoryview) -> tuple[Block, bytes]:
        packed = self._compress(content)
        block = Block(self._position, len(packed), len(content), short_hash(packed))
        self._count(packed)
        return block, packed

    def _count(self, written: bytes) -> None:
        self._position += len(written)
        self._hash.update(written)


def _replaced(content: bytes, at: int, fillers: list[tuple[int, bytes]]) -> memoryview:
    """Return `content`, the log from `at` on, with `fillers` at their physical offsets."""
    if not fillers:
        return memoryview(content)
    changed = bytearray(content)
    for offset, new in fillers:
        changed[offset - at : offset - at + len(new)] = new
    return memoryview(changed)


def _units(held: Entries, *, is_batch: bool) -> Entries:
    """Return the units of one run as the queue's file has them."""
    dtype = BATCH_CONSUME_QUEUE_DTYPE if is_batch else CONSUME_QUEUE_DTYPE
    units: Entries = np.zeros(held.size, dtype)
    for name in ("physical_offset", "size", "tags_code"):
        units[name] = held[name]
    if is_batch:
        units["store_timestamp"], units["base_offset"] = held["store_timestamp"], held["queue_offset"]
        units["batch_size"], units["compacted_offset"] = held["count"], -1
    return units
