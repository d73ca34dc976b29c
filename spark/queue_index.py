"""The records of a span that the ConsumeQueues of its topics point at, checked against the log.

A ConsumeQueue is derived from the log.  One that is damaged is not worth an error, as long as it is noticed: what it
says is compared with the records themselves, and where it does not fit the log is read instead.
"""

from dataclasses import dataclass

import numpy as np

from remoting.message_record import FIXED_IPV4
from spark.consume_queue import BATCH, PLAIN, PRE_BLANK_SIZE, ConsumeQueue, Entries, open_queues
from spark.plan import Span
from spark.segment import MIN_RECORD_BYTES, Positions, Segment
from store.layout import RECORD_FIXED_DTYPE


class IndexMisfit(Exception):
    """A ConsumeQueue does not fit the log, or itself."""


@dataclass(frozen=True)
class IndexedRecords:
    """Records in the order of the log: physical offset, bytes, and the place in their topic that the index says."""

    offsets: Positions
    sizes: Positions
    queue_ids: Positions
    queue_offsets: Positions

    def __len__(self) -> int:
        return int(self.offsets.size)

    def end_of(self, index: int) -> int:
        """Physical offset behind the record number `index`."""
        return int(self.offsets[index] + self.sizes[index])

    def part(self, first: int, past: int) -> "IndexedRecords":
        chosen = slice(first, past)
        return IndexedRecords(
            self.offsets[chosen], self.sizes[chosen], self.queue_ids[chosen], self.queue_offsets[chosen]
        )

    def check(self, window: Segment) -> None:
        """Raises IndexMisfit unless each is a record of `window` that says of itself what the index says of it."""
        positions = self.offsets - window.start
        if (positions + self.sizes > window.size).any() or window.size < FIXED_IPV4.size:
            raise IndexMisfit(f"an entry points behind the end of {window.path}")
        kind = RECORD_FIXED_DTYPE
        every = np.ndarray((window.size - kind.itemsize + 1,), f"V{kind.itemsize}", window.data, 0, (1,))
        heads = every[positions].view(kind)
        fits = (
            (heads["total_size"] == self.sizes)
            & (heads["physical_offset"] == self.offsets)
            & (heads["queue_id"] == self.queue_ids)
            & (heads["queue_offset"] == self.queue_offsets)
        )
        if not fits.all():
            at = int(self.offsets[np.argmin(fits)])
            raise IndexMisfit(f"a ConsumeQueue points at physical offset {at} for another record than is there")


def indexed_records(span: Span) -> IndexedRecords:
    """What the ConsumeQueues of the span's topics say of it.  Raises IndexMisfit for a queue that cannot be right."""
    topics = sorted(span.topics or ())
    queues = [
        queue for topic in topics for kind in (PLAIN, BATCH) for queue in open_queues(span.store.root, topic, kind)
    ]
    parts = [_of_queue(queue, span.begin, span.end) for queue in queues]
    if not parts:
        return IndexedRecords(*[np.empty(0, np.int64)] * 4)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return IndexedRecords(*[column[order] for column in columns])


def _of_queue(queue: ConsumeQueue, begin: int, end: int) -> tuple[Positions, Positions, Positions, Positions]:
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
    return offsets[chosen], sizes, np.full(sizes.size, queue.queue_id), _queue_offsets(queue, entries, first)


def _queue_offsets(queue: ConsumeQueue, entries: Entries, first: int) -> Positions:
    names = queue.dtype.names or ()
    if "base_offset" in names:
        return entries["base_offset"].astype(np.int64)
    return np.arange(first, first + entries.size)
