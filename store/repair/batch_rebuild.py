"""Rebuild of Batch ConsumeQueues from the log.

Source: RocketMQ 5.3.3, `BatchConsumeQueue.putBatchMessagePositionInfo`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from store.inspection.batch_queue_inspection import queue_records
from store.layout import BATCH_CONSUME_QUEUE_DTYPE
from store.queue.inner_batch import message_count
from store.record.record import Record, TagsCodes
from store.repair.rebuild import sync_queue, write_at
from store.scan.record_batch import RecordBatch

UNIT: Final = BATCH_CONSUME_QUEUE_DTYPE.itemsize
_NOT_COMPACTED: Final = -1
_UNITS_AT_ONCE: Final = 1024


class BatchQueueFiles:
    """New files of one queue.  Units are written many at a time."""

    def __init__(self, directory: Path, file_bytes: int) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self._units: list[tuple[int, ...]] = []
        self._first_held = 0
        self._written = 0
        self.next_offset = 0

    def put(self, record: Record, tags_code: int) -> None:
        """Add the log's next record.  Skip it if its offset steps back, unless to 0: then the queue restarts."""
        if record.queue_offset < self.next_offset:
            if record.queue_offset:
                return
            self._write()
            self._first_held = 0
        count = message_count(bytes(record.properties))
        place = (record.physical_offset, record.size_bytes, tags_code, record.store_timestamp)
        self._units.append((*place, record.queue_offset, count, _NOT_COMPACTED, 0))
        self.next_offset = record.queue_offset + count
        if len(self._units) >= _UNITS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        content = np.array(self._units, BATCH_CONSUME_QUEUE_DTYPE).tobytes()
        write_at(self._directory, self._file_bytes, self._first_held * UNIT, content)
        self._first_held += len(self._units)
        self._written = max(self._written, self._first_held)
        self._units.clear()

    def finish(self) -> None:
        """Zero the units of an earlier life of the topic, and sync all."""
        self._write()
        for at in range(self._first_held, self._written, _UNITS_AT_ONCE):
            zeros = bytes(UNIT * min(_UNITS_AT_ONCE, self._written - at))
            write_at(self._directory, self._file_bytes, at * UNIT, zeros)
        if self._written:
            sync_queue(self._directory)


class BatchQueueRebuild:
    """Rebuild of the queues `wanted`, (topic, queue id), under `directory`."""

    def __init__(
        self,
        directory: Path,
        tags_codes: TagsCodes,
        file_bytes: int,
        wanted: Iterable[tuple[str, int]],
        deleted: Mapping[str, int],
    ) -> None:
        self._tags_codes = tags_codes
        self._deleted = deleted
        self._files = {key: BatchQueueFiles(directory / key[0] / str(key[1]), file_bytes) for key in wanted}
        self._topics = {topic for topic, _ in self._files}

    def add(self, found: RecordBatch) -> None:
        """Add records, which come in the order of the log."""
        for record in queue_records(found, self._topics):
            files = self._files.get((record.topic, record.queue_id))
            if files is not None and record.physical_offset >= self._deleted.get(record.topic, 0):
                code = self._tags_codes.of(record.topic, bytes(record.properties), record.store_timestamp)
                files.put(record, code)

    def finish(self) -> None:
        """Finish all queues after the walk."""
        for files in self._files.values():
            files.finish()
