"""Forgets where groups were that are gone, if enableCleanExpiredOffset says so; else offsets are kept for good.

A group's offsets in a topic are idle when none of it is connected that subscribes to the topic and every message that
it had yet to read there has expired.  RocketMQ 5.3.3 has the key, and the rule in
`ConsumerOffsetManager.scanUnsubscribedTopic`, but applies it nowhere; there an offset at the oldest message counts,
too, and that message would be passed over.
"""

import logging
from typing import Final

from broker.core import BrokerCore
from broker.periodic import Periodic
from broker.service import Service
from sprocket.remoting.message.topic_names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS

logger = logging.getLogger(__name__)

_PERIOD_S: Final = 3600.0


class IdleOffsets(Service):
    """Cleans once an hour."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    def periodic(self) -> list[Periodic]:
        return [Periodic("idle_offsets", _PERIOD_S, self.clean)]

    def clean(self) -> None:
        """Forget what is idle now."""
        core = self._core
        if not core.config.broker.enable_clean_expired_offset or not core.role.serves_group:
            return
        for group, topics in core.offsets.topics_by_group().items():
            if group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX):
                continue
            for topic in topics:
                if core.consumers.find_subscription(group, topic) is None and self._has_expired(group, topic):
                    core.offsets.remove(group, topic)
                    logger.info("event=idle_offsets_removed group=%s topic=%s", group, topic)

    def _has_expired(self, group: str, topic: str) -> bool:
        queues = self._core.offsets.queues(group, topic)
        return all(offset < self._core.store.min_offset(topic, queue_id) for queue_id, offset in queues.items())
