"""Plans of acknowledgements: all rules about which popped messages may be acknowledged, and how.

The compiled kernel and the handlers have the same plans.
Source: RocketMQ 5.3.3, `AckMessageProcessor`, `ChangeInvisibleTimeProcessor`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from broker.core import BrokerCore
from broker.plan.planner import Planner, ServedPlan
from broker.plan.refusals import unknown_queue, unknown_topic
from broker.plan.table import MAX_KEPT_CHARS, Refused
from broker.pop.revive.revive_log import AckPattern, ReviveLog, may_begin_seal
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.pop_extra_info import ORDER_REVIVE_QUEUE


class Why(Enum):
    """Why the handler must serve an acknowledgement."""

    ORDERED = "messages that were popped in order have no checkpoint"
    SLAVE = "a slave has the acknowledgements written by another master"
    WHEEL = "the wheel is off or may refuse a record"
    NAME = "a name has a character that separates properties, or that may begin a seal"


class AckKey(NamedTuple):
    """What the header of an acknowledgement and its handle say about its plan.

    `topic` is the one in the store, so it may be a retry topic; `revive_queue_id` and `broker_name` are of the handle.
    """

    topic: str
    group: str
    queue_id: int
    revive_queue_id: int
    broker_name: str


@dataclass(frozen=True, slots=True)
class AckPlan(ServedPlan):
    """How acknowledgements with one key are served; `needs_handler` says why a kernel leaves them to the handler.

    A kernel makes their records from `pattern`.  The timer takes times up to `max_delay_ms` from now, in slots of
    `slot_ms`.
    """

    topic: str
    group: str
    queue_id: int
    broker_name: str
    pattern: AckPattern | None
    slot_ms: int
    max_delay_ms: int
    needs_handler: Why | None
    is_lasting: bool


class AckPlanner(Planner[AckKey, AckPlan]):
    """Planner of acknowledgements, and of changes of the invisible time."""

    def __init__(self, core: BrokerCore, log: ReviveLog) -> None:
        super().__init__(core.config.plan_version)
        self._config = core.config
        self._topics = core.topics
        self._log = log

    def new_plan(self, key: AckKey) -> AckPlan | Refused:
        refused = self.refused_queue(key.topic, key.queue_id)
        if refused is None and key.revive_queue_id != ORDER_REVIVE_QUEUE:
            refused = self._refused_revive_queue(key.revive_queue_id)
        is_lasting = len(key.topic) + len(key.group) <= MAX_KEPT_CHARS
        return self._plan(key, is_lasting) if refused is None else refused._replace(is_lasting=is_lasting)

    def refused_queue(self, topic: str, queue_id: int) -> Refused | None:
        """Return why nothing in a queue can be acknowledged; None if it is a queue of a topic."""
        config = self._topics.get(topic)
        if config is None:
            return unknown_topic(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            return unknown_queue(config, queue_id, ResponseCode.MESSAGE_ILLEGAL)
        return None

    def _refused_revive_queue(self, revive_queue_id: int) -> Refused | None:
        """Return why a queue is none of the revive topic.  RocketMQ writes to any queue that a client names.

        If reviveQueueNum is lowered, the topic keeps its queues, because earlier handles name them.
        """
        topic = self._topics.get(self._log.topic)
        count = max(self._log.queue_count, 0 if topic is None else topic.read_queue_nums)
        if 0 <= revive_queue_id < count:
            return None
        remark = f"revive queue {revive_queue_id} of a handle is none of {count}"
        return Refused(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _plan(self, key: AckKey, is_lasting: bool) -> AckPlan:
        wheel, why = self._log.wheel_limits(), None
        pattern = self._log.ack_pattern(key.topic, key.group, key.queue_id, key.broker_name, key.revive_queue_id)
        if key.revive_queue_id == ORDER_REVIVE_QUEUE:
            why = Why.ORDERED
        elif self._log.is_elsewhere:
            why = Why.SLAVE
        elif wheel is None:
            why = Why.WHEEL
        elif pattern is None or may_begin_seal((pattern.before_properties, *pattern.properties)):
            why = Why.NAME
        slot_ms, max_delay_ms = wheel or (0, 0)
        return AckPlan(
            key.topic, key.group, key.queue_id, key.broker_name, pattern, slot_ms, max_delay_ms, why, is_lasting
        )
