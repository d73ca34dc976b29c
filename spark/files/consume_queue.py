"""ConsumeQueues for readers: the existing queue offsets, and the places of their records in the CommitLog.

``consumequeue/<topic>/<queueId>/`` holds files of 20-byte entries, named by the first byte's offset in the
queue.  An entry's queue offset is that file offset plus its place in the file, divided by 20.  The place
alone is not enough, because old files expire.  The file being written ends in zeros; a queue that starts late begins
with entries of size 2^31-1 (`ConsumeQueue.fillPreBlank`).  Entries are read with pread, so a broker
may truncate or delete a file meanwhile.

Source: RocketMQ 5.3.3, `ConsumeQueue`.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt

from spark.files.segment import segment_paths
from sprocket.common.files.regular_file import open_regular
from store.layout import BATCH_CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_DTYPE

Entries = npt.NDArray[np.void]
# Returns which entries are past the place that is searched for.
IsPast = Callable[[Entries], npt.NDArray[np.bool_]]

PRE_BLANK_SIZE: Final = 2**31 - 1
DIRECTORY: Final = "consumequeue"
# Topics with the attribute queue.type=BatchCQ keep their index here, in another format.
BATCH_DIRECTORY: Final = "batchconsumequeue"
# Entries that are checked on each side of a found place.
_AROUND: Final = 3
# A search reads this many entries at once at its end, instead of single ones.
_AT_ONCE: Final = 1024
_FILE_NAME_BYTES: Final = 255
# Entries after the expected end of a queue that are searched for its end.
_NEAR_ENTRIES: Final = 1024


# The dtype and the directory of a queue's files.
Kind = tuple["np.dtype[np.void]", str]
PLAIN: Final[Kind] = (CONSUME_QUEUE_DTYPE, DIRECTORY)
BATCH: Final[Kind] = (BATCH_CONSUME_QUEUE_DTYPE, BATCH_DIRECTORY)


@dataclass(frozen=True)
class _File:
    path: Path
    first: int  # number of its first entry
    count: int  # entries that the file has room for
    dtype: "np.dtype[np.void]"

    def read(self, begin: int, end: int) -> Entries:
        """Return the entries with queue offsets [`begin`, `end`); fewer if the file has become shorter."""
        descriptor = open_regular(self.path)
        try:
            return self.read_from(descriptor, begin, end)
        finally:
            os.close(descriptor)

    def read_from(self, descriptor: int, begin: int, end: int) -> Entries:
        """Read as `read` does, from a descriptor of the file."""
        unit = self.dtype.itemsize
        content = os.pread(descriptor, (end - begin) * unit, (begin - self.first) * unit)
        return np.frombuffer(content, self.dtype, len(content) // unit)


class _Search:
    """Search among the entries of a queue; each file stays open until the search ends."""

    def __init__(self, files: Sequence[_File], dtype: "np.dtype[np.void]") -> None:
        self._files = files
        self._dtype = dtype
        self._descriptors: dict[int, int] = {}  # by the number of the file's first entry
        self._stack = ExitStack()

    def __enter__(self) -> "_Search":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()
        self._descriptors.clear()

    def first_past(self, low: int, high: int, is_past: IsPast) -> int:
        """Return the first of the entries [`low`, `high`) that is past the place, `high` if none is.

        Among unordered entries, return one that is past the place and follows one that is not.
        """
        while high - low > _AT_ONCE:
            middle = (low + high) // 2
            if is_past(self._entries(middle, middle + 1))[0]:
                high = middle
            else:
                low = middle + 1
        past = np.flatnonzero(is_past(self._entries(low, high)))
        return low + int(past[0]) if past.size else high

    def is_written(self, number: int) -> bool:
        """Return whether this entry is written."""
        found = self._entries(number, number + 1)
        return bool(found["physical_offset"][0] or found["size"][0])

    def _entries(self, begin: int, end: int) -> Entries:
        """Return the entries [`begin`, `end`), with zeros for missing ones."""
        found = None
        for file in self._files:
            low, high = max(begin, file.first), min(end, file.first + file.count)
            if low < high:
                part = file.read_from(self._descriptor(file), low, high)
                if part.size == end - begin:
                    return part
                found = np.zeros(end - begin, self._dtype) if found is None else found
                found[low - begin : low - begin + part.size] = part
        return np.zeros(end - begin, self._dtype) if found is None else found

    def _descriptor(self, file: _File) -> int:
        descriptor = self._descriptors.get(file.first)
        if descriptor is None:
            descriptor = self._descriptors[file.first] = open_regular(file.path)
            self._stack.callback(os.close, descriptor)
        return descriptor


class ConsumeQueue:
    """One queue.  [`begin`, `end`) are its queue offsets at the time of its opening."""

    def __init__(self, topic: str, queue_id: int, directory: Path, expected_end: int = 0, kind: Kind = PLAIN) -> None:
        """Open the queue.  `expected_end` is a guess of its end: a good guess saves reads, a wrong one does no harm.

        In a batch ConsumeQueue an entry is a record of many messages, so numbers of entries are not queue offsets.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.dtype = kind[0]
        unit = self.dtype.itemsize
        found = [(start, path, path.stat().st_size) for start, path in segment_paths(directory)]
        self._files = [_File(path, start // unit, size // unit, self.dtype) for start, path, size in found]
        # File size: all queues of a store have the same one.
        self.file_bytes = {size for _, _, size in found}
        self.begin, self.end = self._bounds(expected_end)

    def entry(self, queue_offset: int) -> tuple[int, int]:
        """Return (physical offset, size) at `queue_offset`, (0, 0) if it is not written."""
        found = self.entries(queue_offset, queue_offset + 1)
        return (int(found["physical_offset"][0]), int(found["size"][0])) if found.size else (0, 0)

    def entries(self, begin: int, end: int) -> Entries:
        """Return the existing entries with queue offsets in [`begin`, `end`)."""
        parts = []
        for file in self._files:
            low, high = max(begin, file.first), min(end, file.first + file.count)
            if low < high:
                parts.append(file.read(low, high))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def numbers_at(self, physical_offsets: Sequence[int]) -> list[int]:
        """Return the number of the first entry at or after each of these rising offsets, `end` if there is none.

        This costs a fraction of separate searches.
        """
        if not physical_offsets:
            return []
        numbers = [0] * len(physical_offsets)
        with _Search(self._files, self.dtype) as search:
            # Runs of offsets, and the ranges of entries to search for them.
            runs = [(0, len(physical_offsets), self.begin, self.end)]
            while runs:
                first, past, low, high = runs.pop()
                middle = (first + past) // 2
                wanted = physical_offsets[middle]
                found = search.first_past(low, high, lambda entries: entries["physical_offset"] >= wanted)  # noqa: B023
                numbers[middle] = found
                if first < middle:
                    runs.append((first, middle, low, found))
                if middle + 1 < past:
                    runs.append((middle + 1, past, found, high))
        return numbers

    def range_of(self, physical_begin: int, physical_end: int) -> tuple[int, int]:
        """Return the queue offsets [from, to) of the records that begin in this range of the CommitLog."""
        first = self._first_at(physical_begin)
        return first, first if physical_end == physical_begin else self._first_at(physical_end)

    def record_at_or_after(self, physical_offset: int) -> int | None:
        """Return the physical offset of this queue's first record at or after `physical_offset`, None without one."""
        found = self._first_at(physical_offset)
        return self.entry(found)[0] if found < self.end else None

    @property
    def has_files(self) -> bool:
        """Whether the directory has files: a queue that ever had a message keeps its last file."""
        return bool(self._files)

    def is_sound_at(self, number: int) -> bool:
        """Return whether the entries around `number` are written and in log order.

        A search among damaged entries ends next to one, so this check notices it.
        """
        first, past = max(self.begin, number - _AROUND), min(self.end, number + _AROUND)
        return _in_order(self.entries(first, past), past - first)

    def are_sound_at(self, numbers: Iterable[int], entries: Entries | None = None) -> bool:
        """Return whether `is_sound_at` holds for all; `entries` may hold those of the whole queue."""
        is_whole = entries is not None and _in_order(entries, self.end - self.begin)
        return is_whole or all(self.is_sound_at(number) for number in numbers)

    def ends_in_zeros(self) -> bool:
        """Return whether samples after the end are zeros: 1, 2, 4 ... entries after it, and in every later file.

        A hole in the queue (zeros in place of entries) looks like its end.
        """
        with _Search(self._files, self.dtype) as search:
            for file in self._files:
                distance, at = 1, max(self.end, file.first)
                while at < file.first + file.count:
                    if search.is_written(at):
                        return False
                    at, distance = at + distance, 2 * distance
        return True

    @property
    def ends_in_full_file(self) -> bool:
        """Return whether the last file is full: the next message creates another one."""
        return bool(self._files) and self.end == self._files[-1].first + self._files[-1].count

    @property
    def dispatched(self) -> int:
        """Return the end, in the CommitLog, of the last record in this queue; 0 if it is empty."""
        return sum(self.entry(self.end - 1)) if self.end > self.begin else 0

    def _first_at(self, physical_offset: int) -> int:
        return self._first_past(self.begin, self.end, lambda found: found["physical_offset"] >= physical_offset)

    def _first_past(self, low: int, high: int, is_past: IsPast) -> int:
        with _Search(self._files, self.dtype) as search:
            return search.first_past(low, high, is_past)

    def _bounds(self, expected_end: int) -> tuple[int, int]:
        if not self._files:
            return 0, 0
        begin = self._files[0].first
        near = self._end_near(expected_end)
        end = self._searched_end() if near is None else near
        if end > begin and self.entry(begin)[1] == PRE_BLANK_SIZE:
            begin = self._first_past(begin, end, lambda found: found["size"] != PRE_BLANK_SIZE)
        return begin, end

    def _end_near(self, expected: int) -> int | None:
        """Return the end if it is in the same file and soon after `expected`, else None."""
        for file in self._files:
            if file.first < expected < file.first + file.count:
                sizes = file.read(expected - 1, min(expected + _NEAR_ENTRIES, file.first + file.count))["size"]
                unwritten = np.flatnonzero(sizes <= 0)
                if unwritten.size and unwritten[0]:
                    return expected - 1 + int(unwritten[0])
        return None

    def _searched_end(self) -> int:
        for file in reversed(self._files):
            end = self._first_past(file.first, file.first + file.count, lambda found: found["size"] <= 0)
            if end > file.first:
                return end
        return self._files[0].first


def _in_order(entries: Entries, count: int) -> bool:
    """Return whether these are `count` written entries with rising offsets."""
    sizes, offsets = entries["size"], entries["physical_offset"].astype(np.int64)
    are_written = (sizes > 0) & (sizes < PRE_BLANK_SIZE)
    return entries.size == count and bool(are_written.all() and (offsets[1:] > offsets[:-1]).all())


def open_queues(store: Path, topic: str, kind: Kind = PLAIN) -> list[ConsumeQueue]:
    """Return every ConsumeQueue of `topic` in the store directory `store`."""
    directory = store / kind[1] / topic
    if not can_be_file_name(topic) or not directory.is_dir():
        return []
    numbered = sorted(int(child.name) for child in directory.iterdir() if child.name.isdecimal())
    return [ConsumeQueue(topic, queue_id, directory / str(queue_id), kind=kind) for queue_id in numbered]


def open_queue(store: Path, topic: str, queue_id: int, kind: Kind = PLAIN) -> ConsumeQueue | None:
    """Return one ConsumeQueue of `topic`, None if it does not exist; the others are not opened."""
    directory = store / kind[1] / topic / str(queue_id)
    is_there = can_be_file_name(topic) and directory.is_dir()
    return ConsumeQueue(topic, queue_id, directory, kind=kind) if is_there else None


def can_be_file_name(topic: str) -> bool:
    """Return whether a directory can have the topic's name: a query may name anything, even a path."""
    is_name = topic not in ("", ".", "..") and "/" not in topic and "\0" not in topic
    return is_name and len(topic.encode()) <= _FILE_NAME_BYTES


def topics_of(store: Path, kind: str = DIRECTORY) -> list[str]:
    """Return the topics with a queue directory of this kind."""
    try:
        with os.scandir(store / kind) as children:
            return sorted(child.name for child in children if child.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def every_topic_of(store: Path) -> list[str]:
    """Return the topics with a queue directory of either kind, each once."""
    return sorted({*topics_of(store), *topics_of(store, BATCH_DIRECTORY)})
