"""Whether a queue still ends where it ended when it was looked at last, at the cost of one read.

Most looks at a queue find nothing new: a stream without a trigger interval looks at all its queues a hundred times a
second.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from spark.segment import segment_paths
from store.layout import CONSUME_QUEUE_UNIT_BYTES

_SIZE = slice(CONSUME_QUEUE_UNIT_BYTES + 8, CONSUME_QUEUE_UNIT_BYTES + 12)


@dataclass(frozen=True)
class QueueTail:
    """The last entry of a queue, and its place."""

    first_file: str
    last_file: str
    at: int  # bytes from the begin of the last file
    entry: bytes

    @classmethod
    def of(cls, directory: Path, end: int) -> "QueueTail | None":
        """The tail of the ConsumeQueue in `directory` that ends at the queue offset `end`; None if there is no entry,
        or if the next one would begin another file."""
        files = segment_paths(directory)
        last = end * CONSUME_QUEUE_UNIT_BYTES - CONSUME_QUEUE_UNIT_BYTES
        holding = [(start, path) for start, path in files if start <= last]
        if not holding or last < 0:
            return None
        start, path = holding[-1]
        found = _read(str(path), last - start)
        if len(found) < 2 * CONSUME_QUEUE_UNIT_BYTES:
            return None
        return cls(str(files[0][1]), str(path), last - start, found[:CONSUME_QUEUE_UNIT_BYTES])

    def still_ends(self) -> bool:
        """Whether the entry is the one that it was, nothing follows it, and the oldest file is still there."""
        try:
            found = _read(self.last_file, self.at)
        except OSError:
            return False
        is_same = found[:CONSUME_QUEUE_UNIT_BYTES] == self.entry and not any(found[_SIZE])
        return is_same and (self.first_file == self.last_file or os.path.exists(self.first_file))  # noqa: PTH110  # quick


def _read(path: str, at: int) -> bytes:
    """Two entries from `at` on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, 2 * CONSUME_QUEUE_UNIT_BYTES, at)
    finally:
        os.close(descriptor)
