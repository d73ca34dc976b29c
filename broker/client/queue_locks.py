"""Locks of queues for orderly consumption: one client of a group at a time consumes a queue.

Source: RocketMQ 5.3.3, `RebalanceLockManager`.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import MessageQueue

logger = logging.getLogger(__name__)

# rocketmq.broker.rebalance.lockMaxLiveTime
LOCK_MAX_LIVE_S = 60.0
_NOBODY: Final = ("", 0.0)
# Max queues that a log line names; it also has the number of all.  With a line per queue, a request wrote megabytes.
_MAX_NAMED: Final = 16


class QueueLocks:
    """Table of locks: group -> topic and queue id -> holder.  A lock that is not renewed for `LOCK_MAX_LIVE_S` expires.

    Time is monotonic: a step of the wall clock neither ends a lock early nor prolongs it.
    """

    def __init__(self, clock: Clock, max_live_s: float = LOCK_MAX_LIVE_S) -> None:
        self._clock = clock
        self._max_live_s = max_live_s
        self._groups: dict[str, dict[tuple[str, int], tuple[str, float]]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock the free ones of `queues` and renew the client's own; return those that the client now holds."""
        now = self._clock.monotonic()
        held = self._groups.get(group, {})
        taken, refused, locked = _Named(), _Named(), []
        mine = (client_id, now)
        for queue in queues:
            key = queue.topic, queue.queue_id
            holder, renewed_at = held.get(key, _NOBODY)
            if holder != client_id:
                if holder and now - renewed_at <= self._max_live_s:
                    refused.add(queue, holder)
                    continue
                taken.add(queue)
            held[key] = mine
            locked.append(queue)
        if locked:
            self._groups[group] = held
        if taken.count:
            peer_lines.info(
                logger, client_id, "event=queues_locked group=%s client=%s count=%d queues=%s", group, client_id, *taken
            )
        if refused.count:
            peer_lines.info(
                logger, client_id, "event=queue_locks_refused group=%s client=%s count=%d queues=%s", group, client_id,
                *refused,
            )  # fmt: skip
        return locked

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Unlock the client's own of `queues`."""
        held = self._groups.get(group, {})
        unlocked = _Named()
        for queue in queues:
            key = queue.topic, queue.queue_id
            holder, _ = held.get(key, _NOBODY)
            if holder == client_id:
                del held[key]
                unlocked.add(queue)
        if unlocked.count:
            peer_lines.info(
                logger, client_id, "event=queues_unlocked group=%s client=%s count=%d queues=%s", group, client_id,
                *unlocked,
            )  # fmt: skip
        if not held:
            self._groups.pop(group, None)

    def all_expired(self, group: str) -> bool:
        """Whether no client of the group holds a lock."""
        now = self._clock.monotonic()
        return all(now - renewed_at > self._max_live_s for _, renewed_at in self._groups.get(group, {}).values())


class _Named:
    """Queues of a log line: their number, and the names of the first ones."""

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
        """Iterate over the arguments of the line."""
        return iter((self.count, self._names))
