"""What a group holds of each lite topic, which blocks further pops of it until it is acknowledged.

In memory: after a restart unacknowledged messages are delivered again.  An unacknowledged message stays invisible as
long as any other of its pop, so that the lite topic continues in order.
Source: RocketMQ 5.5.1, `MemoryConsumerOrderInfoManager`, `PopLiteMessageProcessor.transformOrderCountInfo`.
"""

import logging
from collections.abc import Sequence
from typing import Final

from broker.pop.order_info import ILLEGAL, NOTHING_TO_COMMIT, OrderInfo
from broker.pop.order_locks import OrderLocks, QueueKey
from sprocket.common.clock import Clock
from sprocket.common.logs.peer_lines import peer_lines

logger = logging.getLogger(__name__)

LITE_QUEUE_ID: Final = 0


class LiteOrder:
    """Light queue -> group -> the last pop.  Lives in the event loop's thread."""

    def __init__(self, clock: Clock, locks: OrderLocks) -> None:
        self._clock = clock
        self._locks = locks
        self._pops: dict[str, dict[str, OrderInfo]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def _find(self, queue: str, group: str) -> OrderInfo | None:
        return self._pops.get(queue, {}).get(group)

    def blocks(self, attempt_id: str | None, queue: str, group: str, invisible_ms: int) -> bool:
        """Return whether the group must wait: a message is invisible, and the pop does not repeat the last one."""
        info = self._find(queue, group)
        return info is not None and info.blocks(attempt_id, invisible_ms, self._clock.wall_ms())

    def has(self, queue: str, group: str) -> bool:
        """Return whether the last pop is known."""
        return self._find(queue, group) is not None

    def popped(
        self, attempt_id: str | None, queue: str, group: str, pop_time_ms: int, invisible_ms: int,
        offsets: Sequence[int],
    ) -> list[int]:  # fmt: skip
        """Note the delivery of the messages at `offsets`, at least one; return how often each was delivered before."""
        distances = [offsets[0], *(offset - offsets[0] for offset in offsets[1:])]
        now = self._clock.wall_ms()
        info = OrderInfo(pop_time_ms, invisible_ms, distances, last_consumed=now, attempt_id=attempt_id)
        before = self._find(queue, group)
        if before is not None:
            info.count_after(before)
        self._pops.setdefault(queue, {})[group] = info
        self._count += before is None
        self._changed(queue, group, info)
        counts = info.counts or {}
        return [counts.get(offset, 0) for offset in offsets]

    def commit_and_next(self, queue: str, group: str, offset: int, pop_time_ms: int) -> int:
        """Acknowledge the message at `offset` of a known pop.

        Return the offset to commit, `ILLEGAL` if the message was not delivered, or `NOTHING_TO_COMMIT` if it belongs
        to another pop.
        """
        info = self._find(queue, group)
        if info is None or pop_time_ms != info.pop_time:
            return NOTHING_TO_COMMIT
        offsets = info.offsets()
        if offset not in offsets:
            return ILLEGAL
        info.acknowledged |= 1 << offsets.index(offset)
        self._changed(queue, group, info)
        return info.next_offset()

    def show_at(self, queue: str, group: str, offset: int, pop_time_ms: int, visible_at_ms: int) -> None:
        """Make one message of a pop visible at `visible_at_ms`."""
        info = self._of_pop(queue, group, pop_time_ms)
        if info is not None and offset in info.offsets():
            info.visible_at = (info.visible_at or {}) | {offset: visible_at_ms}
            self._changed(queue, group, info)

    def suspend(self, queue: str, group: str, pop_time_ms: int, visible_at_ms: int) -> None:
        """Put off all messages of a pop until `visible_at_ms`, without counting the delivery."""
        info = self._of_pop(queue, group, pop_time_ms)
        if info is not None:
            info.counts = {offset: max(count - 1, 0) for offset, count in (info.counts or {}).items()} or None
            info.visible_at = None
            info.invisible_time = visible_at_ms - info.pop_time
            self._changed(queue, group, info)

    def _of_pop(self, queue: str, group: str, pop_time_ms: int) -> OrderInfo | None:
        info = self._find(queue, group)
        if info is None or info.pop_time != pop_time_ms:
            peer_lines.warning(
                logger, "", "event=invisible_time_of_unknown topic=%s group=%s pop_time=%d", queue, group, pop_time_ms
            )
            return None
        return info

    def forget(self, queue: str, group: str) -> None:
        """Forget the last pop."""
        groups = self._pops.get(queue)
        if groups is not None:
            self._count -= groups.pop(group, None) is not None
            if not groups:
                del self._pops[queue]

    def forget_queue(self, queue: str) -> None:
        """Forget the last pops of all groups."""
        self._count -= len(self._pops.pop(queue, ()))

    def _changed(self, queue: str, group: str, info: OrderInfo) -> None:
        held_ms = info.invisible_time or 0
        times = [(info.visible_at or {}).get(offset, info.pop_time + held_ms) for offset in info.open_offsets()]
        if times:
            self._locks.expect(QueueKey(queue, group, LITE_QUEUE_ID), max(times))
        else:
            # Everything is acknowledged: nothing to remember, and no count to continue.
            self.forget(queue, group)
