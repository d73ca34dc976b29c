"""Decides which units of the ConsumeQueues recovery keeps: by offset, against the log and the list of queues.

Only both ends of a queue are looked at here, whatever its length; what lies between is as it was written, or was
damaged on the disk.  Source of the cases: RocketMQ 5.3.3, `ConsumeQueue.recover`, `correctMinOffset`.
"""

from collections.abc import Callable

from sprocket.remoting.message.record import MIN_RECORD_BYTES
from store.dispatch.deleted_topics import DeletedTopics
from store.dispatch.redispatch import QueueIncomplete
from store.flush.queue_list import QueueList
from store.log.commit_log import CommitLog
from store.queue.blank_entries import Entry, first_unit
from store.queue.consume_queue import BLANK_SIZE
from store.queue.consume_queue_table import ConsumeQueueTable, is_light
from store.queue.logic_queue import LogicQueue
from store.queue.multi_dispatch import places
from store.record.record import Record, decode


class QueueCheck:
    """One check of all queues of a table."""

    def __init__(self, log: CommitLog, table: ConsumeQueueTable) -> None:
        self._log = log
        self._table = table
        # (physical offset, size) of the newest record before the list's log offset.
        self.newest: tuple[int, int] | None = None
        # One past the last byte of a record that must be there: after a clean stop because an entry names it, with a
        # list because the entry is one that it says is on the disk.
        self.claimed_offset = 0

    def keep_listed(self, listed: QueueList, deleted: DeletedTopics | None, *, clean: bool) -> None:
        """Keep of each queue what `listed` says is on the disk.  Raises `QueueIncomplete` if it is not there."""
        expected = {
            key: end
            for key, end in listed.end_units.items()
            # A topic deleted since then was written down before its files went.
            if deleted is None or not deleted.offset_of(key[0]) or deleted.offset_of(key[0]) < listed.log_offset
        }
        for key in expected.keys() - self._table.by_key.keys():
            raise QueueIncomplete(f"{key[0]} queue {key[1]} is gone, it had {expected[key]} entries")
        for key, queue in list(self._table.by_key.items()):
            end = expected.get(key, 0)
            if end:
                self._keep(queue, end, listed, clean)
            else:
                queue.destroy()

    def _keep(self, queue: LogicQueue, end: int, listed: QueueList, clean: bool) -> None:
        first = queue.first_unit
        # Files at the front go when the log's oldest segments go, and not without.
        had_first = listed.first_units.get((queue.topic, queue.queue_id), 0)
        is_front_lost = first > had_first and self._log.min_offset == listed.log_min_offset
        if is_front_lost or not first < end <= queue.capacity_unit:
            raise QueueIncomplete(
                f"{queue.directory} has files for {first} to before {queue.capacity_unit},"
                f" it had entries from {had_first} to {end}"
            )
        oldest, last = queue.unit(first), queue.unit(end - 1)
        start = first
        if self._is_gone(oldest):
            start = first_unit(queue, first, end, lambda entry: not self._is_gone(entry))
            oldest = queue.unit(start)
        if start < end:
            if last is not None and last[1] != BLANK_SIZE and self._is_gone(last):
                raise QueueIncomplete(f"{queue.directory} entry {end - 1} points before the log, older ones into it")
            self._expect(queue, end - 1, last)
            if start < end - 1:
                self._expect(queue, start, oldest)
            if last is not None and last[0] < listed.log_offset and (self.newest is None or last[0] > self.newest[0]):
                self.newest = last[:2]
            if last is not None and not self._is_gone(last):
                self.claimed_offset = max(self.claimed_offset, last[0] + last[1])
        queue.set_range(start, end, cut=not clean or not _is_empty(queue, end))

    def _expect(self, queue: LogicQueue, unit: int, entry: Entry | None) -> None:
        if not self._holds(queue, unit, entry, None):
            raise QueueIncomplete(f"{queue.directory} entry {unit} is not what the log says")

    def keep_holding(self, bound: int, *, clean: bool) -> int:
        """Without a list: keep of each queue the entries that hold and whose records begin before `bound`.

        Return where the newest of these records begins, the log's begin without one.
        """
        return max((self._keep_front(queue, bound, clean) for queue in self._table), default=self._log.min_offset)

    def _keep_front(self, queue: LogicQueue, bound: int, clean: bool) -> int:
        first = queue.first_unit
        end = first_false(first, queue.capacity_unit, lambda u: self._holds(queue, u, queue.unit(u), bound))
        start = first_unit(queue, first, end, lambda entry: not self._is_gone(entry))
        if clean:
            self._note_claim(queue, end)
        queue.set_range(start, end, cut=not clean or not _is_empty(queue, end))
        last = queue.unit(end - 1) if end > start else None
        return self._log.min_offset if last is None else max(self._log.min_offset, last[0])

    def _note_claim(self, queue: LogicQueue, unit: int) -> None:
        entry = queue.unit(unit)
        if entry is not None and MIN_RECORD_BYTES <= entry[1] < BLANK_SIZE and entry[0] >= self._log.min_offset:
            end = entry[0] + entry[1]
            if end <= self._log.segment_end(entry[0]) and entry[0] < self._log.wrote_offset:
                self.claimed_offset = max(self.claimed_offset, end)

    def _holds(self, queue: LogicQueue, unit: int, entry: Entry | None, bound: int | None) -> bool:
        """Whether `entry`, that of `unit`, is one to keep: true for a prefix of the units, false behind it."""
        if entry is None:
            return False
        if self._is_gone(entry):
            return True
        physical_offset, size, _ = entry
        if size < MIN_RECORD_BYTES or (bound is not None and physical_offset >= bound):
            return False
        view = self._log.slice_at(physical_offset, size)
        record = None if view is None else decode(view, check_crc=False)
        return isinstance(record, Record) and record.physical_offset == physical_offset and _is_at(queue, unit, record)

    def _is_gone(self, entry: Entry | None) -> bool:
        """Whether `entry` stands for a record that the log no longer holds."""
        if entry is None or entry[1] <= 0 or entry[0] < 0:
            return False
        return entry[1] == BLANK_SIZE or entry[0] < self._log.min_offset


def _is_at(queue: LogicQueue, unit: int, record: Record) -> bool:
    """Whether `record` says that it is at this place of the queue."""
    if record.topic == queue.topic and record.queue_id == queue.queue_id:
        return queue.agrees(unit, record)
    return is_light(queue.topic) and (queue.topic, unit) in places(bytes(record.properties))


def restore_expired(table: ConsumeQueueTable, listed: QueueList, deleted: DeletedTopics | None) -> None:
    """After a rebuild: let queues whose messages have all expired go on at the offset that they had reached."""
    for (topic, queue_id), end in listed.end_units.items():
        if deleted is not None and deleted.offset_of(topic) >= max(1, listed.log_offset):
            continue
        queue = table.get_or_create(topic, queue_id)
        if not queue.is_batch and queue.next_offset == 0 and end > 0:
            queue.put(end - 1, 0, BLANK_SIZE, 0, 0, 1)
            queue.set_range(end, end, cut=False)


def _is_empty(queue: LogicQueue, unit: int) -> bool:
    entry = queue.unit(unit)
    return entry is None or entry == (0, 0, 0)


def first_false(start: int, end: int, holds: Callable[[int], bool]) -> int:
    """First number of ``[start, end)`` for which `holds` is false, `end` if none; before it all are true."""
    # Steps that double first: most queues are nearly empty, and each probe far behind their last entry would make
    # the system fetch pages of a hole.
    origin, probe = start, start
    while probe < end and holds(probe):
        start = probe + 1
        probe += probe - origin + 1
    end = min(end, probe)
    while start < end:
        middle = (start + end) // 2
        if holds(middle):
            start = middle + 1
        else:
            end = middle
    return start
