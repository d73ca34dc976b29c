"""Records of a span that the ConsumeQueues of its topics point at, checked against the log.

A ConsumeQueue is derived from the log, so damage of a queue is no error if it is noticed.  Its entries are compared
with the records; where they do not match, the log is scanned instead.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark.decode.damage import Damage
from spark.decode.decoder import Chunk
from spark.files.consume_queue import BATCH, PLAIN, PRE_BLANK_SIZE, ConsumeQueue, Entries, open_queue, open_queues
from spark.files.segment import Positions, Segment
from spark.read.plan import Span
from sprocket.remoting.message.record import FIXED_IPV4, MIN_RECORD_BYTES
from store.scan.heads import heads_at


class IndexMisfit(Exception):
    """A ConsumeQueue does not match the log, or is inconsistent.

    `damage` are records that match no ConsumeQueue: there the log is wrong.
    """

    def __init__(self, reason: str, damage: Sequence[Damage] = ()) -> None:
        super().__init__(reason)
        self.damage = list(damage)


@dataclass(frozen=True)
class IndexedRecords:
    """Records in log order: physical offset, size, and topic (a number in `topics`), queue and offset by the index."""

    topics: pa.Array
    offsets: Positions
    sizes: Positions
    queue_ids: Positions
    queue_offsets: Positions
    topic_numbers: Positions

    def __len__(self) -> int:
        return int(self.offsets.size)

    def end_of(self, index: int) -> int:
        """Return the end, as a physical offset, of record number `index`."""
        return int(self.offsets[index] + self.sizes[index])

    def part(self, first: int, past: int) -> "IndexedRecords":
        chosen = slice(first, past)
        return IndexedRecords(
            self.topics,
            self.offsets[chosen],
            self.sizes[chosen],
            self.queue_ids[chosen],
            self.queue_offsets[chosen],
            self.topic_numbers[chosen],
        )

    def check(self, window: Segment) -> None:
        """Raise IndexMisfit unless each is a record of `window` with the queue and offset of the index."""
        positions = self.offsets - window.start
        if (positions + self.sizes > window.size).any() or window.size < FIXED_IPV4.size:
            raise IndexMisfit(f"an entry points after the end of {window.path}")
        heads = heads_at(window.data, positions)
        fits = (
            (heads["total_size"] == self.sizes)
            & (heads["physical_offset"] == self.offsets)
            & (heads["queue_id"] == self.queue_ids)
            & (heads["queue_offset"] == self.queue_offsets)
        )
        if not fits.all():
            at = int(self.offsets[np.argmin(fits)])
            raise IndexMisfit(f"a ConsumeQueue points at physical offset {at} for another record than is there")

    def check_topics(self, chunk: Chunk, store: Path) -> None:
        """Raise IndexMisfit unless the records of `chunk`, some of these, have the topics of their queues.

        `store` is the directory of the queues.
        """
        of_row = np.searchsorted(self.offsets, chunk.positions + chunk.segment.start)
        is_other = chunk.topic_numbers(self.topics) != self.topic_numbers[of_row]
        if is_other.any():
            first = of_row[np.argmax(is_other)]
            raise IndexMisfit(
                f"a ConsumeQueue of {self.topics[self.topic_numbers[first]]} points at physical offset "
                f"{self.offsets[first]} for a record of another topic",
                self._without_queue(chunk, np.flatnonzero(is_other), of_row, store),
            )

    def _without_queue(self, chunk: Chunk, others: Positions, of_row: Positions, store: Path) -> list[Damage]:
        """Return the damage among the rows `others`: records whose topic is wrong, while the queue is right.

        Without enabledAppendPropCRC no CRC covers the topic, so queries by topic would silently miss such a record.  A
        record is damaged if the queue of its topic does not have it, and the queue that has it holds its own topic
        elsewhere.
        """
        others = others[np.diff(chunk.positions[others], prepend=-1) > 0]  # a batch is one record
        queues = self.topic_numbers << 32 | self.queue_ids
        right = set(queues[np.setdiff1d(of_row, of_row[others])].tolist())
        single = {queue for queue, count in Counter(queues.tolist()).items() if count == 1}
        borne = chunk.column("topic").take(pa.array(others)).to_pylist()
        damage = []
        for index, topic in zip(of_row[others].tolist(), borne, strict=True):
            queue, offset = int(queues[index]), int(self.offsets[index])
            if (queue in right or queue in single) and not _has(store, topic, int(self.queue_ids[index]), offset):
                named = self.topics[int(self.topic_numbers[index])]
                why = f"its topic is {topic!r}, whose ConsumeQueue does not have it: that of {named} does"
                damage.append(Damage(offset, int(self.sizes[index]), why, chunk.segment.path))
        return damage


def _has(store: Path, topic: str, queue_id: int, physical_offset: int) -> bool:
    """Return whether this queue has an entry for the record there."""
    queues = (open_queue(store, topic, queue_id, kind) for kind in (PLAIN, BATCH))
    return any(queue is not None and queue.record_at_or_after(physical_offset) == physical_offset for queue in queues)


def indexed_records(span: Span) -> IndexedRecords:
    """Return the records of the span in the ConsumeQueues of its topics.

    Raises IndexMisfit for an inconsistent queue, and for a queue that was deleted after the plan: its records are still
    in the log.
    """
    try:
        return _indexed_records(span)
    except FileNotFoundError as error:
        raise IndexMisfit(f"{error.filename} was deleted after the query was planned") from error


def _indexed_records(span: Span) -> IndexedRecords:
    topics = sorted(span.topics or ())
    queues = [
        (number, queue)
        for number, topic in enumerate(topics)
        for kind in (PLAIN, BATCH)
        for queue in open_queues(span.store.root, topic, kind)
    ]
    gone = set(topics) - {queue.topic for _, queue in queues if queue.has_files}
    if gone:
        raise IndexMisfit(f"the ConsumeQueues of {', '.join(sorted(gone))} were deleted after the query was planned")
    named = pa.array(topics, pa.string())
    parts = [_of_queue(queue, number, span.begin, span.end) for number, queue in queues]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    records = IndexedRecords(named, *[column[order] for column in columns])
    if (np.diff(records.offsets) == 0).any():
        raise IndexMisfit("two ConsumeQueues point at the same record")
    return records


def _of_queue(queue: ConsumeQueue, topic_number: int, begin: int, end: int) -> tuple[Positions, ...]:
    first, past = queue.range_of(begin, end)
    entries = queue.entries(max(first - 1, queue.begin), min(past + 1, queue.end))
    offsets = entries["physical_offset"].astype(np.int64)
    low = first - max(first - 1, queue.begin)
    chosen = slice(low, low + past - first)
    in_range = (offsets >= begin) & (offsets < end)
    if (
        entries.size != min(past + 1, queue.end) - max(first - 1, queue.begin)
        or (np.diff(offsets) <= 0).any()
        or not in_range[chosen].all()
        or in_range.sum() != past - first
        or not queue.ends_in_zeros()
    ):
        raise IndexMisfit(f"{queue.directory} is not in the order of the log")
    entries = entries[chosen]
    sizes = entries["size"].astype(np.int64)
    if ((sizes < MIN_RECORD_BYTES) | (sizes == PRE_BLANK_SIZE)).any():
        raise IndexMisfit(f"{queue.directory} has an entry of an impossible size")
    queue_ids, topic_numbers = np.full(sizes.size, queue.queue_id), np.full(sizes.size, topic_number)
    return offsets[chosen], sizes, queue_ids, _queue_offsets(queue, entries, first), topic_numbers


def _queue_offsets(queue: ConsumeQueue, entries: Entries, first: int) -> Positions:
    names = queue.dtype.names or ()
    if "base_offset" in names:
        return entries["base_offset"].astype(np.int64)
    return np.arange(first, first + entries.size)
