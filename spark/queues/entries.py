"""Entries of several ranges of queues in log order, as one task reads them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark.decode.damage import Damage
from spark.files.consume_queue import PRE_BLANK_SIZE, Entries
from spark.files.segment import Segment
from spark.files.store_directory import StoreDirectory
from spark.queues.data_loss import LostRange
from spark.queues.offset_queue import OffsetQueue, open_queue
from spark.queues.ranges import QueueRange
from sprocket.common.errors import CorruptRecord
from sprocket.remoting.message.topic_names import LIGHT_PREFIX

OnLoss = Callable[[list[LostRange]], None]
Integers = npt.NDArray[np.int64]
# Physical offsets, sizes, first queue offsets and numbers of messages of some entries.
_Columns = tuple[Integers, Integers, Integers, Integers]


@dataclass(frozen=True)
class QueueEntries:
    """Entries in log order, one for each record.

    An entry has `counts` messages from `queue_offsets` on; those within its range are wanted.
    """

    ranges: Sequence[QueueRange]
    physical_offsets: Integers
    sizes: Integers
    owners: Integers  # which of `ranges`
    queue_offsets: Integers
    counts: Integers

    @classmethod
    def of(cls, store: StoreDirectory, ranges: Sequence[QueueRange], on_loss: OnLoss) -> "QueueEntries":
        """Return the entries of `ranges` in the queues of `store`.

        Calls `on_loss` for entries that no longer exist.  Raises CorruptRecord for a damaged queue.
        """
        parts = [_entries(store, each, on_loss) for each in ranges]
        owners = np.repeat(np.arange(len(ranges)), [part[0].size for part in parts])
        positions, sizes, queue_offsets, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(positions, kind="stable")
        return cls(ranges, positions[order], sizes[order], owners[order], queue_offsets[order], counts[order])

    @cached_property
    def are_light(self) -> npt.NDArray[np.bool_]:
        """Return whether each entry is of a light queue."""
        light = np.array([each.queue.topic.startswith(LIGHT_PREFIX) for each in self.ranges], np.bool_)
        return light[self.owners]

    @cached_property
    def queue_ids(self) -> Integers:
        """Return the queue id of each entry."""
        return np.array([each.queue.queue_id for each in self.ranges], np.int64)[self.owners]

    @cached_property
    def topics(self) -> pa.Array:
        """Return the topics of the ranges, each once."""
        return pa.array(sorted({each.queue.topic for each in self.ranges}), pa.string())

    @cached_property
    def topic_numbers(self) -> Integers:
        """Return the topic of each entry, as an index in `topics`."""
        numbers = {topic: number for number, topic in enumerate(self.topics.to_pylist())}
        return np.array([numbers[each.queue.topic] for each in self.ranges], np.int64)[self.owners]

    @cached_property
    def are_batches(self) -> bool:
        """Return whether some entry is a record of several messages."""
        return bool((self.counts != 1).any())

    def wanted(self, chosen: slice | Integers) -> tuple[Integers, Integers]:
        """Return the wanted queue offsets [begin, end) of each of the entries `chosen`."""
        begins = np.array([each.begin for each in self.ranges], np.int64)[self.owners[chosen]]
        ends = np.array([each.end for each in self.ranges], np.int64)[self.owners[chosen]]
        firsts = self.queue_offsets[chosen]
        return np.maximum(begins, firsts), np.minimum(ends, firsts + self.counts[chosen])

    def misfit(self, index: int, segment: Segment, why: str) -> Damage:
        """Return the damage for entry number `index`, which does not match the log."""
        place = f"{self.ranges[self.owners[index]].queue} at {self.queue_offsets[index]}"
        reason = f"the ConsumeQueue of {place} points here, but {why}"
        return Damage(int(self.physical_offsets[index]), int(self.sizes[index]), reason, segment.path)

    def lost(self, chosen: slice, reason: str) -> list[LostRange]:
        """Return the ranges of the entries `chosen` as lost."""
        begins, ends = self.wanted(chosen)
        each = sorted(zip(self.owners[chosen].tolist(), begins.tolist(), ends.tolist(), strict=True))
        lost = []
        for owner, group in groupby(each, key=lambda entry: entry[0]):
            joined: list[list[int]] = []
            for _, begin, end in group:
                if joined and joined[-1][1] == begin:
                    joined[-1][1] = end
                else:
                    joined.append([begin, end])
            lost += [LostRange(self.ranges[owner].queue, begin, end, reason) for begin, end in joined]
        return lost


def _entries(store: StoreDirectory, wanted: QueueRange, on_loss: OnLoss) -> _Columns:
    """Return the entries of `wanted` in the queue."""
    try:
        queue = open_queue(store.root, wanted.queue, wanted.end)
        return _batch_entries(queue, wanted, on_loss) if queue.is_batch else _plain_entries(queue, wanted, on_loss)
    except FileNotFoundError:
        on_loss([LostRange(wanted.queue, wanted.begin, wanted.end, "deleted")])
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing, nothing


def _plain_entries(queue: OffsetQueue, wanted: QueueRange, on_loss: OnLoss) -> _Columns:
    begin = wanted.begin
    entries = queue.entries(wanted.begin, wanted.end)
    if len(entries) < len(wanted) or not _all_written(entries):
        begin, entries = _entries_left(queue, wanted, on_loss)
    count = len(entries)
    return *_places(entries), np.arange(begin, begin + count), np.ones(count, np.int64)


def _places(entries: Entries) -> tuple[Integers, Integers]:
    return entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)


def _all_written(entries: Entries) -> bool:
    sizes = entries["size"]
    return bool(((sizes > 0) & (sizes != PRE_BLANK_SIZE)).all())


def _entries_left(queue: OffsetQueue, wanted: QueueRange, on_loss: OnLoss) -> tuple[int, Entries]:
    """Return the entries that still exist of a range that was complete when the query was planned."""
    begin = min(max(wanted.begin, queue.begin), wanted.end)
    end = max(begin, min(wanted.end, queue.end))
    _report(wanted, begin, end, on_loss)
    entries = queue.entries(begin, end)
    if len(entries) != end - begin or not _all_written(entries):
        raise CorruptRecord(0, f"ConsumeQueue {wanted.queue} has no entry somewhere in [{begin}, {end})")
    return begin, entries


def _batch_entries(queue: OffsetQueue, wanted: QueueRange, on_loss: OnLoss) -> _Columns:
    """Return the records of a batch ConsumeQueue with a message within `wanted`.

    Offsets between two records were never used.  So only offsets before the first and after the last entry are lost.
    """
    first, past = queue.number_at(wanted.begin), min(queue.number_at(wanted.end - 1) + 1, queue.end)
    begin, end = queue.bounds(queue.begin, queue.end)
    at = min(max(wanted.begin, begin), wanted.end)
    _report(wanted, at, max(at, min(wanted.end, end)), on_loss)
    # Also read the neighbours: a wrong number of messages would hide the next ones.
    first, past = max(first - 1, queue.begin), min(past + 1, queue.end)
    entries = queue.entries(first, past)
    bases, counts = entries["base_offset"].astype(np.int64), entries["batch_size"].astype(np.int64)
    is_sound = len(entries) == past - first and _all_written(entries) and bool((counts > 0).all())
    if not is_sound or (np.diff(bases) < counts[:-1]).any():
        raise CorruptRecord(0, f"batch ConsumeQueue {wanted.queue} is not in order within [{at}, {wanted.end})")
    chosen = (bases < wanted.end) & (bases + counts > wanted.begin)
    positions, sizes = _places(entries[chosen])
    return positions, sizes, bases[chosen], counts[chosen]


def _report(wanted: QueueRange, begin: int, end: int, on_loss: OnLoss) -> None:
    """Call `on_loss` for the parts of `wanted` outside [`begin`, `end`)."""
    lost = []
    if begin > wanted.begin:
        lost.append(LostRange(wanted.queue, wanted.begin, begin))
    if end < wanted.end:
        lost.append(LostRange(wanted.queue, end, wanted.end, "deleted"))
    if lost:
        on_loss(lost)
