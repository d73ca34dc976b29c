"""Locks of queues for orderly consumption: one client of a group at a time consumes a queue.

Source: RocketMQ 5.3.3, `RebalanceLockManager`.
"""

import logging
from collections.abc import Iterable

from remoting.bodies.client import MessageQueue
from sprocket.common.clock import Clock

logger = logging.getLogger(__name__)

# rocketmq.broker.rebalance.lockMaxLiveTime
LOCK_MAX_LIVE_S = 60.0


class QueueLocks:
    """Group -> queue -> holder.  A lock that is not renewed for `LOCK_MAX_LIVE_S` is anyone's.

    Time is monotonic: a step of the wall clock neither ends a lock early nor keeps it for ever.
    """

    def __init__(self, clock: Clock, max_live_s: float = LOCK_MAX_LIVE_S) -> None:
        self._clock = clock
        self._max_live_s = max_live_s
        self._groups: dict[str, dict[MessageQueue, tuple[str, float]]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Take or renew what can be had; returns those of `queues` that the client now holds."""
        now = self._clock.monotonic()
        held = self._groups.get(group, {})
        locked = []
        for queue in queues:
            holder, renewed_at = held.get(queue, (client_id, now))
            if holder != client_id and now - renewed_at <= self._max_live_s:
                logger.info(
                    "event=queue_lock_refused group=%s queue=%s holder=%s client=%s", group, queue, holder, client_id
                )
                continue
            if queue not in held or holder != client_id:
                logger.info("event=queue_locked group=%s queue=%s client=%s", group, queue, client_id)
            held[queue] = (client_id, now)
            locked.append(queue)
        if locked:
            self._groups[group] = held
        return locked

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up what the client holds; what others hold is left alone."""
        held = self._groups.get(group, {})
        for queue in queues:
            holder, _ = held.get(queue, ("", 0.0))
            if holder == client_id:
                del held[queue]
                logger.info("event=queue_unlocked group=%s queue=%s client=%s", group, queue, client_id)
        if not held:
            self._groups.pop(group, None)

    def all_expired(self, group: str) -> bool:
        """Whether nobody of the group holds a queue."""
        now = self._clock.monotonic()
        return all(now - renewed_at > self._max_live_s for _, renewed_at in self._groups.get(group, {}).values())
