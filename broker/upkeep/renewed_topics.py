"""Consumers of a topic that is deleted and created again: they begin at the first message of the new topic.

A live consumer remembers its offset in the old topic, and neither its pulls nor its commits say which topic they mean.
So each live group gets a reset to 0 for every queue when the topic is created again: its next pull or pop begins there,
and until then its commits count for nothing.  RocketMQ 5.3.3 only deletes the offsets
(`AdminBrokerProcessor.deleteTopicInBroker`), and the consumer skips as many new messages as it had read old ones.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from broker.core import BrokerCore
from broker.turns import run_in_turns
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.topic import TopicConfig

logger = logging.getLogger(__name__)

# A live consumer pulls each of its queues more often.  Waiting resets slow down all pulls.
_WAIT_S: Final = 600.0
_MAX_TOPICS: Final = 10_000
# Resets of one turn of the event loop: about 2 ms.
_SLICE: Final = 1_000
_MAX_LOGGED: Final = 16

# Called with group, topic and queue id of each reset.
ResetListener = Callable[[str, str, int], None]


class RenewedTopics:
    """Live groups of deleted topics, by topic.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, on_reset: Sequence[ResetListener]) -> None:
        self._core = core
        self._on_reset = on_reset
        self._groups: dict[str, set[str]] = {}

    def listen(self) -> None:
        """Follow the topics of the broker."""
        self._core.topics.on_create.append(self.created)
        self._core.topics.on_gone.append(self.deleted)

    def deleted(self, topic: str) -> None:
        """Delete all groups' offsets in a topic whose queues are gone."""
        core = self._core
        live = {group for group in core.offsets.groups_of(topic) if core.consumers.group(group) is not None}
        core.offsets.remove_topic(topic)
        if live:
            self._groups[topic] = live
            if len(self._groups) > _MAX_TOPICS:
                del self._groups[next(iter(self._groups))]

    def created(self, config: TopicConfig) -> None:
        """Let the live groups of a deleted topic begin at 0, now that there is a topic of its name."""
        core, topic = self._core, config.topic_name
        if not core.store.was_deleted(topic):
            return
        # After a restart of the broker heartbeats tell the groups.
        groups = sorted(self._groups.pop(topic, set()) | core.consumers.groups_subscribed_to(topic))
        if groups:
            queues = range(config.read_queue_nums)
            run_in_turns(self._resets(topic, groups, queues), _SLICE, core.call_later)
            ends = self._ends(topic, groups, queues)
            core.call_later(_WAIT_S, partial(run_in_turns, ends, _SLICE, core.call_later))
            peer_lines.info(logger, "", "event=topic_renewed topic=%s groups=%s", topic, groups[:_MAX_LOGGED])

    def _resets(self, topic: str, groups: list[str], queues: range) -> Iterator[None]:
        for group in groups:
            for queue_id in queues:
                self._core.offsets.reset(group, topic, queue_id, 0)
                for listener in self._on_reset:
                    listener(group, topic, queue_id)
                yield

    def _ends(self, topic: str, groups: list[str], queues: range) -> Iterator[None]:
        for group in groups:
            for queue_id in queues:
                self._core.offsets.take_reset(group, topic, queue_id)
                yield
