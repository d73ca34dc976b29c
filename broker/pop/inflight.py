"""Number of messages of each queue that a group has popped and not acknowledged since the broker started.

Source: RocketMQ 5.3.3, `PopInflightMessageCounter` (enablePopMessageThreshold, popInflightMessageThreshold).
"""

from collections.abc import Callable
from typing import Final

from broker.config.live_config import LiveConfig

_MAX_GONE: Final = 10_000


class InflightMessages:
    """Counts by topic, group and queue.  Lives in the event loop's thread.

    `has_room` is called when a queue above the threshold accepts pops again.
    """

    def __init__(self, config: LiveConfig, started_ms: int, has_room: Callable[[str, str, int], None]) -> None:
        self._config = config
        # Earlier pops are not counted, so their acknowledgements are not either.
        self.started_ms = started_ms
        self._counts: dict[tuple[str, str, int], int] = {}
        # (topic, group) -> since when they count: earlier pops are of a deleted topic or group of the same name.
        self._since_ms: dict[tuple[str, str], int] = {}
        self._has_room = has_room

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of messages in flight."""
        return self._counts.get((topic, group, queue_id), 0)

    def is_full(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether the queue must not be popped from now."""
        broker = self._config.broker
        return (
            broker.enable_pop_message_threshold
            and self.count(topic, group, queue_id) > broker.pop_inflight_message_threshold
        )

    def popped(self, topic: str, group: str, queue_id: int, count: int) -> None:
        """Count `count` delivered messages."""
        key = (topic, group, queue_id)
        self._counts[key] = self._counts.get(key, 0) + count

    def done(self, topic: str, group: str, queue_id: int, pop_time_ms: int, count: int) -> None:
        """Subtract `count` messages of the pop at `pop_time_ms` that were acknowledged or redelivered."""
        key = (topic, group, queue_id)
        before = self._counts.get(key)
        if before is None or pop_time_ms < self._since_ms.get((topic, group), self.started_ms):
            return
        if before > count:
            self._counts[key] = before - count
        else:
            del self._counts[key]
        broker = self._config.broker
        if broker.enable_pop_message_threshold and before - count <= broker.pop_inflight_message_threshold < before:
            self._has_room(topic, group, queue_id)

    def undo(self, topic: str, group: str, queue_id: int, count: int) -> None:
        """Subtract `count` messages that were not delivered, without a call of `has_room`: their pop failed."""
        key = (topic, group, queue_id)
        left = self._counts.get(key, 0) - count
        if left > 0:
            self._counts[key] = left
        else:
            self._counts.pop(key, None)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Forget what is in flight of an ordered queue."""
        self._counts.pop((topic, group, queue_id), None)

    def forget_gone(self, is_there: Callable[[str, str], bool], now_ms: int) -> None:
        """Forget queues of deleted topics and groups, and whatever was popped of them before `now_ms`."""
        for key in [key for key in self._counts if not is_there(key[0], key[1])]:
            del self._counts[key]
            if len(self._since_ms) < _MAX_GONE:
                self._since_ms[key[0], key[1]] = now_ms
