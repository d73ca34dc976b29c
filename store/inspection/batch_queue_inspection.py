"""Comparison of Batch ConsumeQueues with the log: each record of such a queue has one unit.

Source: RocketMQ 5.3.3, `BatchConsumeQueue`.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from sprocket.remoting.message.properties import INNER_BASE, INNER_NUM, encoded_name, find_last
from store.inspection.file_sequence import FileSequence
from store.inspection.file_view import list_directory
from store.layout import BATCH_CONSUME_QUEUE_DTYPE
from store.record.record import Record, decode
from store.scan.record_batch import RecordBatch

_BASE, _NUM = encoded_name(INNER_BASE), encoded_name(INNER_NUM)
UNIT: Final = BATCH_CONSUME_QUEUE_DTYPE.itemsize


@dataclass
class BatchQueueInspection:
    """One queue.  `unit` is the next unit to compare; `first_bad` the first wrong one, -1 without."""

    topic: str
    queue_id: int
    files: FileSequence
    unit: int = 0
    first_bad: int = -1
    bad: int = 0
    _started: bool = False
    _first_unit: int = 0

    def start(self) -> None:
        """Begin with the first unit that lies in a file."""
        self.unit = self._first_unit = self.files.first_offset // UNIT

    def unit_at(self, index: int) -> tuple[int, int, int, int]:
        """Return (physical offset, size, base offset, batch size) of a unit; zeros without one."""
        content = self.files.bytes_at(index * UNIT, UNIT)
        fields = np.frombuffer(content, BATCH_CONSUME_QUEUE_DTYPE)[0]
        return (
            int(fields["physical_offset"]), int(fields["size"]), int(fields["base_offset"]), int(fields["batch_size"]),
        )  # fmt: skip

    def add(self, record: Record) -> None:
        """Compare the log's next record of this queue."""
        properties = bytes(record.properties)
        base, number = find_last(properties, _BASE), find_last(properties, _NUM)
        if base is None or number is None or not (base.isdigit() and number.isdigit()):
            return
        expected = (record.physical_offset, record.size_bytes, int(base), int(number))
        if self._started and int(base) == 0:
            # The topic was deleted and created again: its earlier records no longer count.
            self.unit, self.first_bad, self.bad = self._first_unit, -1, 0
        while not self._started and self._is_older(record.physical_offset):
            self.unit += 1
        self._started = True
        actual = self.unit_at(self.unit)
        if actual != expected:
            if actual[0] > record.physical_offset:
                # The unit belongs to a later record: this record has none.
                self._note(self.unit)
                return
            self._note(self.unit)
        self.unit += 1

    def _is_older(self, physical_offset: int) -> bool:
        place, size, _, _ = self.unit_at(self.unit)
        return size > 0 and place < physical_offset

    def _note(self, unit: int) -> None:
        self.bad += 1
        if self.first_bad < 0:
            self.first_bad = unit

    def finish(self) -> None:
        """Check, after the walk, that no unit follows that of the last record."""
        if self.unit_at(self.unit) != (0, 0, 0, 0) and self._started:
            self._note(self.unit)


def queue_records(found: RecordBatch, topics: Set[str]) -> Iterator[Record]:
    """Return the records of `topics` that have a place in a queue."""
    wanted = [number for number, topic in enumerate(found.topics) if topic in topics]
    if not wanted:
        return
    for at in np.flatnonzero(np.isin(found.topic_index, wanted) & found.in_consume_queue).tolist():
        position = int(found.positions[at])
        record = decode(found.data[position : position + int(found.sizes[at])], check_crc=False)
        if isinstance(record, Record):
            yield record


class BatchQueueTableInspection:
    """Queues under ``batchconsumequeue/``, and those of `topics`, which should have some there.

    Records of a topic before its physical offset in `deleted` do not count.
    """

    def __init__(
        self,
        directory: Path,
        file_bytes: int | None = None,
        topics: Set[str] = frozenset(),
        deleted: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._directory = directory
        self._deleted = deleted
        self.by_key: dict[tuple[str, int], BatchQueueInspection] = {}
        for topic, is_directory, _ in list_directory(directory):
            for name, is_queue, _ in list_directory(directory / topic) if is_directory else ():
                if is_queue and name.isascii() and name.isdigit():
                    self._queue(topic, int(name), file_bytes)
        self.topics = {topic for topic, _ in self.by_key} | topics
        sizes = [queue.files.file_bytes for queue in self if queue.files.file_bytes]
        self.file_bytes = file_bytes or max(set(sizes), key=sizes.count, default=0)
        for queue in self:
            queue.files.file_bytes = self.file_bytes or queue.files.file_bytes

    def __iter__(self) -> Iterator[BatchQueueInspection]:
        return iter(self.by_key.values())

    def _queue(self, topic: str, queue_id: int, file_bytes: int | None) -> BatchQueueInspection:
        files = FileSequence(self._directory / topic / str(queue_id), file_bytes)
        queue = self.by_key[topic, queue_id] = BatchQueueInspection(topic, queue_id, files)
        queue.start()
        return queue

    def add(self, found: RecordBatch) -> None:
        """Compare records, which come in the order of the log."""
        for record in queue_records(found, self.topics) if self.topics else ():
            if record.physical_offset < self._deleted.get(record.topic, 0):
                continue
            queue = self.by_key.get((record.topic, record.queue_id))
            if queue is None and record.queue_id >= 0 and "/" not in record.topic:
                queue = self._queue(record.topic, record.queue_id, self.file_bytes or None)
            if queue is not None:
                queue.add(record)

    def finish(self) -> None:
        """Finish all queues after the walk."""
        for queue in self:
            queue.finish()
