"""What the kernels of pulls and pops read with: queues, segments of the log, limits of a read.

`QueueReader.get` is its Python twin.
"""

from collections.abc import Callable

from store.log.commit_log import CommitLog
from store.queue.consume_queue import UNIT, ConsumeQueue
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.queue_reader import QueueReader


class KernelReads:
    """Reads of records that are probably in memory, and that this process appended.  For the owner thread only."""

    def __init__(
        self, log: CommitLog, table: ConsumeQueueTable, reader: QueueReader, is_compacted: Callable[[str], bool]
    ) -> None:
        self._table = table
        self._is_compacted = is_compacted
        self._log = log
        self._reader = reader
        # Returns the log's segment at an offset, with its begin and end.
        self.segment_at = log.segment_at
        # Counts reads that found something, and their messages.
        self.found = reader.found
        # Counts reads that found nothing.
        self.missed = reader.missed

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue with an entry for each message; None if there is none, or the topic is compacted."""
        queue = None if self._is_compacted(topic) else self._table.by_key.get((topic, queue_id))
        return queue if isinstance(queue, ConsumeQueue) else None

    def queues(self, topic: str, queue_ids: range) -> list[ConsumeQueue | None]:
        """Return several queues of a topic."""
        return [self.queue(topic, queue_id) for queue_id in queue_ids]

    @property
    def cold_end(self) -> int:
        """End of the records that are checked at each read."""
        return self._reader.cold.end_offset

    def limits(self) -> tuple[int, int, int, int, int, int]:
        """Return the limits of a read now.

        They are: the log's end, the end of records that are checked at each read, the bytes before the log's end that
        are probably in memory, max messages and bytes of a read there, and max entries that a filter searches.
        """
        reader = self._reader
        max_messages, max_bytes = reader.near
        return (
            self._log.wrote_offset, reader.cold.end_offset, reader.memory_limit_bytes, max_messages, max_bytes,
            reader.max_scan_bytes // UNIT,
        )  # fmt: skip
