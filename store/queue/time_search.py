"""Search for the offset of a time in a queue.  Source: RocketMQ 5.3.3, `ConsumeQueue.getOffsetInQueueByTime`.

`BatchConsumeQueue.getOffsetInQueueByTime` returns the last batch if all are older, and misses the UPPER bound unless a
batch has exactly that time.  Here both kinds of queue follow the rules of `ConsumeQueue`.
"""

from typing import Final

from store.log.commit_log import CommitLog
from store.queue.blank_entries import next_entry
from store.queue.get_result import Boundary
from store.queue.logic_queue import LogicQueue

_NEVER: Final = 1 << 63


def offset_by_time(queue: LogicQueue, log: CommitLog, timestamp_ms: int, boundary: Boundary) -> int:
    """Return the first offset whose message is not older than `timestamp_ms` (LOWER), or the last not newer (UPPER).

    LOWER gives `max_offset` if all are older; UPPER gives `min_offset` if all are newer.  If store times step back,
    several offsets may qualify.  The result is one of them: the message before it and the message at it are on
    different sides of the time.  For a record with many messages it is the first of them.
    """
    low, high = queue.visible_units()
    if low >= high:
        return queue.offset_of(high)
    start = low
    upper = boundary is Boundary.UPPER
    end = high
    while low < high:
        middle = (low + high) // 2
        found = next_entry(queue, middle, end)
        # A message that is gone (-1) counts as older than any time; if only blanks follow, they count as newer.
        time = _NEVER if found is None else log.store_time_at(found[1][0], found[1][1])
        if time <= timestamp_ms if upper else time < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return queue.offset_of(max(start, low - 1) if upper else low)
