"""Locks of queues for orderly consumption: one client of a group at a time consumes a queue.

Source: RocketMQ 5.3.3, `RebalanceLockManager`.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import MessageQueue

logger = logging.getLogger(__name__)

# rocketmq.broker.rebalance.lockMaxLiveTime
LOCK_MAX_LIVE_S = 60.0
_NOBODY: Final = ("", 0.0)
# Queues that one log line names; it has the count of all.  A line for each queue let a request write megabytes.
_MAX_NAMED: Final = 16


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
        taken, refused, locked = _Named(), _Named(), []
        mine = (client_id, now)
        for queue in queues:
            holder, renewed_at = held.get(queue, _NOBODY)
            if holder != client_id:
                if holder and now - renewed_at <= self._max_live_s:
                    refused.add(queue, holder)
                    continue
                taken.add(queue)
            held[queue] = mine
            locked.append(queue)
        if locked:
            self._groups[group] = held
        if taken.count:
            logger.info("event=queues_locked group=%s client=%s count=%d queues=%s", group, client_id, *taken)
        if refused.count:
            logger.info("event=queue_locks_refused group=%s client=%s count=%d queues=%s", group, client_id, *refused)
        return locked

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up what the client holds; what others hold is left alone."""
        held = self._groups.get(group, {})
        given_up = _Named()
        for queue in queues:
            holder, _ = held.get(queue, _NOBODY)
            if holder == client_id:
                del held[queue]
                given_up.add(queue)
        if given_up.count:
            logger.info("event=queues_unlocked group=%s client=%s count=%d queues=%s", group, client_id, *given_up)
        if not held:
            self._groups.pop(group, None)

    def all_expired(self, group: str) -> bool:
        """Whether nobody of the group holds a queue."""
        now = self._clock.monotonic()
        return all(now - renewed_at > self._max_live_s for _, renewed_at in self._groups.get(group, {}).values())


class _Named:
    """Queues for a log line: how many, and the first of them by name."""

    __slots__ = ("_names", "count")

    def __init__(self) -> None:
        self.count = 0
        self._names: list[str] = []

    def add(self, queue: MessageQueue, holder: str = "") -> None:
        self.count += 1
        if self.count <= _MAX_NAMED:
            name = f"{queue.broker_name}:{queue.topic}:{queue.queue_id}"
            self._names.append(f"{name} held by {holder}" if holder else name)

    def __iter__(self) -> Iterator[object]:
        """The arguments of the line."""
        return iter((self.count, self._names))
