"""Check that a queue still ends at its last known end, with a single read.

Usually there is nothing new: a stream without a trigger interval polls all its queues a hundred times a second.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from spark.files.segment import segment_paths
from sprocket.common.files.regular_file import open_regular
from store.layout import CONSUME_QUEUE_DTYPE

# Place of the size in an entry of either kind of queue.
_SIZE_AT = int(CONSUME_QUEUE_DTYPE.fields["size"][1])  # type: ignore[index]  # numpy types it as optional
_SIZE_BYTES = CONSUME_QUEUE_DTYPE["size"].itemsize


@dataclass(frozen=True)
class QueueTail:
    """Last entry of a queue, and its place."""

    first_file: str
    last_file: str
    at: int  # bytes from the begin of the last file
    entry: bytes

    @classmethod
    def of(cls, directory: Path, end: int, unit_bytes: int) -> "QueueTail | None":
        """Return the tail of the queue in `directory` with `end` entries of `unit_bytes` each.

        None if there is no entry, or if the next one would begin another file.
        """
        files = segment_paths(directory)
        last = (end - 1) * unit_bytes
        holding = [(start, path) for start, path in files if start <= last]
        if not holding or last < 0:
            return None
        start, path = holding[-1]
        found = _read(str(path), last - start, 2 * unit_bytes)
        if len(found) < 2 * unit_bytes:
            return None
        return cls(str(files[0][1]), str(path), last - start, found[:unit_bytes])

    def still_ends(self) -> bool:
        """Return whether the entry is unchanged, nothing follows it, and the oldest file still exists."""
        try:
            unit = len(self.entry)
            found = _read(self.last_file, self.at, 2 * unit)
        except OSError:
            return False
        size_at = unit + _SIZE_AT
        is_same = found[:unit] == self.entry and not any(found[size_at : size_at + _SIZE_BYTES])
        return is_same and (self.first_file == self.last_file or os.path.exists(self.first_file))  # noqa: PTH110  # quick


def _read(path: str, at: int, size: int) -> bytes:
    descriptor = open_regular(path)
    try:
        return os.pread(descriptor, size, at)
    finally:
        os.close(descriptor)
