"""Plans of pops: all rules about which pops are served, and how.  The compiled kernel and `PopProcessor` share them.

Source: RocketMQ 5.3.3, `PopMessageProcessor.processRequest`, `PeekMessageProcessor`; priorities: 5.5.1.
"""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from broker.core import BrokerCore
from broker.filter.subscription_filter import ALL, MAX_TAG_CODES, TAG, TagFilter
from broker.longpolling.held_pulls import PullFilter
from broker.plan.planner import Planner, ServedPlan
from broker.plan.refusals import unknown_queue, unknown_topic
from broker.plan.table import MAX_KEPT_CHARS, Refused
from broker.pop.pop_filters import pop_filter, subscriptions
from broker.pop.revive.revive_log import CheckpointForm, ReviveLog, may_begin_seal
from broker.quota.bucket import Buckets
from broker.subscription.group_attributes import priority_factor
from broker.topic.retry_topics import retry_topic, retry_topic_v1, retry_topic_v2
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.bodies.topic import MESSAGE_TYPE, PERM_READ, TopicConfig
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.pop import (
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
from sprocket.remoting.message.message_type import MessageType
from sprocket.remoting.message.pop_extra_info import retry_kind
from sprocket.remoting.message.topic_names import is_light
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_table import is_file_name

MAX_MESSAGES: Final = 32
# A pop that arrives this long after its client stopped waiting is not answered.
LATE_MS: Final = 500


class Why(Enum):
    """Why the handler must serve a pop."""

    ORDERED = "messages that are popped in order have no checkpoint"
    SLAVE = "a slave has its checkpoints written by another master"
    BUFFER = "enablePopBufferMerge is on, so checkpoints may stay in memory"
    THRESHOLD = "enablePopMessageThreshold is on, so messages in flight are limited"
    WHEEL = "the wheel is off or may refuse a checkpoint"
    NAME = "a name has a character that separates properties, or that may begin a seal"
    LIGHT = "the messages of a light topic are in several queues"
    SQL = "properties of the records decide"
    MANY_TAGS = "the subscription has more tags than a kernel searches for"
    NO_QUEUE = "there is no queue yet, or none with an entry for each message"


class PopKey(NamedTuple):
    """What the header of a pop says about its plan; `queue_id` is -1 for all queues."""

    group: str
    topic: str
    queue_id: int
    is_ordered: bool
    expression: str | None
    expression_type: str | None


def pop_key(header: PopMessageRequestHeader) -> PopKey:
    """Return the key of a pop."""
    return PopKey(
        header.consumer_group, header.topic, max(header.queue_id, -1), bool(header.order), header.exp, header.exp_type
    )


@dataclass(frozen=True, slots=True)
class PopPlan(ServedPlan):
    """How pops with one key are served; `needs_handler` says why a kernel leaves them to the handler.

    A pop whose draw is below `priority_factor` obeys priorities: it reads the queues from the last, if `is_from_last`.
    A draw below `retry_chance` lets a pop read the retry topic first; below `priority_retry_chance` if it obeys.
    `codes` are the hash codes of the tags that `matches` wants; None: every message.  `subscriptions` are those that a
    pop implies.  A pop with an odd draw reads `retry`; an even one reads `left_retry` if that has messages, and else
    `even_retry`.  `queues` are those that the pop names, `kind` is that of the topic in handles.  A kernel makes
    checkpoints from `form`; the timer takes times up to `max_delay_ms` from now, in slots of `slot_ms`.  Each pop is
    charged to `buckets`; a kernel leaves it to the handler while one of them is empty.
    """

    topic: str
    group: str
    queue_count: int
    priority_factor: int
    is_from_last: bool
    retry_chance: int
    priority_retry_chance: int
    matches: PullFilter | None
    codes: tuple[int, ...] | None
    subscriptions: tuple[SubscriptionData, SubscriptionData]
    retry: TopicConfig | None
    even_retry: TopicConfig | None
    left_retry: TopicConfig | None
    queues: tuple[ConsumeQueue | None, ...]
    kind: str
    form: CheckpointForm | None
    slot_ms: int
    max_delay_ms: int
    needs_handler: Why | None
    is_lasting: bool
    buckets: Buckets = ()


class PopPlanner(Planner[PopKey, PopPlan]):
    """Planner of pops, and of requests that look at what could be popped."""

    def __init__(self, core: BrokerCore, log: ReviveLog) -> None:
        super().__init__(core.config.plan_version)
        self._config = core.config
        self._topics = core.topics
        self._groups = core.groups
        self._reads = core.store.kernel_reads
        self._log = log
        self._quotas = core.quota_reads
        self._sql = core.filters.sql

    def admit(self, header: PopMessageRequestHeader, now_ms: int) -> PopPlan | Refused:
        """Return the plan of one pop, or why it is refused; here the numbers of its header count too."""
        return self._refused_numbers(header, now_ms) or self.plan(pop_key(header))

    def new_plan(self, key: PopKey) -> PopPlan | Refused:
        expression, expression_type = (key.expression, key.expression_type) if key.expression else (ALL, TAG)
        is_lasting = len(key.group) + len(key.topic) + len(expression) <= MAX_KEPT_CHARS
        topic: TopicConfig | Refused = (
            self._refused_broker("pop") or self._refused_wheel() or self._topic(key.topic, key.queue_id, key.group)
        )
        if isinstance(topic, TopicConfig) and not key.is_ordered and not _has_retry_topic(key.topic, key.group):
            topic = _no_retry_topic(key.topic, key.group)
        if isinstance(topic, Refused):
            return topic._replace(is_lasting=is_lasting)
        matches = pop_filter(self._sql, expression, expression_type)
        if isinstance(matches, Refused):
            return matches._replace(is_lasting=is_lasting)
        is_v2 = self._config.broker.enable_retry_topic_v2
        implied = subscriptions(key.topic, retry_topic(key.topic, key.group, is_v2), expression, expression_type)
        return self._plan(key, topic, matches, implied, is_lasting)

    def readable(
        self, header: PeekMessageRequestHeader | NotificationRequestHeader | PollingInfoRequestHeader
    ) -> TopicConfig | Refused:
        """Return the topic of a peek, or of a request for what can be popped or is held, or why it is refused."""
        return self._refused_broker("peeking") or self._topic(header.topic, header.queue_id, header.consumer_group)

    # What a plan says

    def _plan(
        self,
        key: PopKey,
        topic: TopicConfig,
        matches: PullFilter | None,
        implied: tuple[SubscriptionData, SubscriptionData],
        is_lasting: bool,
    ) -> PopPlan:
        count = topic.read_queue_nums
        ids = range(count) if key.queue_id < 0 else range(key.queue_id, key.queue_id + 1)
        queues = tuple(self._reads.queues(key.topic, ids))
        factor = 0 if key.is_ordered else self._priority_factor(topic, key.group)
        codes = tuple(sorted(matches.codes)) if isinstance(matches, TagFilter) else None
        form, wheel = self._log.checkpoint_form(key.topic, key.group), self._log.wheel_limits()
        why = Why.ORDERED if key.is_ordered else self._state()
        if why is not None:
            pass
        elif wheel is None:
            why = Why.WHEEL
        elif is_light(key.topic):
            why = Why.LIGHT
        elif form is None or may_begin_seal(form.properties):
            why = Why.NAME
        elif matches is not None and codes is None:
            why = Why.SQL
        elif codes is not None and len(codes) > MAX_TAG_CODES:
            why = Why.MANY_TAGS
        elif None in queues:
            why = Why.NO_QUEUE
        slot_ms, max_delay_ms = wheel or (0, 0)
        broker = self._config.broker
        return PopPlan(
            key.topic, key.group, count, factor, broker.priority_order_asc, broker.pop_from_retry_probability,
            broker.pop_from_retry_probability_for_priority, matches, codes, implied,
            *self._retry_topics(key.topic, key.group), queues, retry_kind(key.topic), form, slot_ms, max_delay_ms,
            why, is_lasting and None not in queues, self._quotas.of_plan(key.topic, key.group),
        )  # fmt: skip

    def _state(self) -> Why | None:
        """Return why role or configuration leave all pops to the handler; None if they do not."""
        broker = self._config.broker
        if self._log.is_elsewhere:
            return Why.SLAVE
        if broker.enable_pop_buffer_merge:
            return Why.BUFFER
        return Why.THRESHOLD if broker.enable_pop_message_threshold else None

    def _priority_factor(self, topic: TopicConfig, group: str) -> int:
        """Return how many of 100 pops obey the priorities of a topic; the others keep low priorities from starving."""
        found = self._groups.find(group)
        if found is None or topic.attributes.get(MESSAGE_TYPE) != MessageType.PRIORITY:
            return 0
        return priority_factor(found.attributes)

    def _retry_topics(
        self, topic: str, group: str
    ) -> tuple[TopicConfig | None, TopicConfig | None, TopicConfig | None]:
        """Return `retry`, `even_retry` and `left_retry`: a pop reads one, because a response cannot distinguish two.

        RocketMQ does not deliver what is left in a V2 retry topic after enableRetryTopicV2 was turned off.
        """
        broker = self._config.broker
        v1, v2 = self._topics.get(retry_topic_v1(topic, group)), self._topics.get(retry_topic_v2(topic, group))
        if not broker.enable_retry_topic_v2:
            return v1, v1, v2
        return v2, v1 if broker.retrieve_message_from_pop_retry_topic_v1 else v2, None

    # Who pops, and from where

    def _refused_numbers(self, header: PopMessageRequestHeader, now_ms: int) -> Refused | None:
        """Return why a pop is refused whatever its topic and group are."""
        ip = self._config.broker.broker_ip1
        if now_ms - (header.born_time or now_ms) - header.poll_time > LATE_MS:
            return Refused(ResponseCode.POLLING_TIMEOUT, f"the broker[{ip}] pop message is timeout too much")
        refused = self._refused_broker("pop")
        if refused is not None:
            return refused
        if header.max_msg_nums > MAX_MESSAGES:
            remark = f"the broker[{ip}] pop message's num is greater than {MAX_MESSAGES}"
            return Refused(ResponseCode.INVALID_PARAMETER, remark)
        max_delay_ms = self._config.store.timer_max_delay_sec * 1000
        if header.invisible_time > max_delay_ms and not header.order:
            # RocketMQ then finds nothing, without an error.
            remark = (
                f"invisibleTime is {header.invisible_time} ms, more than timerMaxDelaySec allows: {max_delay_ms} ms"
            )
            return self._refused_wheel() or Refused(ResponseCode.INVALID_PARAMETER, remark)
        return None

    def _refused_broker(self, what: str) -> Refused | None:
        broker = self._config.broker
        if broker.broker_permission & PERM_READ:
            return None
        remark = f"the broker[{broker.broker_ip1}] {what} message is forbidden"
        return Refused(ResponseCode.NO_PERMISSION, remark, Reason.BROKER_NOT_READABLE)

    def _refused_wheel(self) -> Refused | None:
        if self._config.store.timer_wheel_enable:
            return None
        ip = self._config.broker.broker_ip1
        remark = f"the broker[{ip}] pop message is forbidden because timerWheelEnable is false"
        return Refused(ResponseCode.SYSTEM_ERROR, remark, Reason.TURNED_OFF)

    def _topic(self, name: str, queue_id: int, group: str) -> TopicConfig | Refused:
        topic = self._topics.get(name)
        if topic is None:
            return unknown_topic(name)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{name}] peeking message is forbidden"
            return Refused(ResponseCode.NO_PERMISSION, remark, Reason.TOPIC_NOT_READABLE)
        if queue_id >= topic.read_queue_nums:
            return unknown_queue(topic, queue_id)
        found = self._groups.find(group)
        if found is None:
            return self._groups.unknown(group)
        if not found.consume_enable:
            remark = f"subscription group no permission, {group}"
            return Refused(ResponseCode.NO_PERMISSION, remark, Reason.GROUP_DISABLED)
        return topic


@lru_cache(maxsize=1024)
def _has_retry_topic(topic: str, group: str) -> bool:
    """Return whether what is not acknowledged can be redelivered; both kinds of retry topic have equally long names."""
    return is_file_name(retry_topic_v1(topic, group))


def _no_retry_topic(topic: str, group: str) -> Refused:
    size = len(retry_topic_v1(topic, group))
    remark = (
        f"group {group} cannot pop topic {topic}: their retry topic would have a name of {size} "
        "characters, at most 255; choose shorter names, or consume without pop"
    )
    return Refused(ResponseCode.INVALID_PARAMETER, remark)
