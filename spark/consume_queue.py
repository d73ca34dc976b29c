"""ConsumeQueues as a reader sees them: which queue offsets exist, and where their records lie in the CommitLog.

``consumequeue/<topic>/<queueId>/`` holds files of 20-byte entries, named by the first byte's offset in the
queue.  An entry's queue offset is that file offset plus its place in the file, divided by 20: never its place
alone, because old files expire.  The file being written ends in zeros; a queue that starts late begins with
entries of size 2^31-1 (`ConsumeQueue.fillPreBlank`).  Entries are read with pread, so that a broker that
truncates or deletes a file does not hurt the reader.

Source: RocketMQ 5.3.3, `ConsumeQueue`.
"""

import os
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from spark.segment import segment_paths
from store.layout import CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_UNIT_BYTES

Entries = npt.NDArray[np.void]

PRE_BLANK_SIZE: Final = 2**31 - 1
DIRECTORY: Final = "consumequeue"
# Topics with the attribute queue.type=BatchCQ keep their index here, in another format.
BATCH_DIRECTORY: Final = "batchconsumequeue"
# How many entries after the expected end of a queue are looked at.
_NEAR_ENTRIES: Final = 1024


@dataclass(frozen=True)
class _File:
    path: Path
    first: int  # queue offset of its first entry
    count: int  # entries that the file has room for

    def read(self, begin: int, end: int) -> Entries:
        """Entries with queue offsets [`begin`, `end`); fewer if the file has become shorter."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            size = (end - begin) * CONSUME_QUEUE_UNIT_BYTES
            content = os.pread(descriptor, size, (begin - self.first) * CONSUME_QUEUE_UNIT_BYTES)
        finally:
            os.close(descriptor)
        whole = len(content) // CONSUME_QUEUE_UNIT_BYTES
        return np.frombuffer(content, CONSUME_QUEUE_DTYPE, whole)


class ConsumeQueue:
    """One queue.  [`begin`, `end`) are the queue offsets it holds, as of its opening."""

    def __init__(self, topic: str, queue_id: int, directory: Path, expected_end: int = 0) -> None:
        """`expected_end` is about where the queue ends, as far as the caller knows: found near there, it costs
        one read; a wrong one does no harm."""
        self.topic = topic
        self.queue_id = queue_id
        self._files = [
            _File(path, start // CONSUME_QUEUE_UNIT_BYTES, path.stat().st_size // CONSUME_QUEUE_UNIT_BYTES)
            for start, path in segment_paths(directory)
        ]
        self.begin, self.end = self._bounds(expected_end)

    def entry(self, queue_offset: int) -> tuple[int, int]:
        """(physical offset, size) at `queue_offset`; (0, 0) where nothing is written."""
        found = self.entries(queue_offset, queue_offset + 1)
        return (int(found["physical_offset"][0]), int(found["size"][0])) if found.size else (0, 0)

    def entries(self, begin: int, end: int) -> Entries:
        """Entries with queue offsets [`begin`, `end`), as far as they exist."""
        parts = []
        for file in self._files:
            low, high = max(begin, file.first), min(end, file.first + file.count)
            if low < high:
                parts.append(file.read(low, high))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, CONSUME_QUEUE_DTYPE)

    def range_of(self, physical_begin: int, physical_end: int) -> tuple[int, int]:
        """Queue offsets [from, to) of the records that begin in this range of the CommitLog."""
        return self._first_at(physical_begin), self._first_at(physical_end)

    def record_at_or_after(self, physical_offset: int) -> int | None:
        """Physical offset of this queue's first record that does not begin before `physical_offset`."""
        found = self._first_at(physical_offset)
        return self.entry(found)[0] if found < self.end else None

    @property
    def dispatched(self) -> int:
        """End, in the CommitLog, of the last record in this queue; 0 if it is empty."""
        return sum(self.entry(self.end - 1)) if self.end > self.begin else 0

    def _first_at(self, physical_offset: int) -> int:
        queue = range(self.begin, self.end)
        return self.begin + bisect_left(queue, physical_offset, key=lambda offset: self.entry(offset)[0])

    def _bounds(self, expected_end: int) -> tuple[int, int]:
        if not self._files:
            return 0, 0
        begin = self._files[0].first
        near = self._end_near(expected_end)
        end = self._searched_end() if near is None else near
        if end > begin and self.entry(begin)[1] == PRE_BLANK_SIZE:
            begin += bisect_left(range(begin, end), True, key=lambda at: self.entry(at)[1] != PRE_BLANK_SIZE)
        return begin, end

    def _end_near(self, expected: int) -> int | None:
        """The end, if it lies in the same file and not far after `expected`."""
        for file in self._files:
            if file.first < expected < file.first + file.count:
                sizes = file.read(expected - 1, min(expected + _NEAR_ENTRIES, file.first + file.count))["size"]
                unwritten = np.flatnonzero(sizes <= 0)
                if unwritten.size and unwritten[0]:
                    return expected - 1 + int(unwritten[0])
        return None

    def _searched_end(self) -> int:
        for file in reversed(self._files):
            written = bisect_left(range(file.count), True, key=lambda index: self.entry(file.first + index)[1] <= 0)
            if written:
                return file.first + written
        return self._files[0].first


def open_queues(store: Path, topic: str) -> list[ConsumeQueue]:
    """Every ConsumeQueue of `topic` under the store directory `store`; empty if it has none."""
    directory = store / DIRECTORY / topic
    if not directory.is_dir():
        return []
    numbered = sorted(int(child.name) for child in directory.iterdir() if child.name.isdecimal())
    return [ConsumeQueue(topic, queue_id, directory / str(queue_id)) for queue_id in numbered]


def topics_of(store: Path, kind: str = DIRECTORY) -> list[str]:
    """Topics that have a queue directory of this kind."""
    directory = store / kind
    return sorted(child.name for child in directory.iterdir() if child.is_dir()) if directory.is_dir() else []
