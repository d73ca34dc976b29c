"""Trim of ConsumeQueues after the log's oldest segments were removed: minimum offsets first, then files.

Source: RocketMQ 5.3.3, `ConsumeQueue.correctMinOffset`, `deleteExpiredFile`, `CleanConsumeQueueService`.  A queue whose
messages have all expired keeps its last file, which holds the offset at which it continues.
"""

import logging
from collections.abc import Callable
from typing import Final

from sprocket.common.errors import StoreError
from store.disk.disk import DiskFile
from store.flush.group_commit import Notify
from store.log.commit_log import CommitLog
from store.queue.blank_entries import first_unit
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.logic_queue import LogicQueue

_log = logging.getLogger(__name__)
# Queues to trim in one turn of the owner thread: a send waits for no more than these.
_QUEUES_PER_TURN: Final = 64

# Callback that takes the dropped files of a queue.
Dropped = Callable[[LogicQueue, list[DiskFile]], None]


class QueueTrim:
    """Trim of all queues after the log's minimum offset moved, some per turn.  It belongs to the owner thread."""

    def __init__(self, table: ConsumeQueueTable, log: CommitLog, notify: Notify, dropped: Dropped) -> None:
        self._table = table
        self._log = log
        self._notify = notify
        self._dropped = dropped
        self._todo: list[tuple[str, int]] = []
        self._is_running = False
        self._trimmed_for = 0
        # Physical offset of each queue's oldest message.  A queue is trimmed only after the log has passed it.
        self._oldest: dict[tuple[str, int], tuple[LogicQueue, int]] = {}

    def start(self) -> None:
        """Start from the log's present minimum offset: recovery has already trimmed the queues to it."""
        self._trimmed_for = self._log.min_offset

    def begin(self) -> None:
        """Start to trim what the log has passed.  Later turns continue."""
        if self._log.min_offset == self._trimmed_for:
            return
        self._trimmed_for = self._log.min_offset
        self._todo = list(self._table.by_key)
        self._oldest = {key: known for key, known in self._oldest.items() if self._table.by_key.get(key) is known[0]}
        if not self._is_running:
            self._is_running = True
            self._turn()

    def stop(self) -> None:
        """Stop trimming."""
        self._todo.clear()

    def _turn(self) -> None:
        keys, self._todo = self._todo[:_QUEUES_PER_TURN], self._todo[_QUEUES_PER_TURN:]
        for key in keys:
            queue = self._table.by_key.get(key)
            known = self._oldest.get(key)
            if queue is not None and (known is None or known[0] is not queue or known[1] < self._log.min_offset):
                self._try_trim(key, queue)
        self._is_running = bool(self._todo)
        if self._is_running:
            self._notify(self._turn)

    def _try_trim(self, key: tuple[str, int], queue: LogicQueue) -> None:
        try:
            self._trim(key, queue)
        except StoreError as error:
            # The queue is tried again when the log's minimum offset moves next.
            _log.error("event=queue_not_trimmed topic=%s queue=%d reason=%r", queue.topic, queue.queue_id, str(error))

    def _trim(self, key: tuple[str, int], queue: LogicQueue) -> None:
        unit = first_kept(queue, self._log.min_offset)
        raise_min(queue, queue.offset_of(unit))
        files = queue.drop_before(unit)
        # This record may not be confirmed yet.  The next message of an empty queue lies after all others.
        is_there = unit < queue.visible_units()[1] or queue.written_offset > queue.max_offset
        entry = queue.unit(unit) if is_there else None
        self._oldest[key] = (queue, self._log.wrote_offset if entry is None else entry[0])
        if files:
            self._dropped(queue, files)


def first_kept(queue: LogicQueue, min_physical_offset: int) -> int:
    """Return the first visible unit whose record is still in the log; the end of the visible ones if none is."""
    return first_unit(queue, queue.first_unit, queue.visible_units()[1], lambda entry: entry[0] >= min_physical_offset)


def raise_min(queue: LogicQueue, offset: int) -> bool:
    """Raise the minimum offset of `queue` to `offset`, never lower it.  Return whether it moved."""
    offset = min(offset, queue.max_offset)
    if offset <= queue.min_offset:
        return False
    queue.min_offset = offset
    return True
