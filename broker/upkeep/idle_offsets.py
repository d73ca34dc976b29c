"""Deletion of idle offsets, with enableCleanExpiredOffset; without it, offsets are kept for ever.

A group's offsets in a topic are idle if no connected member subscribes to the topic and all unread messages have
expired.  RocketMQ 5.3.3 has the key and the rule (`ConsumerOffsetManager.scanUnsubscribedTopic`), but never applies it.
Its rule also deletes an offset at the oldest message, so that message would be skipped.
"""

import logging
from collections.abc import Generator
from typing import Final

from broker.core import BrokerCore
from broker.periodic import Periodic
from broker.service import Service
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.next_turn import in_turns
from sprocket.remoting.message.topic_names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS

logger = logging.getLogger(__name__)

_PERIOD_S: Final = 3600.0


class IdleOffsets(Service):
    """Hourly deletion of idle offsets."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    def periodic(self) -> list[Periodic]:
        return [Periodic("idle_offsets", _PERIOD_S, self.clean)]

    async def clean(self) -> None:
        """Delete the offsets that are idle now."""
        await in_turns(self._steps(), self._core.clock.monotonic)

    def _steps(self) -> Generator[None, None, None]:
        core = self._core
        if not core.config.broker.enable_clean_expired_offset or not core.role.serves_group:
            return
        grouped = yield from core.offsets.grouped()
        for group, topics in grouped.items():
            if group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX):
                continue
            for topic in topics:
                yield
                if core.consumers.find_subscription(group, topic) is None and self._has_expired(group, topic):
                    core.offsets.remove(group, topic)
                    peer_lines.info(logger, "", "event=idle_offsets_removed group=%s topic=%s", group, topic)

    def _has_expired(self, group: str, topic: str) -> bool:
        queues = self._core.offsets.queues(group, topic)
        return all(offset < self._core.tier.min_offset(topic, queue_id) for queue_id, offset in queues.items())
