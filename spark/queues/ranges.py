"""Readable messages of each queue of a store, and the queues that a query selects.

A queue's range [begin, end) begins with the first entry whose record is still in the log; older entries may exist.  It
ends with the last entry whose record is complete.  Offsets come from the names of the queue's files, or from its
entries (`spark.queues.offset_queue`), so they stay right after older files have expired.
"""

import logging
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from spark.files.confirm_limit import confirm_limit
from spark.files.consume_queue import BATCH_DIRECTORY, DIRECTORY, can_be_file_name, topics_of
from spark.files.segment import Segment
from spark.files.store_directory import StoreDirectory, log_paths
from spark.queues.offset_queue import OffsetQueue, check_kind, open_queue
from spark.queues.positions import QueueId
from spark.queues.tail import QueueTail
from sprocket.remoting.message.record import MIN_RECORD_BYTES
from sprocket.remoting.message.topic_names import LIGHT_PREFIX

logger = logging.getLogger(__name__)

_SEARCH_ENTRIES = 16384


@dataclass(frozen=True)
class QueueSelection:
    """Queues that a query selects: by topic, by a pattern for the whole topic, or by queue id.

    All three None: every queue.  Light queues are read only if they are named, because other queues have their records,
    too.
    """

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    assigned: Mapping[str, frozenset[int]] | None = None

    def wants_topic(self, topic: str) -> bool:
        if self.assigned is not None:
            return topic in self.assigned
        if self.topics is not None:
            return topic in self.topics
        if topic.startswith(LIGHT_PREFIX):
            return False
        return self.topic_pattern is None or re.fullmatch(self.topic_pattern, topic) is not None

    def wants(self, queue: QueueId) -> bool:
        in_topic = self.wants_topic(queue.topic)
        return in_topic and (self.assigned is None or queue.queue_id in self.assigned[queue.topic])

    @property
    def named_topics(self) -> frozenset[str] | None:
        """Return the named topics, None if they must be searched for."""
        return frozenset(self.assigned) if self.assigned is not None else self.topics

    def absent(self, queues: Iterable[QueueId]) -> list[str]:
        """Return the named topics, and queues as ``topic/queueId``, that are not among `queues`."""
        held = {(queue.topic, queue.queue_id) for queue in queues}
        topics = {topic for topic, _ in held}
        names = [topic for topic in self.named_topics or () if topic not in topics]
        for topic, numbers in (self.assigned or {}).items():
            if topic in topics:
                names += [f"{topic}/{number}" for number in numbers if (topic, number) not in held]
        return sorted(names)


@dataclass(frozen=True)
class QueueRange:
    """Queue offsets [`begin`, `end`) of one queue."""

    queue: QueueId
    begin: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.begin)


@dataclass
class StoreQueues:
    """Queues of one store that `selection` selects.

    It remembers their last ends, which makes the next search fast; remembered values are always verified.
    """

    store: StoreDirectory
    selection: QueueSelection
    _ends: dict[QueueId, int] = field(default_factory=dict)  # numbers of entries
    # Last entry that pointed at a complete record: (its number, physical offset).
    _stood: dict[QueueId, tuple[int, int]] = field(default_factory=dict)
    _tails: dict[QueueId, "_Tail"] = field(default_factory=dict)
    # Queues whose last entries existed at the last snapshot, but were not yet visible to consumers.
    held_back: set[QueueId] = field(default_factory=set)

    def ranges(self) -> dict[QueueId, tuple[int, int]]:
        """Return the current [begin, end) of every queue.

        Raises ConfigError for a queue with files of both kinds, or without a readable log.
        """
        ranges: dict[QueueId, tuple[int, int]] = {}
        self.held_back.clear()
        with OpenLog(self.store) as log:
            for queue in self._queues():
                known = self._tails.get(queue)
                if known is not None and known.log_begin == log.begin and known.tail.still_ends():
                    ranges[queue] = known.bounds
                    continue
                try:
                    ranges[queue] = self._bounds_of(queue, log)
                except FileNotFoundError:  # the topic is being deleted
                    continue
        return ranges

    def _bounds_of(self, name: QueueId, log: "OpenLog") -> tuple[int, int]:
        self._tails.pop(name, None)
        queue = self._open(name)
        begin, end = self._readable(name, queue, log)
        if end < queue.end and log.is_limited:
            self.held_back.add(name)
        bounds = queue.bounds(begin, end)
        tail = QueueTail.of(queue.directory, queue.end, queue.unit_bytes) if end == queue.end > begin else None
        if tail is not None:
            self._tails[name] = _Tail(tail, bounds, log.begin)
        return bounds

    def at_time(self, queue: QueueId, milliseconds: int, step_back_ms: int = 0, *, is_end: bool = False) -> int:
        """Return the offset of the first message stored at `milliseconds` or later, the end if there is none.

        This is right if no store timestamp is more than `step_back_ms` below an earlier one of the queue.  An
        unreadable message counts as later, or with `is_end` as earlier: so a read from there, or up to there, includes
        it.
        """
        unknown = milliseconds - step_back_ms - 1 if is_end else milliseconds
        opened = self._open(queue)
        with OpenLog(self.store) as log:

            def stored(physical_offset: int) -> int:
                found = log.store_timestamp(physical_offset)
                return unknown if found is None else found

            begin, end = self._readable(queue, opened, log)
            first = begin + bisect_left(
                range(begin, end), milliseconds - step_back_ms, key=lambda at: stored(opened.entry(at)[0])
            )
            for at in range(first, end, _SEARCH_ENTRIES):
                entries = opened.entries(at, min(at + _SEARCH_ENTRIES, end))
                for index, position in enumerate(entries["physical_offset"].tolist()):
                    if stored(position) >= milliseconds:
                        return opened.offset_of(at + index)
        return opened.bounds(begin, end)[1]

    def first_segment(self, ranges: Iterable[QueueRange]) -> int | None:
        """Return the physical offset of the first segment of `ranges`.

        None if that is the segment being written, which does not expire.
        """
        with OpenLog(self.store) as log:
            if len(log.starts) < 2:
                return None
            firsts = []
            for each in ranges:
                try:
                    queue = self._open(each.queue)
                    firsts.append(queue.entry(queue.number_at(each.begin))[0])
                except FileNotFoundError:
                    continue
            index = int(np.searchsorted(log.starts, min(firsts, default=log.begin), "right")) - 1
            return int(log.starts[max(index, 0)])

    def _queues(self) -> Iterator[QueueId]:
        selection = self.selection
        batched = set(filter(selection.wants_topic, topics_of(self.store.root, BATCH_DIRECTORY)))
        named = selection.named_topics
        plain = topics_of(self.store.root) if named is None else filter(can_be_file_name, named)
        for topic in sorted({*filter(selection.wants_topic, plain), *batched}):
            numbers = set(_queue_ids(self.store, DIRECTORY, topic))
            if topic in batched:
                numbers.update(_queue_ids(self.store, BATCH_DIRECTORY, topic))
            for number in sorted(numbers):
                queue = QueueId(self.store.broker_name, topic, number)
                if selection.assigned is None or number in selection.assigned[topic]:
                    if topic in batched:
                        check_kind(self.store.root, queue)
                    yield queue

    def _open(self, queue: QueueId) -> OffsetQueue:
        opened = open_queue(self.store.root, queue, self._ends.get(queue, 0))
        self._ends[queue] = opened.end
        return opened

    def _readable(self, name: QueueId, queue: OffsetQueue, log: "OpenLog") -> tuple[int, int]:
        """Return the numbers [begin, end) of the entries that are readable now."""
        begin, end = queue.begin, queue.end
        if begin < end and queue.entry(begin)[0] < log.begin:
            begin += bisect_left(range(begin, end), log.begin, key=lambda at: queue.entry(at)[0])
        if begin < end:
            last = queue.entry(end - 1)
            if self._stood.get(name) != (end - 1, last[0]):
                if not log.has_record(*last):
                    end = self._whole_end(name, queue, begin, end, log)
                if begin < end:
                    self._stood[name] = (end - 1, queue.entry(end - 1)[0])
        return begin, end

    @staticmethod
    def _whole_end(name: QueueId, queue: OffsetQueue, begin: int, end: int, log: "OpenLog") -> int:
        """Return the end of a queue that is ahead of its log: the broker was killed, or is writing."""
        found = begin + bisect_left(range(begin, end), True, key=lambda at: not log.has_record(*queue.entry(at)))
        logger.info("event=queue_ahead_of_log queue=%s entries=%d", name, end - found)
        return found


@dataclass(frozen=True)
class _Tail:
    """Last result for a queue: its bounds stay valid while the ends of the queue and of the log are unchanged."""

    tail: QueueTail
    bounds: tuple[int, int]
    log_begin: int


class OpenLog(ExitStack):
    """Segments of a store, each opened once, at its first use."""

    def __init__(self, store: StoreDirectory) -> None:
        super().__init__()
        self._store = store
        self._limit = confirm_limit(store.root)
        self._paths = log_paths(store.root)
        self.begin = self._paths[0][0] if self._paths else 0
        self.starts = np.array([start for start, _ in self._paths], np.int64)
        self._open: dict[int, Segment | None] = {}

    @property
    def is_limited(self) -> bool:
        """Whether consumers may see only a part of the log."""
        return self._limit is not None

    def segment(self, index: int) -> Segment | None:
        """Return the segment at `index` in `starts`, None if it has been deleted."""
        if index not in self._open:
            start, path = self._paths[index]
            try:
                self._open[index] = self.enter_context(Segment(path, start))
            except FileNotFoundError:
                self._open[index] = None
        return self._open[index]

    def has_record(self, physical_offset: int, size: int) -> bool:
        """Return whether a complete record of `size` bytes begins at `physical_offset`, and consumers may see it."""
        if self._limit is not None and physical_offset + size > self._limit:
            return False
        segment = self._holding(physical_offset)
        if segment is None:
            return False
        span = segment.span(physical_offset - segment.start)
        return span is not None and span.size == size and segment.is_whole(physical_offset - segment.start)

    def store_timestamp(self, physical_offset: int) -> int | None:
        """Return the store timestamp of the record there, ms; None if its segment was deleted or shortened."""
        segment = self._holding(physical_offset)
        return None if segment is None else segment.store_timestamp(physical_offset - segment.start)

    def _holding(self, physical_offset: int) -> Segment | None:
        index = int(np.searchsorted(self.starts, physical_offset, "right")) - 1
        segment = self.segment(index) if index >= 0 else None
        if segment is None or physical_offset + MIN_RECORD_BYTES > segment.start + segment.size:
            return None
        return segment


def _queue_ids(store: StoreDirectory, kind: str, topic: str) -> list[int]:
    try:
        names = os.listdir(store.root / kind / topic)  # noqa: PTH208  # names are enough, and faster
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [int(name) for name in names if name.isdecimal()]
