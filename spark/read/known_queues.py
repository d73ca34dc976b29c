"""ConsumeQueues of a store that a plan needs, and how far the broker has dispatched the log to them.

A store may have thousands of queues: only needed ones are opened, each at most once.
"""

import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from spark.files.consume_queue import BATCH, PLAIN, ConsumeQueue, Kind, open_queue, open_queues, topics_of
from spark.files.segment import Positions, Segment
from spark.files.store_directory import SegmentFile, StoreDirectory
from sprocket.remoting.codec.java_text import java_text
from store.layout import HEAD

logger = logging.getLogger(__name__)

# Topics whose queues are a sample of all queues.
_SAMPLED_TOPICS: Final = 8
# Queues to ask for a record near a cut; more queues give a nearer record.
_CUT_QUEUES: Final = 4
# Topics to search for these queues; more only while no queue is found.
_CUT_TOPICS: Final = 32
# Size of the log's end to search for a record that is in its queue.
_TAIL_BYTES: Final = 4 * 1024 * 1024
# The last records are checked one by one up to this number, then in growing steps.
_LAST_RECORDS: Final = 16


class KnownQueues:
    """Queues of `store`, each as of its first opening."""

    def __init__(self, store: StoreDirectory) -> None:
        self._store = store
        self._of_topic: dict[tuple[str, str], list[ConsumeQueue]] = {}
        self._single: dict[tuple[str, int], list[ConsumeQueue]] = {}

    @property
    def root(self) -> Path:
        """Directory of the store."""
        return self._store.root

    @cached_property
    def topics(self) -> list[tuple[Kind, str]]:
        """Return every topic with a directory of queues, with the kind of queue."""
        return [(kind, topic) for kind in (PLAIN, BATCH) for topic in topics_of(self.root, kind[1])]

    def every(self) -> Iterator[ConsumeQueue]:
        """Yield all queues of the store, opened one by one."""
        for kind, topic in self.topics:
            yield from self._opened(kind, topic)

    def sample(self) -> Iterator[ConsumeQueue]:
        """Yield the queues of a few topics of each kind, and the queues that are already open."""
        for wanted in (PLAIN, BATCH):
            for kind, topic in islice((each for each in self.topics if each[0] is wanted), _SAMPLED_TOPICS):
                yield from self._opened(kind, topic)
        for found in self._single.values():
            yield from found

    def near(self, physical_offset: int) -> list[ConsumeQueue]:
        """Return a few queues that reach beyond `physical_offset`; empty only if no queue does."""
        near: list[ConsumeQueue] = []
        for number, (kind, topic) in enumerate(self.topics):
            if near and number >= _CUT_TOPICS:
                break
            for queue in self._opened(kind, topic):
                if queue.dispatched > physical_offset:
                    near.append(queue)
                if len(near) == _CUT_QUEUES:
                    return near
        return near

    def dispatched_to(self, segments: list[SegmentFile]) -> int:
        """Return the physical offset up to which the log is in the ConsumeQueues, 0 if they cannot be trusted.

        The broker dispatches in log order: if a record is in its queue, all earlier records are in theirs.  So one
        record near the end of the log is enough.  Without one, the last entry of every queue is read.
        """
        if not segments:
            return 0
        return self._dispatched_near_the_end(segments[-1]) or self._last_of_every(segments)

    def _dispatched_near_the_end(self, segment: SegmentFile) -> int:
        with Segment(segment.path, segment.start) as opened:
            positions = _last_records(opened, segment.end - segment.start)
            for position in (int(positions[-back]) for back in _backwards(positions.size)):
                record = opened.span(position)
                if record is None:
                    continue
                topic = java_text(opened.data[record.topic])
                queue_id: int = HEAD.unpack_from(opened.data, position)[3]
                at = segment.start + position
                if any(_holds(queue, at, record.size) for queue in self._queue(topic, queue_id)):
                    return at + record.size
        return 0

    def _last_of_every(self, segments: list[SegmentFile]) -> int:
        begin, end = segments[0].start, segments[-1].end
        last = (0, 0)
        for queue in self.every():
            past = queue.range_of(begin, end)[1]
            if past > queue.begin:
                last = max(last, queue.entry(past - 1))
        at, size = last
        for found in segments:
            if found.start <= at < found.end:
                with Segment(found.path, found.start) as segment:
                    record = segment.span(at - found.start)
                if record is not None and record.size == size:
                    return at + size
        logger.warning("event=queue_misfits_log store=%s last_entry=%d action=scan", self.root, at)
        return 0

    def _queue(self, topic: str, queue_id: int) -> list[ConsumeQueue]:
        """Return one queue of a topic, of either kind."""
        found = self._single.get((topic, queue_id))
        if found is None:
            # A name from the log is used as a path only if the directory has it.
            kinds = [kind for kind, known in self.topics if known == topic]
            opened = [open_queue(self.root, topic, queue_id, kind) for kind in kinds]
            found = self._single[topic, queue_id] = [queue for queue in opened if queue is not None]
        return found

    def _opened(self, kind: Kind, topic: str) -> list[ConsumeQueue]:
        found = self._of_topic.get((kind[1], topic))
        if found is None:
            found = self._of_topic[kind[1], topic] = open_queues(self.root, topic, kind)
        return found


def usual_file_bytes(queues: Iterable[ConsumeQueue]) -> dict[int, int]:
    """Return the size of files by the size of entries: all queues of one kind share it; a shorter file is truncated."""
    usual: dict[int, int] = {}
    for queue in queues:
        unit = queue.dtype.itemsize
        usual[unit] = max(usual.get(unit, 0), *queue.file_bytes, 0)
    return usual


def _holds(queue: ConsumeQueue, physical_offset: int, size: int) -> bool:
    first, past = queue.range_of(physical_offset, physical_offset + 1)
    return past > first and queue.entry(first) == (physical_offset, size)


def _last_records(segment: Segment, end: int) -> Positions:
    """Return the starts of records in the last `_TAIL_BYTES` before `end`, and of bytes in bodies that imitate one."""
    chains = [np.empty(0, np.int64)]
    at = segment.resync(max(0, end - _TAIL_BYTES), end)
    while at is not None:
        walk = segment.walk(at, end)
        chains.append(walk.positions)
        at = segment.resync(max(walk.stop, at + 1), end) if walk.stop < end else None
    return np.concatenate(chains)


def _backwards(count: int) -> Iterator[int]:
    """Yield 1, 2, 3 ..., then in growing steps up to `count`."""
    back = 1
    while back <= count:
        yield back
        back += 1 if back < _LAST_RECORDS else back // 4
