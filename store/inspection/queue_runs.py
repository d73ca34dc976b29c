"""Sorter of the log's records by queue: runs of ConsumeQueue entries with consecutive queue offsets."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.topic_names import LIGHT_QUEUE_ID
from store.dispatch.queue_order import order_by_queue, queue_key, queue_keys
from store.layout import CONSUME_QUEUE_DTYPE
from store.queue.multi_dispatch import dispatched_records, places
from store.record.record import TagsCodes
from store.scan.columns import Integers
from store.scan.queue_codes import queue_codes_of
from store.scan.record_batch import RecordBatch

_HOLD_RECORDS: Final = 64 * 1024


class Run(NamedTuple):
    """Entries of `CONSUME_QUEUE_DTYPE` of one queue, from queue offset `offset` on."""

    topic: str
    queue_id: int
    offset: int
    entries: npt.NDArray[np.void]

    def from_offset(self, physical_offset: int) -> "Run":
        """Return the part whose records begin at or after `physical_offset`."""
        first = int(np.searchsorted(self.entries["physical_offset"], physical_offset)) if physical_offset else 0
        return Run(self.topic, self.queue_id, self.offset + first, self.entries[first:]) if first else self


class QueueRuns:
    """Takes records in the order of the log and returns runs, for each queue in the order of the log.

    `with_light` adds runs of light queues, whose entries the records' properties name.
    """

    def __init__(self, tags_codes: TagsCodes, *, with_light: bool = False) -> None:
        self._tags_codes = tags_codes
        self._with_light = with_light
        self._topics: dict[str, int] = {}
        self._held: list[tuple[Integers, Integers, npt.NDArray[np.void]]] = []
        self._held_records = 0

    def add(self, found: RecordBatch) -> Iterator[Run]:
        """Take records.  Yield the runs that are complete."""
        chosen = np.flatnonzero(found.in_consume_queue)
        topics = np.array([self._topics.setdefault(topic, len(self._topics)) for topic in found.topics], np.int64)
        keys = queue_keys(topics[found.topic_index], found.queue_ids)
        keys, offsets = keys[chosen], found.queue_offsets[chosen]
        if self._with_light:
            chosen, keys, offsets = self._with_light_rows(found, chosen, keys, offsets)
        entries = np.empty(chosen.size, CONSUME_QUEUE_DTYPE)
        entries["physical_offset"] = (found.positions + found.base)[chosen]
        entries["size"] = found.sizes[chosen]
        entries["tags_code"] = queue_codes_of(found, self._tags_codes)[chosen]
        self._held.append((keys, offsets, entries))
        self._held_records += chosen.size
        if self._held_records >= _HOLD_RECORDS:
            yield from self.release()

    def _with_light_rows(
        self, batch: RecordBatch, records: Integers, keys: Integers, offsets: Integers
    ) -> tuple[Integers, Integers, Integers]:
        """Return the rows of `records` and those of records in light queues, in the order of the log."""
        rows = [
            (record, queue_key(self._topics.setdefault(name, len(self._topics)), LIGHT_QUEUE_ID), offset)
            for record in dispatched_records(batch)
            for name, offset in places(batch.properties(record))
        ]
        if not rows:
            return records, keys, offsets
        light = np.array(rows, np.int64)
        records = np.concatenate((records, light[:, 0]))
        order = np.argsort(records, kind="stable")
        keys, offsets = np.concatenate((keys, light[:, 1])), np.concatenate((offsets, light[:, 2]))
        return records[order], keys[order], offsets[order]

    def release(self) -> Iterator[Run]:
        """Yield all runs that are held."""
        held, self._held = self._held, []
        if not self._held_records:
            return
        self._held_records = 0
        key_parts, offset_parts, entry_parts = zip(*held, strict=True)
        all_keys, all_offsets = np.concatenate(key_parts), np.concatenate(offset_parts)
        # Without the type numpy would convert the entries to the machine's byte order.
        all_entries = np.concatenate(entry_parts, dtype=CONSUME_QUEUE_DTYPE)
        order, runs = order_by_queue(all_keys, all_offsets)
        entries, topics = all_entries[order], list(self._topics)
        for topic_number, queue_id, offset, begin, end in runs:
            yield Run(topics[topic_number], queue_id, offset, entries[begin:end])
