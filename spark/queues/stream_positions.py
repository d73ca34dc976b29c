"""Steps of a stream from one position to the next: the ranges of a micro-batch.  No I/O.

A batch reads each queue from its position in the start to its position in the end; a queue that is not in the start is
not read.  So a new or recreated queue first gets a position, and is read from the next batch on.  A batch that Spark
repeats after a crash reads exactly the same messages.  The first position of a stream is empty for the same reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from spark.queues.data_loss import LostRange
from spark.queues.positions import LATEST, OffsetsOption, QueueId, QueuePositions, from_queues, queues_of
from spark.queues.ranges import QueueRange
from spark.queues.source import Snapshot
from sprocket.common.errors import ConfigError


@dataclass(frozen=True)
class Step:
    """End of a micro-batch, and the messages that it will not find."""

    end: QueuePositions
    lost: tuple[LostRange, ...] = ()


def first_positions(now: Snapshot, asked: OffsetsOption) -> QueuePositions:
    """Return the start of a stream.  Raises ConfigError for offsets that the queues do not have."""
    asked.check_names(now.ranges)
    return from_queues(
        {queue: resolved(asked, queue, bounds) for queue, bounds in now.ranges.items()}, now.broker_names
    )


def resolved(asked: OffsetsOption, queue: QueueId, bounds: tuple[int, int]) -> int:
    """Return the queue offset for `asked`; it may precede the queue's begin if messages have expired."""
    begin, end = bounds
    offset = asked.of(queue)
    if offset < 0:
        return end if offset == LATEST else begin
    if offset > end:
        raise ConfigError(f"option {asked.name!r}: queue {queue} ends at {end}, it has no offset {offset}")
    return offset


def next_step(start: QueuePositions, now: Snapshot, max_messages: int | None) -> Step:
    """Return the end of the batch that begins at `start`: `max_messages` are divided by the lags of the queues."""
    known = queues_of(start)
    lost: list[LostRange] = []
    ends: dict[QueueId, int] = {}
    unread: dict[QueueId, QueueRange] = {}
    for queue, (begin, end) in now.ranges.items():
        at = known.get(queue)
        if at is None:
            ends[queue] = begin
        elif at > end and queue not in now.behind:
            why = "the topic was deleted and created again, or the log was truncated"
            lost.append(LostRange(queue, at, at, f"is past the queue's end {end}: {why}"))
            ends[queue] = begin
        else:
            if at < begin:
                lost.append(LostRange(queue, at, begin))
            unread[queue] = QueueRange(queue, max(at, begin), end)
            ends[queue] = max(at, begin)
    for queue, at in known.items():
        if queue in now.ranges:
            continue
        if queue.broker_name in now.broker_names and queue not in now.closed:
            lost.append(LostRange(queue, at, at, "and what followed was deleted with its queue"))
        else:
            ends[queue] = at  # it is closed, or its broker is away: keep its position
    ends.update(_admitted(unread, max_messages))
    return Step(from_queues(ends, {*now.broker_names, *start}), tuple(lost))


def batch_ranges(start: QueuePositions, end: QueuePositions, begins: Mapping[QueueId, int]) -> list[QueueRange]:
    """Return the ranges of the batch from `start` to `end`; messages before `begins` were reported as lost."""
    known = queues_of(start)
    ranges = []
    for queue, past in queues_of(end).items():
        if queue in known:
            ranges.append(QueueRange(queue, max(known[queue], min(begins.get(queue, 0), past)), past))
    return [each for each in ranges if len(each)]


def query_ranges(
    now: Snapshot, starting: OffsetsOption, ending: OffsetsOption
) -> tuple[list[QueueRange], list[LostRange]]:
    """Return the ranges of a batch query, and the requested ranges that have expired.  Raises ConfigError."""
    starting.check_names(now.ranges)
    ending.check_names(now.ranges)
    ranges, lost = [], []
    for queue, (begin, end) in sorted(now.ranges.items()):
        first, past = resolved(starting, queue, (begin, end)), resolved(ending, queue, (begin, end))
        if first < min(begin, past):
            lost.append(LostRange(queue, first, min(begin, past)))
        ranges.append(QueueRange(queue, max(first, begin), past))
    return [each for each in ranges if len(each)], lost


def _admitted(unread: Mapping[QueueId, QueueRange], max_messages: int | None) -> dict[QueueId, int]:
    """Return the end of each queue's part in a batch of `max_messages`."""
    total = sum(map(len, unread.values()))
    if max_messages is None or total <= max_messages:
        return {queue: max(each.begin, each.end) for queue, each in unread.items()}
    shares = {queue: len(each) * max_messages // total for queue, each in unread.items()}
    left = max_messages - sum(shares.values())
    for queue in sorted(unread, key=lambda queue: (shares[queue] - len(unread[queue]), queue)):
        if not left:
            break
        if shares[queue] < len(unread[queue]):
            shares[queue] += 1
            left -= 1
    return {queue: each.begin + shares[queue] for queue, each in unread.items()}
