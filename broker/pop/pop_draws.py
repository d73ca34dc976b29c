"""Choices of a pop that are random or take turns: its first queue, whether it reads the retry topic, its revive queue.

Source: RocketMQ 5.5.1, `PopMessageProcessor.processRequest`, `popMsgFromTopic`.
"""

from collections.abc import Sequence

from broker.core import BrokerCore
from broker.pop.planner import PopPlan
from broker.pop.pop_offsets import FROM_FIRST, PopOffsets
from broker.pop.revive.revive_log import ReviveLog
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.message.pop_extra_info import ORDER_REVIVE_QUEUE


def is_retry_first(plan: PopPlan, draw: int) -> bool:
    """Return whether a pop reads a retry topic before the topic itself."""
    return draw < (plan.priority_retry_chance if draw < plan.priority_factor else plan.retry_chance)


def scan(plan: PopPlan, draw: int, count: int) -> Sequence[int]:
    """Return the ids of `count` queues in the order in which a pop reads them."""
    if draw >= plan.priority_factor:
        return [(draw + number) % count for number in range(count)]
    return range(count)[::-1] if plan.is_from_last else range(count)


class PopDraws:
    """Draws of one broker's pops.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, log: ReviveLog, offsets: PopOffsets) -> None:
        self._store = core.store
        self._random_below = core.random_below
        self._log = log
        self._offsets = offsets
        self._draw = -1  # of the next pop; -1 until it is needed
        self._next_revive_queue = 0

    def peek(self) -> tuple[int, int]:
        """Return the next pop's draw, 0 to 99, and its revive queue; the same until `advance`."""
        if self._draw < 0:
            self._draw = self._random_below(100)
        return self._draw, self._next_revive_queue % self._log.queue_count

    def advance(self, revive_queue_id: int) -> None:
        """Note that a pop has used what `peek` returned."""
        self._draw = -1
        self._next_revive_queue = revive_queue_id + 1

    def take(self, *, is_ordered: bool) -> tuple[int, int]:
        """Return draw and revive queue of a pop that is served now.  Ordered pops write no checkpoint."""
        draw, revive_queue_id = self.peek()
        if is_ordered:
            self._draw = -1
            return draw, ORDER_REVIVE_QUEUE
        self.advance(revive_queue_id)
        return draw, revive_queue_id

    def retry_topic(self, plan: PopPlan, draw: int) -> TopicConfig | None:
        """Return the one retry topic that a pop reads; None without one."""
        if draw % 2:
            return plan.retry
        left = plan.left_retry
        return left if left is not None and self._has_messages(left, plan.group) else plan.even_retry

    def _has_messages(self, config: TopicConfig, group: str) -> bool:
        topic = config.topic_name
        return any(
            self._store.max_offset(topic, queue_id) > self._offsets.current(topic, group, queue_id, FROM_FIRST)
            for queue_id in range(config.read_queue_nums)
        )
