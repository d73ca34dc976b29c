"""ConsumeQueues as a reader sees them: which queue offsets exist, and where their records lie in the CommitLog.

``consumequeue/<topic>/<queueId>/`` holds files of 20-byte entries, named by the first byte's offset in the
queue.  An entry's queue offset is that file offset plus its place in the file, divided by 20: never its place
alone, because old files expire.  The file being written ends in zeros; a queue that starts late begins with
entries of size 2^31-1 (`ConsumeQueue.fillPreBlank`).  Entries are read with pread, so that a broker that
truncates or deletes a file does not hurt the reader.

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
from store.layout import BATCH_CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_DTYPE

Entries = npt.NDArray[np.void]
# Which of some entries lie behind the place that is searched for.
IsPast = Callable[[Entries], npt.NDArray[np.bool_]]

PRE_BLANK_SIZE: Final = 2**31 - 1
DIRECTORY: Final = "consumequeue"
# Topics with the attribute queue.type=BatchCQ keep their index here, in another format.
BATCH_DIRECTORY: Final = "batchconsumequeue"
# Light queues are views: their entries point at records of other topics (`MixAll.LMQ_PREFIX`).
LIGHT_PREFIX: Final = "%LMQ%"
# Entries on each side of a place that was searched for, which are looked at.
_AROUND: Final = 3
# A search reads so few entries at once instead of one after the other.
_AT_ONCE: Final = 1024
_FILE_NAME_BYTES: Final = 255
# How many entries after the expected end of a queue are looked at.
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
        """Entries with queue offsets [`begin`, `end`); fewer if the file has become shorter."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            return self.read_from(descriptor, begin, end)
        finally:
            os.close(descriptor)

    def read_from(self, descriptor: int, begin: int, end: int) -> Entries:
        """As `read`, from a descriptor of the file."""
        unit = self.dtype.itemsize
        content = os.pread(descriptor, (end - begin) * unit, (begin - self.first) * unit)
        return np.frombuffer(content, self.dtype, len(content) // unit)


class _Search:
    """Looks at entries of a queue here and there; a file that was looked into stays open until the end."""

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
        """The first of the entries [`low`, `high`) that is past the place; `high` if none is.

        Among entries that are not in order it ends where one is not past and the next one is.
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
        """Whether there is anything at this entry."""
        found = self._entries(number, number + 1)
        return bool(found["physical_offset"][0] or found["size"][0])

    def _entries(self, begin: int, end: int) -> Entries:
        """Entries [`begin`, `end`), zeros where there are none."""
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
            descriptor = self._descriptors[file.first] = os.open(file.path, os.O_RDONLY)
            self._stack.callback(os.close, descriptor)
        return descriptor


class ConsumeQueue:
    """One queue.  [`begin`, `end`) are the queue offsets it holds, as of its opening."""

    def __init__(self, topic: str, queue_id: int, directory: Path, expected_end: int = 0, kind: Kind = PLAIN) -> None:
        """`expected_end` is about where the queue ends, as far as the caller knows: found near there, it costs
        one read; a wrong one does no harm.

        Of a batch ConsumeQueue the numbers of entries are not queue offsets: an entry is a record of many messages.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.dtype = kind[0]
        unit = self.dtype.itemsize
        found = [(start, path, path.stat().st_size) for start, path in segment_paths(directory)]
        self._files = [_File(path, start // unit, size // unit, self.dtype) for start, path, size in found]
        # Sizes of its files: all queues of a store have the same one.
        self.file_bytes = {size for _, _, size in found}
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
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def numbers_at(self, physical_offsets: Sequence[int]) -> list[int]:
        """For each of these rising offsets the number of the first entry that does not begin before it; `end` if none.

        Together they cost a fraction of as many searches.
        """
        if not physical_offsets:
            return []
        numbers = [0] * len(physical_offsets)
        with _Search(self._files, self.dtype) as search:
            # Runs of offsets, and the entries among which they lie.
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
        """Queue offsets [from, to) of the records that begin in this range of the CommitLog."""
        first = self._first_at(physical_begin)
        return first, first if physical_end == physical_begin else self._first_at(physical_end)

    def record_at_or_after(self, physical_offset: int) -> int | None:
        """Physical offset of this queue's first record that does not begin before `physical_offset`."""
        found = self._first_at(physical_offset)
        return self.entry(found)[0] if found < self.end else None

    @property
    def has_files(self) -> bool:
        """False for a directory without any: a queue that had a message keeps its last file."""
        return bool(self._files)

    def is_sound_at(self, number: int) -> bool:
        """Whether the entries around `number` can be right: written, and in the order of the log.

        A search among damaged entries ends next to one.
        """
        first, past = max(self.begin, number - _AROUND), min(self.end, number + _AROUND)
        return _in_order(self.entries(first, past), past - first)

    def are_sound_at(self, numbers: Iterable[int], entries: Entries | None = None) -> bool:
        """`is_sound_at` of each; `entries` are those of the whole queue, if the caller has them."""
        is_whole = entries is not None and _in_order(entries, self.end - self.begin)
        return is_whole or all(self.is_sound_at(number) for number in numbers)

    def ends_in_zeros(self) -> bool:
        """Whether nothing is written behind the end, where it is looked at: at 1, 2, 4 ... entries behind it and in
        every later file.  A hole in the queue, zeros where entries were, looks like its end."""
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
        """Whether the last file has no room left: a following one is made with the next message."""
        return bool(self._files) and self.end == self._files[-1].first + self._files[-1].count

    @property
    def dispatched(self) -> int:
        """End, in the CommitLog, of the last record in this queue; 0 if it is empty."""
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
            end = self._first_past(file.first, file.first + file.count, lambda found: found["size"] <= 0)
            if end > file.first:
                return end
        return self._files[0].first


def _in_order(entries: Entries, count: int) -> bool:
    """Whether these are `count` entries, all of them written, with rising offsets."""
    sizes, offsets = entries["size"], entries["physical_offset"].astype(np.int64)
    are_written = (sizes > 0) & (sizes < PRE_BLANK_SIZE)
    return entries.size == count and bool(are_written.all() and (offsets[1:] > offsets[:-1]).all())


def open_queues(store: Path, topic: str, kind: Kind = PLAIN) -> list[ConsumeQueue]:
    """Every ConsumeQueue of `topic` under the store directory `store`; empty if it has none."""
    directory = store / kind[1] / topic
    if not can_be_file_name(topic) or not directory.is_dir():
        return []
    numbered = sorted(int(child.name) for child in directory.iterdir() if child.name.isdecimal())
    return [ConsumeQueue(topic, queue_id, directory / str(queue_id), kind=kind) for queue_id in numbered]


def open_queue(store: Path, topic: str, queue_id: int, kind: Kind = PLAIN) -> ConsumeQueue | None:
    """One ConsumeQueue of `topic`, without a look at the others; None if there is none."""
    directory = store / kind[1] / topic / str(queue_id)
    is_there = can_be_file_name(topic) and directory.is_dir()
    return ConsumeQueue(topic, queue_id, directory, kind=kind) if is_there else None


def can_be_file_name(topic: str) -> bool:
    """Whether a directory can have the topic's name: a query may ask for anything, also for a path."""
    is_name = topic not in ("", ".", "..") and "/" not in topic and "\0" not in topic
    return is_name and len(topic.encode()) <= _FILE_NAME_BYTES


def topics_of(store: Path, kind: str = DIRECTORY) -> list[str]:
    """Topics that have a queue directory of this kind."""
    try:
        with os.scandir(store / kind) as children:
            return sorted(child.name for child in children if child.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def every_topic_of(store: Path) -> list[str]:
    """Topics that have a queue directory of either kind, each once."""
    return sorted({*topics_of(store), *topics_of(store, BATCH_DIRECTORY)})
