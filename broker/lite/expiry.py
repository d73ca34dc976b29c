"""Deletion of idle lite topics (lite.topic.expiration), and of those of deleted parents, in small steps.

A lite topic is idle if it has got no message for that time, consumed or not.  Clients stay subscribed to it.
Source: RocketMQ 5.5.1, `AbstractLiteLifecycleManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from typing import Final

from broker.core import BrokerCore
from broker.lite.admission import LiteAdmission
from broker.lite.lags import LiteLags
from broker.lite.lite_queues import LiteQueues
from broker.lite.order import LITE_QUEUE_ID, LiteOrder
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.next_turn import in_turns, next_turn

logger = logging.getLogger(__name__)

# Queues that are deleted with one note on the disk.  Each has a turn of the loop: some disks take milliseconds.
_BATCH: Final = 256
_MINUTE_MS: Final = 60_000
# Time of a queue whose messages have left the log.
_LONG_AGO_MS: Final = 1


class LiteExpiry:
    """Deletion of lite topics.  Lives in the event loop's thread."""

    def __init__(
        self, core: BrokerCore, admission: LiteAdmission, queues: LiteQueues, order: LiteOrder, lags: LiteLags
    ) -> None:
        self._core = core
        self._admission = admission
        self._queues = queues
        self._order = order
        self._lags = lags
        self._started_at = core.clock.monotonic()

    async def run(self) -> None:
        """Delete the lite topics that are idle now; soon after the start do nothing, as RocketMQ."""
        core = self._core
        min_ms = core.config.broker.min_lite_ttl
        if core.role.is_slave or not core.role.serves_group:
            return
        if (core.clock.monotonic() - self._started_at) * 1000 < min_ms:
            return
        groups = self._admission.groups_by_parent()
        for parent, minutes in self._admission.expirations().items():
            if minutes > 0:
                await in_turns(self._learn(parent), core.clock.monotonic)
                before_ms = core.clock.wall_ms() - max(minutes * _MINUTE_MS, min_ms)
                await self._delete_idle(parent, before_ms, groups.get(parent, ()))
        for parent in self._queues.parents():
            if parent not in core.topics.by_name:
                await self.delete_all(parent)

    def _learn(self, parent: str) -> Generator[None, None, None]:
        """Read when queues that were there at the start got their last message."""
        store = self._core.store
        while queues := self._queues.unknown(parent):
            for queue in queues:
                last = store.max_offset(queue, LITE_QUEUE_ID) - 1
                self._queues.learned(queue, max(store.store_time(queue, LITE_QUEUE_ID, last), _LONG_AGO_MS))
                yield

    async def _delete_idle(self, parent: str, before_ms: int, groups: Sequence[str]) -> None:
        deleted = 0

        def is_idle(queue: str) -> bool:
            return self._queues.is_idle_since(queue, before_ms)

        while batch := self._queues.idle_since(parent, before_ms):
            count = await self._delete(batch, is_idle, groups)
            deleted += count
            if not count:
                break  # Messages are on their way to all of them.
        if deleted:
            peer_lines.info(logger, "", "event=lite_topics_expired parent=%s count=%d", parent, deleted)

    async def delete_all(self, parent: str) -> None:
        """Delete all lite topics of a deleted parent."""
        queues = self._queues.of_parent(parent)
        groups = self._admission.groups_by_parent().get(parent, ())
        for start in range(0, len(queues), _BATCH):
            if parent in self._core.topics.by_name:
                return  # It was created again meanwhile.
            await self._delete(queues[start : start + _BATCH], lambda _: True, groups)
        if queues:
            peer_lines.info(logger, "", "event=lite_topics_deleted parent=%s count=%d", parent, len(queues))

    async def _delete(self, batch: Sequence[str], is_doomed: Callable[[str], bool], groups: Sequence[str]) -> int:
        removal, count = self._core.store.light_removal(batch), 0
        await asyncio.to_thread(removal.note)
        for queue in batch:
            if is_doomed(queue) and removal.remove(queue):
                count += 1
                self._queues.forget(queue)
                self._order.forget_queue(queue)
                for group in groups:
                    self._core.offsets.remove(group, queue)
                self._lags.forget(queue)
            await next_turn()
        return count
