"""The ConsumeQueues of a store as far as a plan looks at them, and how far they are written.

A store may have thousands of queues: each is opened at most once, and only those that a question is about.
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
from store.layout import HEAD

logger = logging.getLogger(__name__)

# Topics whose queues stand for those of all others.
_SAMPLED_TOPICS: Final = 8
# Queues that are asked for a record near a cut; each gives a true one, more give a nearer one.
_CUT_QUEUES: Final = 4
# So many topics are looked at for them, more only while there is no queue at all.
_CUT_TOPICS: Final = 32
# The end of the log in which a record is looked for that is in its queue.
_TAIL_BYTES: Final = 4 * 1024 * 1024
# So many of the last records are looked at one after the other, then ever fewer.
_LAST_RECORDS: Final = 16


class KnownQueues:
    """The queues of `store`, each as of its first opening."""

    def __init__(self, store: StoreDirectory) -> None:
        self._store = store
        self._of_topic: dict[tuple[str, str], list[ConsumeQueue]] = {}
        self._single: dict[tuple[str, int], list[ConsumeQueue]] = {}

    @property
    def root(self) -> Path:
        """The directory of the store."""
        return self._store.root

    @cached_property
    def topics(self) -> list[tuple[Kind, str]]:
        """Every topic that has a directory of queues, with their kind."""
        return [(kind, topic) for kind in (PLAIN, BATCH) for topic in topics_of(self.root, kind[1])]

    def every(self) -> Iterator[ConsumeQueue]:
        """All queues of the store, opened as they are asked for."""
        for kind, topic in self.topics:
            yield from self._opened(kind, topic)

    def sample(self) -> Iterator[ConsumeQueue]:
        """The queues of a few topics of each kind, and those that were opened one by one."""
        for wanted in (PLAIN, BATCH):
            for kind, topic in islice((each for each in self.topics if each[0] is wanted), _SAMPLED_TOPICS):
                yield from self._opened(kind, topic)
        for found in self._single.values():
            yield from found

    def near(self, physical_offset: int) -> list[ConsumeQueue]:
        """A few queues that reach beyond `physical_offset`; none only if no queue does."""
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
        """Physical offset up to which the ConsumeQueues point at the log; 0 if they cannot be trusted.

        The broker dispatches in log order, so all before a record that is in its queue are in theirs: one near the
        end of the log says it at once.  Where none is, every queue is asked for its last entry.
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
                topic = bytes(opened.data[record.topic]).decode(errors="replace")
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
        logger.warning("ConsumeQueue does not fit the log store=%s last_entry=%d scan=all", self.root, at)
        return 0

    def _queue(self, topic: str, queue_id: int) -> list[ConsumeQueue]:
        """One queue of a topic, of either kind."""
        found = self._single.get((topic, queue_id))
        if found is None:
            # A name that is read from the log is no path unless the directory has it.
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
    """The size of their files by that of their entries: all queues of one kind have it, a shorter file is cut off."""
    usual: dict[int, int] = {}
    for queue in queues:
        unit = queue.dtype.itemsize
        usual[unit] = max(usual.get(unit, 0), *queue.file_bytes, 0)
    return usual


def _holds(queue: ConsumeQueue, physical_offset: int, size: int) -> bool:
    first, past = queue.range_of(physical_offset, physical_offset + 1)
    return past > first and queue.entry(first) == (physical_offset, size)


def _last_records(segment: Segment, end: int) -> Positions:
    """Where records begin in the last `_TAIL_BYTES` before `end`, and what imitates one there in a body."""
    chains = [np.empty(0, np.int64)]
    at = segment.resync(max(0, end - _TAIL_BYTES), end)
    while at is not None:
        walk = segment.walk(at, end)
        chains.append(walk.positions)
        at = segment.resync(max(walk.stop, at + 1), end) if walk.stop < end else None
    return np.concatenate(chains)


def _backwards(count: int) -> Iterator[int]:
    """1, 2, 3 ... and then in ever longer steps, up to `count`."""
    back = 1
    while back <= count:
        yield back
        back += 1 if back < _LAST_RECORDS else back // 4
