"""Finds the offset of a time in a queue.  Source: RocketMQ 5.3.3, `ConsumeQueue.getOffsetInQueueByTime`."""

from store.commit_log import CommitLog
from store.consume_queue import ConsumeQueue
from store.get_result import Boundary


def offset_by_time(queue: ConsumeQueue, log: CommitLog, timestamp_ms: int, boundary: Boundary) -> int:
    """The first offset whose message is not older than `timestamp_ms` (LOWER), or the last not newer (UPPER).

    LOWER gives `max_offset` when all are older; UPPER gives `min_offset` when all are newer.  Where store
    times step back there may be several such places; the answer is one of them: the message before it is
    on the one side of the time and the message at it on the other.
    """
    low, high = queue.min_offset, queue.max_offset
    if low >= high:
        return high
    start = low
    upper = boundary is Boundary.UPPER
    while low < high:
        middle = (low + high) // 2
        time = store_time_of(queue, log, middle)
        # A message that is gone (-1) is older than any time.
        if time <= timestamp_ms if upper else time < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return max(start, low - 1) if upper else low


def store_time_of(queue: ConsumeQueue, log: CommitLog, offset: int) -> int:
    """Store timestamp, ms, of the message at `offset`; -1 if there is none."""
    entry = queue.entry(offset)
    return -1 if entry is None else log.store_time_at(entry[0], entry[1])
