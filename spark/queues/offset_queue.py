"""Queues by queue offset, for both kinds of ConsumeQueue.

An entry of a ConsumeQueue is one message, and its number is its queue offset.  An entry of a batch ConsumeQueue is a
record of many messages with the queue offsets from its base offset on; between entries, offsets may be unused.  Source:
RocketMQ 5.3.3, `BatchConsumeQueue`.
"""

from bisect import bisect_left
from pathlib import Path

from spark.files.consume_queue import BATCH, BATCH_DIRECTORY, DIRECTORY, PLAIN, ConsumeQueue, Entries, Kind
from spark.queues.positions import QueueId
from sprocket.common.errors import ConfigError


class OffsetQueue:
    """Entries numbered from `begin` to `end`, and the queue offsets of their messages."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue
        self.is_batch = "base_offset" in (queue.dtype.names or ())
        self.begin, self.end = queue.begin, queue.end
        self.directory = queue.directory
        self.unit_bytes = queue.dtype.itemsize

    @property
    def has_files(self) -> bool:
        return self._queue.has_files

    def entry(self, number: int) -> tuple[int, int]:
        """Return (physical offset, size) of the entry `number`, (0, 0) if it is not written."""
        return self._queue.entry(number)

    def entries(self, begin: int, end: int) -> Entries:
        """Return the existing entries with these numbers."""
        return self._queue.entries(begin, end)

    def offset_of(self, number: int) -> int:
        """Return the first queue offset of entry `number`; after the last entry, that of the next message."""
        if not self.is_batch:
            return number
        if number < self.end:
            return self._span(number)[0]
        return self._span(self.end - 1)[1] if self.end > self.begin else 0

    def bounds(self, begin: int, end: int) -> tuple[int, int]:
        """Return the queue offsets [first, past) of the entries [`begin`, `end`)."""
        first = self.offset_of(begin)
        if not self.is_batch:
            return first, end
        return first, self._span(end - 1)[1] if end > begin else first

    def number_at(self, offset: int) -> int:
        """Return the entry with the queue offset `offset`, or the next one; `end` if there is none."""
        if not self.is_batch:
            return min(max(offset, self.begin), self.end)
        numbers = range(self.begin, self.end)
        return self.begin + bisect_left(numbers, offset + 1, key=lambda number: self._span(number)[1])

    def _span(self, number: int) -> tuple[int, int]:
        """Return the queue offsets [first, past) of the messages of an entry of a batch ConsumeQueue."""
        found = self._queue.entries(number, number + 1)
        if not found.size:
            return 0, 0
        base = int(found["base_offset"][0])
        return base, base + int(found["batch_size"][0])


def open_queue(store: Path, queue: QueueId, expected_end: int = 0) -> OffsetQueue:
    """Open `queue` in the store directory `store`; `expected_end` is a guess of its total number of entries.

    Raises FileNotFoundError if the store has none of either kind.
    """
    try:
        plain = _opened(store, queue, expected_end, PLAIN)
    except FileNotFoundError:
        return OffsetQueue(_opened(store, queue, expected_end, BATCH))
    if plain.has_files or not _directory(store, queue, BATCH_DIRECTORY).is_dir():
        return OffsetQueue(plain)
    return OffsetQueue(_opened(store, queue, expected_end, BATCH))


def check_kind(store: Path, queue: QueueId) -> None:
    """Raise ConfigError if `queue` has files of both kinds, because the valid kind is unknown."""
    directories = [_directory(store, queue, kind) for kind in (DIRECTORY, BATCH_DIRECTORY)]
    if all(directory.is_dir() and any(directory.iterdir()) for directory in directories):
        raise ConfigError(
            f"queue {queue} has files in both {directories[0]} and {directories[1]}: the topic was created again with "
            "another queue.type; remove the directory that the broker does not use, or leave the topic out of subscribe"
        )


def _opened(store: Path, queue: QueueId, expected_end: int, kind: Kind) -> ConsumeQueue:
    return ConsumeQueue(queue.topic, queue.queue_id, _directory(store, queue, kind[1]), expected_end, kind)


def _directory(store: Path, queue: QueueId, kind: str) -> Path:
    return store.joinpath(kind, queue.topic, str(queue.queue_id))
