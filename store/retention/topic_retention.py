"""Retention per topic: the age and the bytes of each queue that consumers may still read.

It moves only the minimum offsets of the topic's queues.  The log keeps the messages until its own retention removes
them, and ConsumeQueue files follow the log.  While the broker runs a minimum offset never decreases.  After a restart
it is computed again before anybody reads.

Bytes are those of the records, counted for each queue back from its newest message.  The count is kept, so later rounds
read only new and dropped messages, not the whole queue.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from store.log.commit_log import CommitLog
from store.queue.consume_queue import BLANK_SIZE
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.get_result import Boundary
from store.queue.logic_queue import LogicQueue
from store.queue.time_search import offset_by_time
from store.retention.queue_trim import raise_min

# Entries to read together, and per queue and round: about 20 ms of work.
_CHUNK: Final = 64 * 1024
_CHUNKS_PER_ROUND: Final = 64


class TopicRule(NamedTuple):
    """What consumers may still read of a topic; None means no limit."""

    max_age_ms: int | None
    max_bytes: int | None


class TopicRetention:
    """Retention by the topics' rules.  It belongs to the owner thread."""

    def __init__(self, table: ConsumeQueueTable, log: CommitLog) -> None:
        self._table = table
        self._log = log
        self._rules: dict[str, TopicRule] = {}
        self._held: dict[tuple[str, int], HeldBytes] = {}

    def set_rules(self, rules: Mapping[str, TopicRule]) -> None:
        """Replace all rules."""
        self._rules = {topic: rule for topic, rule in rules.items() if rule != TopicRule(None, None)}
        self._held = {key: held for key, held in self._held.items() if self._bounds_bytes(key[0])}

    def _bounds_bytes(self, topic: str) -> bool:
        rule = self._rules.get(topic)
        return rule is not None and rule.max_bytes is not None

    def apply(self, now_ms: int) -> int:
        """Move minimum offsets as the rules say.  Return how many moved."""
        if not self._rules:
            return 0
        moved = 0
        for queue in self._table:
            rule = self._rules.get(queue.topic)
            if rule is not None:
                moved += self._apply_time(queue, rule, now_ms) + self._apply_bytes(queue, rule)
        return moved

    def _apply_time(self, queue: LogicQueue, rule: TopicRule, now_ms: int) -> bool:
        if rule.max_age_ms is None:
            return False
        return raise_min(queue, offset_by_time(queue, self._log, now_ms - rule.max_age_ms, Boundary.LOWER))

    def _apply_bytes(self, queue: LogicQueue, rule: TopicRule) -> bool:
        if rule.max_bytes is None:
            return False
        key = queue.topic, queue.queue_id
        held = self._held.get(key)
        if held is None or not held.counts(queue):
            held = self._held[key] = HeldBytes(queue)
        return raise_min(queue, held.start_within(rule.max_bytes))


class HeldBytes:
    """Bytes of a queue's messages ``[start, end)``, counted back from the newest and kept up to date."""

    __slots__ = ("_end", "_is_counted", "_queue", "_start", "size_bytes")

    def __init__(self, queue: LogicQueue) -> None:
        self._queue = queue
        self._start = self._end = queue.max_offset
        # Whether the count has reached the oldest message or the limit.
        self._is_counted = False
        self.size_bytes = 0

    def counts(self, queue: LogicQueue) -> bool:
        """Return whether this is the count of `queue` as it is: not since deleted, truncated, or trimmed by others."""
        return queue is self._queue and self._end <= queue.max_offset and queue.first_offset <= self._start

    def start_within(self, max_bytes: int) -> int:
        """Return the start of the newest messages with at most `max_bytes` together.  The newest is always kept.

        A long count takes several calls; until it is done nothing is dropped.
        """
        queue = self._queue
        self.size_bytes += _sum(queue, self._end, queue.max_offset)
        self._end = queue.max_offset
        if not self._is_counted and not self._count_back(max_bytes):
            return queue.min_offset
        if queue.min_offset > self._start:
            self.size_bytes -= _sum(queue, self._start, queue.min_offset)
            self._start = queue.min_offset
        for _ in range(_CHUNKS_PER_ROUND):
            if self.size_bytes <= max_bytes or not self._drop_oldest(self.size_bytes - max_bytes):
                break
        return self._start

    def _count_back(self, max_bytes: int) -> bool:
        queue = self._queue
        for _ in range(_CHUNKS_PER_ROUND):
            if self._start <= queue.min_offset or self.size_bytes > max_bytes:
                self._is_counted = True
                return True
            start = _unit_start(queue, max(queue.min_offset, self._start - _CHUNK))
            self.size_bytes += _sum(queue, start, self._start)
            self._start = start
        return False

    def _drop_oldest(self, excess_bytes: int) -> bool:
        """Drop the oldest messages until `excess_bytes` are gone, or those of one run.  Return whether to continue."""
        for offset, units in _pieces(self._queue, self._start, self._end):
            gone = np.cumsum(_sizes(units))
            count = int(np.searchsorted(gone, excess_bytes)) + 1
            after = _offset_after(self._queue, offset, units)
            if count >= len(units) and after < self._end:
                self.size_bytes -= int(gone[-1])
                self._start = after
                return True
            count = min(count, len(units) - 1)
            if count:
                self.size_bytes -= int(gone[count - 1])
                self._start = _offset_of(self._queue, offset, units, count)
            return False
        return False


def _pieces(queue: LogicQueue, start: int, end: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """Return the units of the messages ``[start, end)`` in runs, each with the offset at which it begins."""
    while start < end:
        units = queue.entries(start, min(end - start, _CHUNK))
        if not len(units):
            return
        yield start, units
        start = _offset_after(queue, start, units)


def _sizes(units: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    sizes = units["size"].astype(np.int64)
    sizes[sizes == BLANK_SIZE] = 0
    return sizes


def _sum(queue: LogicQueue, start: int, end: int) -> int:
    return sum(int(_sizes(units).sum()) for _, units in _pieces(queue, start, end))


def _offset_of(queue: LogicQueue, offset: int, units: npt.NDArray[np.void], index: int) -> int:
    """Return the queue offset of unit `index` of a run that begins at `offset`."""
    return int(units["base_offset"][index]) if queue.is_batch else offset + index


def _offset_after(queue: LogicQueue, offset: int, units: npt.NDArray[np.void]) -> int:
    last = _offset_of(queue, offset, units, len(units) - 1)
    return last + (int(units["batch_size"][-1]) if queue.is_batch else 1)


def _unit_start(queue: LogicQueue, offset: int) -> int:
    """Return the offset at which the record begins that holds `offset`."""
    if not queue.is_batch:
        return offset
    units = queue.entries(offset, 1)
    return min(offset, int(units["base_offset"][0])) if len(units) else offset
