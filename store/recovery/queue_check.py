"""Check of ConsumeQueues against the log and the list of queues: which units does recovery keep?

It looks at both ends of a queue only.  The units between them are as written, unless the disk damaged them.
Source of the cases: RocketMQ 5.3.3, `ConsumeQueue.recover`, `correctMinOffset`.
"""

from collections.abc import Callable
from itertools import filterfalse
from typing import Final

from sprocket.remoting.message.record import MIN_RECORD_BYTES
from sprocket.remoting.message.topic_names import is_light
from store.dispatch.deleted_topics import DeletedTopics
from store.dispatch.redispatch import QueueIncomplete
from store.flush.queue_list import QueueKey, QueueList
from store.log.commit_log import CommitLog
from store.queue.blank_entries import first_unit
from store.queue.consume_queue import BLANK_SIZE
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.logic_queue import Entry, LogicQueue
from store.queue.multi_dispatch import names_only_place, places
from store.record.record import Record, decode, names_place

# What a queue has after its last entry, if nothing was written there.
_EMPTY: Final = (None, (0, 0, 0))


class QueueCheck:
    """Check of all queues of a table."""

    def __init__(self, log: CommitLog, table: ConsumeQueueTable) -> None:
        self._log = log
        self._table = table
        # (physical offset, size) of the newest record before the log offset of the list.
        self.newest: tuple[int, int] | None = None
        # Exclusive end of a record that must exist: an entry names it, and either the stop was clean or the list says
        # that the entry is on the disk.
        self.claimed_offset = 0

    def keep_listed(self, listed: QueueList, deleted: DeletedTopics | None, *, clean: bool) -> None:
        """Keep the units that `listed` says are on the disk.  Raises `QueueIncomplete` if one is missing."""
        expected = listed.end_units
        if deleted:
            # The deletion of a topic is noted before its files are removed.
            expected = {
                key: end
                for key, end in expected.items()
                if not deleted.offset_of(key[0]) or deleted.offset_of(key[0]) < listed.log_offset
            }
        for key in filterfalse(self._table.by_key.__contains__, expected):
            raise QueueIncomplete(f"{key[0]} queue {key[1]} is missing, it had {expected[key]} entries")
        for key, queue in list(self._table.by_key.items()):
            end = expected.get(key, 0)
            if end:
                self._keep(key, queue, end, listed, clean)
            else:
                queue.destroy()

    def _keep(self, key: QueueKey, queue: LogicQueue, end: int, listed: QueueList, clean: bool) -> None:
        first = queue.first_unit
        # Files at the front are removed only together with the log's oldest segments.
        had_first = listed.first_units.get(key, 0)
        is_front_lost = first > had_first and self._log.min_offset == listed.log_min_offset
        if is_front_lost or not first < end <= queue.capacity_unit:
            raise QueueIncomplete(
                f"{queue.directory} has files for entries {first} to {queue.capacity_unit},"
                f" it had entries from {had_first} to {end}"
            )
        oldest, last, following = queue.border_units(first, end)
        start = first
        if self._is_gone(oldest):
            start = first_unit(queue, first, end, lambda entry: not self._is_gone(entry))
            oldest = queue.unit(start)
        if start < end:
            is_last_gone = self._is_gone(last)
            if last is not None and last[1] != BLANK_SIZE and is_last_gone:
                raise QueueIncomplete(f"{queue.directory} entry {end - 1} points before the log, older ones into it")
            self._expect(queue, end - 1, last)
            if start < end - 1:
                self._expect(queue, start, oldest)
            if last is not None and last[0] < listed.log_offset and (self.newest is None or last[0] > self.newest[0]):
                self.newest = last[:2]
            if last is not None and not is_last_gone:
                self.claimed_offset = max(self.claimed_offset, last[0] + last[1])
        queue.set_range(start, end, cut=not clean or following not in _EMPTY)

    def _expect(self, queue: LogicQueue, unit: int, entry: Entry | None) -> None:
        if not self._holds(queue, unit, entry, None):
            raise QueueIncomplete(f"{queue.directory} entry {unit} disagrees with the log")

    def keep_holding(self, bound: int, *, clean: bool) -> int:
        """Keep valid entries whose records begin before `bound`.  For stores without a list of queues.

        Return the physical offset of the newest of these records; the log's first offset if there is none.
        """
        return max((self._keep_front(queue, bound, clean) for queue in self._table), default=self._log.min_offset)

    def _keep_front(self, queue: LogicQueue, bound: int, clean: bool) -> int:
        first = queue.first_unit
        end = first_false(first, queue.capacity_unit, lambda u: self._holds(queue, u, queue.unit(u), bound))
        start = first_unit(queue, first, end, lambda entry: not self._is_gone(entry))
        if clean:
            self._note_claim(queue, end)
        queue.set_range(start, end, cut=not clean or queue.unit(end) not in _EMPTY)
        last = queue.unit(end - 1) if end > start else None
        return self._log.min_offset if last is None else max(self._log.min_offset, last[0])

    def _note_claim(self, queue: LogicQueue, unit: int) -> None:
        entry = queue.unit(unit)
        if entry is not None and MIN_RECORD_BYTES <= entry[1] < BLANK_SIZE and entry[0] >= self._log.min_offset:
            end = entry[0] + entry[1]
            if end <= self._log.segment_end(entry[0]) and entry[0] < self._log.wrote_offset:
                self.claimed_offset = max(self.claimed_offset, end)

    def _holds(self, queue: LogicQueue, unit: int, entry: Entry | None, bound: int | None) -> bool:
        """Return whether to keep `entry`, that of `unit`.  True for a prefix of the units, false after it."""
        if entry is None:
            return False
        if self._is_gone(entry):
            return True
        physical_offset, size, _ = entry
        if size < MIN_RECORD_BYTES or (bound is not None and physical_offset >= bound):
            return False
        view = self._log.slice_at(physical_offset, size)
        if view is None:
            return False
        if is_light(queue.topic) and names_only_place(view, queue.topic, unit, physical_offset):
            return True
        if not queue.is_batch and names_place(view, queue.topic_bytes, queue.queue_id, unit, physical_offset):
            return True
        record = decode(view, check_crc=False)
        return isinstance(record, Record) and record.physical_offset == physical_offset and _is_at(queue, unit, record)

    def _is_gone(self, entry: Entry | None) -> bool:
        """Return whether retention has removed the record of `entry` from the log."""
        if entry is None or entry[1] <= 0 or entry[0] < 0:
            return False
        return entry[1] == BLANK_SIZE or entry[0] < self._log.min_offset


def _is_at(queue: LogicQueue, unit: int, record: Record) -> bool:
    """Return whether `record` names this queue and unit as its place."""
    if record.topic == queue.topic and record.queue_id == queue.queue_id:
        return queue.agrees(unit, record)
    return is_light(queue.topic) and (queue.topic, unit) in places(bytes(record.properties))


def restore_expired(table: ConsumeQueueTable, listed: QueueList, deleted: DeletedTopics | None) -> None:
    """After a rebuild, let queues whose messages have all expired continue at their old end."""
    for (topic, queue_id), end in listed.end_units.items():
        if deleted is not None and deleted.offset_of(topic) >= max(1, listed.log_offset):
            continue
        queue = table.get_or_create(topic, queue_id)
        if not queue.is_batch and queue.next_offset == 0 and end > 0:
            queue.put(end - 1, 0, BLANK_SIZE, 0, 0, 1)
            queue.set_range(end, end, cut=False)


def first_false(start: int, end: int, holds: Callable[[int], bool]) -> int:
    """Return the first number of ``[start, end)`` for which `holds` is false, else `end`.  True values come first."""
    # Double the steps first.  Most queues are nearly empty, and a probe far after the last entry makes the system
    # read pages of a hole.
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
