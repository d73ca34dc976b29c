"""The checkpoints of one revive queue that are read but not done, because acknowledgements may still come.

A checkpoint becomes readable a second before its messages are redelivered, an acknowledgement at that time, and the
timer that delivers both is coarse.  So a checkpoint is settled when it has been due for `SETTLE_MS` and no earlier
record can still be under way.  Then its unacknowledged messages are redelivered.
Source: RocketMQ 5.3.3, `PopReviveService.consumeReviveMessage`, `mergeAndRevive`.  There each round reads the window
from the log again, and an acknowledgement that comes before its checkpoint is lost.
"""

import heapq
import logging
from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from broker.pop.records import ACK_INTERVAL_MS, AckMsg, PopCheckPoint
from sprocket.common.logs.peer_lines import peer_lines

logger = logging.getLogger(__name__)

SETTLE_MS: Final = ACK_INTERVAL_MS + 1000
# Reading stops while this many are held; with the timer wheel on that is the volume of a few seconds.
MAX_HELD: Final = 65_536
# `PopCheckPoint.num` is a byte.
_MAX_MESSAGES: Final = 127

# Topic, group, queue, first offset, pop time, broker: equal for a checkpoint and its acknowledgements.
MergeKey: TypeAlias = tuple[str, str, int, int, int, str]


class Held:
    """A checkpoint, or acknowledgements that came before their checkpoint.

    For the latter `checkpoint` is None, and `acknowledged` has the queue offsets.
    """

    __slots__ = ("acknowledged", "checkpoint", "due", "is_done", "is_taken", "key", "revive_at", "revive_offset")

    def __init__(self, key: MergeKey, revive_offset: int, revive_at: int, due: float) -> None:
        self.key = key
        self.revive_offset = revive_offset
        self.revive_at = revive_at  # ms
        self.due = due  # monotonic
        self.checkpoint: PopCheckPoint | None = None
        self.acknowledged: list[int] = []
        self.is_taken = False  # while it is being revived
        self.is_done = False

    def acknowledge(self, offsets: Iterable[int]) -> None:
        """Mark the messages at queue `offsets` as acknowledged."""
        checkpoint = self.checkpoint
        if checkpoint is None:
            self.acknowledged += offsets
            return
        for offset in offsets:
            index = checkpoint.index_of(offset)
            if index < 0:
                peer_lines.warning(logger, "", "event=ack_without_message offset=%d checkpoint=%s", offset, checkpoint)
            else:
                checkpoint.bm |= 1 << index


def open_indexes(checkpoint: PopCheckPoint) -> list[int]:
    """Return the indexes of the checkpoint's unacknowledged messages."""
    return [index for index in range(checkpoint.n) if not checkpoint.bm >> index & 1]


def is_sound(checkpoint: PopCheckPoint) -> bool:
    """Return whether the checkpoint names possible messages."""
    distances = checkpoint.d
    return bool(
        checkpoint.t and checkpoint.c and 0 <= checkpoint.n <= _MAX_MESSAGES
        and (not distances or len(distances) >= checkpoint.n)
    )  # fmt: skip


class ReviveWindow:
    """Records of one revive queue in their order.  Times: wall clock in ms, monotonic in seconds.

    A checkpoint's time counts from when it is read, so steps of the wall clock change nothing.
    """

    def __init__(self, broker_name: str, next_offset: int) -> None:
        self._broker_name = broker_name
        self.next_offset = next_offset  # offset of the next record to read
        # The latest due time of the records read, ms.
        self._end_at = 0
        self._by_key: dict[MergeKey, Held] = {}
        # In the order of their records, also done ones after one that is not.
        self._order: deque[Held] = deque()
        # (due, revive offset, held); the entry of a changed time stays.
        self._times: list[tuple[float, int, Held]] = []

    def __len__(self) -> int:
        return len(self._order)

    @property
    def is_full(self) -> bool:
        """Whether reading must wait until some are done."""
        return len(self._order) >= MAX_HELD

    @property
    def done_offset(self) -> int:
        """The last offset up to which every record is done."""
        order = self._order
        while order and order[0].is_done:
            order.popleft()
        return (order[0].revive_offset if order else self.next_offset) - 1

    @property
    def oldest_revive_at(self) -> int | None:
        """Due time of the first held checkpoint, ms."""
        return next((held.revive_at for held in self._order if not held.is_done), None)

    # Records

    def take_checkpoint(self, checkpoint: PopCheckPoint, deliver_at: int, now: int, monotonic: float) -> None:
        """Add the checkpoint at revive offset `ro`, which was due at `deliver_at` and is read `now`."""
        self._end_at = max(self._end_at, deliver_at)
        if not is_sound(checkpoint):
            peer_lines.error(logger, "", "event=checkpoint_dropped checkpoint=%s", checkpoint)
            return
        checkpoint.bm &= 0xFFFFFFFF  # A Java int.
        key = self._key(checkpoint)
        held = self._by_key.get(key)
        if held is not None and held.checkpoint is not None and _is_same(held.checkpoint, checkpoint):
            return  # The timer delivered it twice: it counts once.
        # If the clock stepped back since the pop, hold the checkpoint no longer than its invisible time.
        left_ms = min(checkpoint.revive_time - now, max(0, checkpoint.it))
        due = monotonic + (left_ms + SETTLE_MS) / 1000
        if held is None or held.checkpoint is not None:
            held = self._hold(Held(key, checkpoint.ro, checkpoint.revive_time, due))
        else:
            # It keeps the offset of the acknowledgements that came first: after a restart they must be read again.
            held.revive_at, held.due = checkpoint.revive_time, due
            heapq.heappush(self._times, (due, held.revive_offset, held))
        held.checkpoint = checkpoint
        held.acknowledge(held.acknowledged)

    def take_ack(
        self, ack: AckMsg, offsets: Iterable[int], revive_offset: int, deliver_at: int, now: int, monotonic: float
    ) -> None:
        """Add the acknowledgement at `revive_offset` of the messages at queue `offsets`."""
        self._end_at = max(self._end_at, deliver_at)
        key = self._key(ack)
        held = self._by_key.get(key)
        if held is None:
            # Usually it is late: its checkpoint is done.
            due = monotonic + (min(deliver_at - now, ACK_INTERVAL_MS) + SETTLE_MS) / 1000
            held = self._hold(Held(key, revive_offset, deliver_at, due))
        held.acknowledge(offsets)

    def acknowledge(self, ack: AckMsg, offsets: Iterable[int]) -> None:
        """Acknowledge messages of a held checkpoint, without a record in this queue."""
        held = self._by_key.get(self._key(ack))
        if held is not None:
            held.acknowledge(offsets)

    def skip(self, deliver_at: int) -> None:
        """Note a record that is neither; it only shows how far the timer has come."""
        self._end_at = max(self._end_at, deliver_at)

    def _hold(self, held: Held) -> Held:
        self._by_key[held.key] = held
        self._order.append(held)
        heapq.heappush(self._times, (held.due, held.revive_offset, held))
        return held

    def _key(self, record: PopCheckPoint | AckMsg) -> MergeKey:
        return (record.t, record.c, record.q, record.so, record.pt, record.bn or self._broker_name)

    # What is settled

    def next_due(self) -> float | None:
        """Return when `take_settled` may find something, monotonic; None if nothing is held."""
        return self._times[0][0] if self._times else None

    def take_settled(self, monotonic: float, nothing_on_its_way: bool) -> Held | None:
        """Return the next checkpoint that is settled; None if there is none.

        The caller must call `finish` or `put_back` for it.  With `nothing_on_its_way` everything that was due by now
        has been read; otherwise only what later records prove is settled.
        """
        times = self._times
        while times and times[0][0] <= monotonic:
            due, _, held = times[0]
            if not held.is_taken and not held.is_done and held.due == due:
                if not nothing_on_its_way and self._end_at - held.revive_at <= SETTLE_MS:
                    return None
                heapq.heappop(times)
                if held.checkpoint is not None:
                    held.is_taken = True
                    return held
                self.finish(held)
            else:
                heapq.heappop(times)
        return None

    def put_back(self, held: Held) -> None:
        """Let `take_settled` return it again."""
        held.is_taken = False
        heapq.heappush(self._times, (held.due, held.revive_offset, held))

    def finish(self, held: Held) -> None:
        """Mark it as done."""
        held.is_done = True
        if self._by_key.get(held.key) is held:
            del self._by_key[held.key]


def _is_same(one: PopCheckPoint, other: PopCheckPoint) -> bool:
    return (one.n, one.it, one.d or [], one.rp) == (other.n, other.it, other.d or [], other.rp)
