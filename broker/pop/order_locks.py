"""Timer for blocked queues of ordered pops: waiting pops are woken when their queue becomes free.

Source: RocketMQ 5.3.3, `ConsumerOrderInfoLockManager` (enableNotifyAfterPopOrderLockRelease).
"""

import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.config.live_config import LiveConfig
from broker.turns import CallLater, NextTurn
from sprocket.common.clock import Clock

# Times this close together share one turn of the timer.
_TICK_S: Final = 0.1
# Longest sleep, after which a step of the wall clock is noticed.
_MAX_SLEEP_S: Final = 1.0
# Number of outdated times at which the heap is rebuilt.
_MAX_STALE: Final = 1024


class QueueKey(NamedTuple):
    """One group's view of one queue."""

    topic: str
    group: str
    queue_id: int


class OrderLocks:
    """One timer for all queues; `freed` is called once for each queue that becomes free."""

    def __init__(
        self, config: LiveConfig, clock: Clock, call_later: CallLater, freed: Callable[[QueueKey], None]
    ) -> None:
        self._config = config
        self._clock = clock
        self.freed = freed
        self._free_at: dict[QueueKey, int] = {}
        # (ms, queue): at least one entry per queue, at its time or before.  The entry of a changed time stays.
        self._times: list[tuple[int, QueueKey]] = []
        self._next_turn = NextTurn(self._on_timer, clock.monotonic, call_later, _MAX_SLEEP_S)
        self._is_closed = False

    @property
    def _is_enabled(self) -> bool:
        return self._config.broker.enable_notify_after_pop_order_lock_release

    def __len__(self) -> int:
        return len(self._free_at)

    def expect(self, key: QueueKey, free_at: int) -> None:
        """Set when the queue becomes free, ms, in place of an earlier setting."""
        if self._is_closed or not self._is_enabled:
            return
        before = self._free_at.get(key)
        self._free_at[key] = free_at
        if before is None or free_at < before:
            heapq.heappush(self._times, (free_at, key))
            if len(self._times) > 2 * len(self._free_at) + _MAX_STALE:
                self._times = [(at, queue) for queue, at in self._free_at.items()]
                heapq.heapify(self._times)
            self._wake_by(free_at)

    def close(self) -> None:
        """Stop calling `freed`."""
        self._is_closed = True
        self._next_turn.cancel()

    def _wake_by(self, free_at: int) -> None:
        self._next_turn.wake_in(max((free_at - self._clock.wall_ms()) / 1000, _TICK_S))

    def _on_timer(self) -> None:
        now = self._clock.wall_ms()
        due = []
        while self._times and self._times[0][0] <= now:
            _, key = heapq.heappop(self._times)
            free_at = self._free_at.get(key)
            if free_at is None:
                continue  # `freed` was called for an earlier entry.
            if free_at > now:
                heapq.heappush(self._times, (free_at, key))  # The time was changed.
                continue
            del self._free_at[key]
            due.append(key)
        if self._times:
            self._wake_by(self._times[0][0])
        if self._is_enabled:
            for key in due:
                self.freed(key)
