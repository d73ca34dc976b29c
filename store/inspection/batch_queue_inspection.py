"""Compares the Batch ConsumeQueues of a store with its log: each record of such a queue has one unit.

Source: RocketMQ 5.3.3, `BatchConsumeQueue`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from remoting.message_properties import find
from store.inspection.file_sequence import FileSequence
from store.inspection.file_view import list_directory
from store.layout import BATCH_CONSUME_QUEUE_DTYPE
from store.record import Record, decode
from store.record_batch import RecordBatch

UNIT: Final = BATCH_CONSUME_QUEUE_DTYPE.itemsize


@dataclass
class BatchQueueInspection:
    """One queue.  `unit` is the next unit to compare; `first_bad` the first one that does not hold, -1 without."""

    topic: str
    queue_id: int
    files: FileSequence
    unit: int = 0
    first_bad: int = -1
    bad: int = 0
    _started: bool = False

    def start(self) -> None:
        """Begin with the first unit for which there is a file."""
        self.unit = self.files.first_offset // UNIT

    def unit_at(self, index: int) -> tuple[int, int, int, int]:
        """(physical offset, size, base offset, batch size) of a unit; zeros where there is none."""
        content = self.files.bytes_at(index * UNIT, UNIT)
        fields = np.frombuffer(content, BATCH_CONSUME_QUEUE_DTYPE)[0]
        return (
            int(fields["physical_offset"]), int(fields["size"]), int(fields["base_offset"]), int(fields["batch_size"]),
        )  # fmt: skip

    def add(self, record: Record) -> None:
        """The log's next record of this queue."""
        properties = bytes(record.properties)
        base, number = find(properties, b"INNER_BASE\x01"), find(properties, b"INNER_NUM\x01")
        if base is None or number is None or not (base.isdigit() and number.isdigit()):
            return
        expected = (record.physical_offset, record.size_bytes, int(base), int(number))
        while not self._started and self._is_older(record.physical_offset):
            self.unit += 1
        self._started = True
        actual = self.unit_at(self.unit)
        if actual != expected:
            if actual[0] > record.physical_offset:
                # The unit belongs to a later record: this one has none.
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
        """The walk is over: there is no unit behind the last record's."""
        if self.unit_at(self.unit) != (0, 0, 0, 0) and self._started:
            self._note(self.unit)


class BatchQueueTableInspection:
    """The queues under ``batchconsumequeue/``."""

    def __init__(self, directory: Path, file_bytes: int | None = None) -> None:
        self.by_key: dict[tuple[str, int], BatchQueueInspection] = {}
        for topic, is_directory, _ in list_directory(directory):
            for name, is_queue, _ in list_directory(directory / topic) if is_directory else ():
                if is_queue and name.isascii() and name.isdigit():
                    files = FileSequence(directory / topic / name, file_bytes)
                    queue = self.by_key[topic, int(name)] = BatchQueueInspection(topic, int(name), files)
                    queue.start()
        self._topics = {topic for topic, _ in self.by_key}

    def __iter__(self) -> Iterator[BatchQueueInspection]:
        return iter(self.by_key.values())

    def add(self, found: RecordBatch | Record) -> None:
        """Records of the log, in its order."""
        if not self.by_key:
            return
        if isinstance(found, Record):
            self._add(found)
            return
        wanted = [number for number, topic in enumerate(found.topics) if topic in self._topics]
        for at in np.flatnonzero(np.isin(found.topic_index, wanted) & found.in_consume_queue).tolist():
            position = int(found.positions[at])
            record = decode(found.data[position : position + int(found.sizes[at])], check_crc=False)
            if isinstance(record, Record):
                self._add(record)

    def _add(self, record: Record) -> None:
        queue = self.by_key.get((record.topic, record.queue_id))
        if queue is not None and record.in_consume_queue:
            queue.add(record)

    def finish(self) -> None:
        """The walk is over."""
        for queue in self:
            queue.finish()
