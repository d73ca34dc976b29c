"""Plans of pulls: all rules about which pulls are served, and how.  Kernels and `PullProcessor` have the same plans.

Source: RocketMQ 5.3.3, `PullMessageProcessor`, `PullSysFlag`, `ForbiddenType`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from broker.client.clients import ConsumerGroup
from broker.core import BrokerCore
from broker.filter.consumer_filters import retry_group
from broker.filter.sql_filter import SQL92
from broker.filter.subscription_filter import MAX_TAG_CODES, TagFilter, is_tag_type, subscription_filter, tag_filter
from broker.filter.tokens import InvalidFilter
from broker.longpolling.held_pulls import PullFilter
from broker.plan.planner import Planner, ServedPlan
from broker.plan.refusals import FAQ, unknown_queue, unknown_topic
from broker.plan.table import MAX_KEPT_CHARS, Refused
from broker.quota.bucket import Buckets
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.topic import PERM_READ, TopicConfig
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from store.queue.consume_queue import ConsumeQueue

# `PullSysFlag`
COMMIT_OFFSET: Final = 0x1
SUSPEND: Final = 0x2
SUBSCRIPTION: Final = 0x4
# `ForbiddenType`
_BY_BROKER, _BY_GROUP, _BY_TOPIC, _BY_BROADCASTING, _BY_SUBSCRIPTION = 1, 2, 3, 4, 5
_LITE_PULL: Final = int(RequestCode.LITE_PULL_MESSAGE)


class Why(Enum):
    """Why the handler must serve a pull."""

    SLAVE = "a slave may send the consumer to its master"
    COLD = "coldDataFlowControlEnable is on"
    TIER = "tieredStorageLevel is FORCE"
    RESET = "an operator has reset the group's offset"
    BROADCASTING = "the broker keeps the offset of each consumer"
    SQL = "properties of the records decide"
    MANY_TAGS = "the subscription has more tags than a kernel searches for"
    STATIC = "the topic is static, and the queue a logical one unless lo is false"
    NO_QUEUE = "there is no queue yet, or none with an entry for each message"


class PullKey(NamedTuple):
    """What the header of a pull says about its plan.

    Without a subscription of its own (`has_own`), `expression` and `expression_type` are None; with one, `sub_version`
    is 0.  `is_proxied`: a proxy pulls for a consumer that broadcasts.
    """

    code: int
    group: str
    topic: str
    queue_id: int
    has_own: bool
    expression: str | None
    expression_type: str | None
    sub_version: int
    is_proxied: bool


def pull_key(code: int, header: PullMessageRequestHeader) -> PullKey:
    """Return the key of a pull."""
    has_own, source = bool(header.sys_flag & SUBSCRIPTION), header.request_source
    return PullKey(
        code, header.consumer_group, header.topic, header.queue_id, has_own,
        header.subscription if has_own else None, header.expression_type if has_own else None,
        0 if has_own else header.sub_version, source is not None and source >= 0,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PullPlan(ServedPlan):
    """How pulls with one key are served; `needs_handler` says why a kernel leaves them to the handler.

    `codes` are the hash codes of the tags that `matches` wants; None: every message.  `broker_id` is the member of the
    broker's group to pull from next, if the consumer is not far behind.  Each pull is charged to `buckets`; a kernel
    leaves it to the handler while one of them is empty.
    """

    topic: str
    group: str
    queue_id: int
    topic_flags: int
    group_config: SubscriptionGroupConfig
    broker_id: int
    queue: ConsumeQueue | None
    matches: PullFilter | None
    codes: tuple[int, ...] | None
    is_broadcasting: bool
    needs_handler: Why | None
    is_lasting: bool
    buckets: Buckets = ()


class PullPlanner(Planner[PullKey, PullPlan]):
    """Planner of pulls.

    `state` returns why the state of the broker leaves all pulls to the handler; the plan version rises when it changes.
    """

    def __init__(self, core: BrokerCore, state: Callable[[], Why | None]) -> None:
        super().__init__(core.config.plan_version)
        self._config = core.config
        self._topics = core.topics
        self._groups = core.groups
        self._consumers = core.consumers
        self._offsets = core.offsets
        self._filters = core.filters
        self._queue_of = core.store.kernel_reads.queue
        self._state = state
        self._static = core.mappings.by_name
        self._buckets_of = core.quota_reads.of_plan

    def new_plan(self, key: PullKey) -> PullPlan | Refused:
        group = self._group(key)
        if isinstance(group, Refused):
            return group
        topic = self._topic(key)
        if isinstance(topic, Refused):
            return topic
        matches = self._own_filter(key) if key.has_own else self._filter_of_group(key, group)
        if isinstance(matches, Refused):
            return matches
        return self._plan(key, group, topic, matches)

    def _plan(
        self, key: PullKey, group: SubscriptionGroupConfig, topic: TopicConfig, matches: PullFilter | None
    ) -> PullPlan:
        connected, queue = self._consumers.group(key.group), self._queue_of(key.topic, key.queue_id)
        is_broadcasting = key.is_proxied or (connected is not None and connected.is_broadcasting)
        codes = tuple(sorted(matches.codes)) if isinstance(matches, TagFilter) else None
        why = self._state()
        if why is not None:
            pass
        elif key.topic in self._static:
            why = Why.STATIC
        elif self._offsets.is_reset(key.group, key.topic, key.queue_id):
            why = Why.RESET
        elif is_broadcasting:
            why = Why.BROADCASTING
        elif matches is not None and codes is None:
            why = Why.SQL
        elif codes is not None and len(codes) > MAX_TAG_CODES:
            why = Why.MANY_TAGS
        elif queue is None:
            why = Why.NO_QUEUE
        return PullPlan(
            key.topic, key.group, key.queue_id, topic.topic_sys_flag, group,
            group.broker_id if self._config.broker.slave_read_enable else MASTER_ID, queue, matches, codes,
            is_broadcasting, why, is_lasting=queue is not None and len(key.expression or "") <= MAX_KEPT_CHARS,
            buckets=self._buckets_of(key.topic, key.group),
        )  # fmt: skip

    # Who pulls, and from where

    def _group(self, key: PullKey) -> SubscriptionGroupConfig | Refused:
        broker, name = self._config.broker, key.group
        if not broker.broker_permission & PERM_READ:
            remark = f"the broker[{broker.broker_ip1}] pulling message is forbidden"
            return _forbidden(_BY_BROKER, remark, Reason.BROKER_NOT_READABLE)
        if key.code == _LITE_PULL and not broker.lite_pull_message_enable:
            remark = f"the broker[{broker.broker_ip1}] for lite pull consumer is forbidden"
            return _forbidden(_BY_BROKER, remark, Reason.TURNED_OFF)
        group = self._groups.find(name)
        if group is None:
            return self._groups.unknown(name)
        if not group.consume_enable:
            return _forbidden(_BY_GROUP, f"subscription group no permission, {name}", Reason.GROUP_DISABLED)
        return group

    def _topic(self, key: PullKey) -> TopicConfig | Refused:
        name, topic = key.topic, self._topics.get(key.topic)
        if topic is None:
            return unknown_topic(name)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{name}] pulling message is forbidden"
            return _forbidden(_BY_TOPIC, remark, Reason.TOPIC_NOT_READABLE)
        if not 0 <= key.queue_id < topic.read_queue_nums:
            return unknown_queue(topic, key.queue_id)
        return topic

    # Which messages: the subscription comes with the request, else from the group's heartbeats

    def _own_filter(self, key: PullKey) -> PullFilter | Refused | None:
        is_tags, expression = is_tag_type(key.expression_type), key.expression or ""
        refused = Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
        if not (is_tags or expression):
            return refused
        if not is_tags and (not self._config.broker.enable_property_filter or key.expression_type != SQL92):
            return _unsupported_expression(key.expression_type)
        try:
            if is_tags:
                return tag_filter(expression)
            sql = self._filters.sql.compiled(expression)
        except InvalidFilter as error:
            is_lasting = len(expression) <= MAX_KEPT_CHARS
            return refused._replace(remark=f"{refused.remark}: {error.remark}", is_lasting=is_lasting)
        return self._of_retry(key) or sql.record_filter()

    def _filter_of_group(self, key: PullKey, group: SubscriptionGroupConfig) -> PullFilter | Refused | None:
        subscription = self._subscription(key, group, self._consumers.group(key.group))
        if isinstance(subscription, Refused):
            return subscription
        if is_tag_type(subscription.expression_type):
            return subscription_filter(subscription)
        held = self._filters.find(key.topic, key.group)
        if held is None:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            return Refused(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        if held.data.client_version < key.sub_version:
            return Refused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        if not self._config.broker.enable_property_filter:
            return _unsupported_expression(subscription.expression_type)
        if subscription.class_filter_mode:
            return None
        return self._of_retry(key) or held.records

    def _of_retry(self, key: PullKey) -> PullFilter | None:
        """Return the filter of a retry topic, which uses the group's subscriptions to the original topics."""
        group = retry_group(key.topic) if self._config.broker.filter_support_retry else None
        return None if group is None else self._filters.retry_records(group)

    def _subscription(
        self, key: PullKey, group: SubscriptionGroupConfig, connected: ConsumerGroup | None
    ) -> SubscriptionData | Refused:
        name = key.group
        if connected is None:
            return Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        if not group.consume_broadcast_enable and connected.is_broadcasting:
            remark = f"the consumer group[{name}] can not consume by broadcast way"
            return _forbidden(_BY_BROADCASTING, remark, Reason.GROUP_FORBIDDEN)
        if self._groups.forbidden(name, key.topic) & PERM_READ:
            remark = f"the consumer group[{name}] is forbidden for topic[{key.topic}]"
            return _forbidden(_BY_SUBSCRIPTION, remark, Reason.GROUP_FORBIDDEN)
        subscription = connected.subscriptions.get(key.topic)
        if subscription is None:
            return Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if subscription.sub_version < key.sub_version:
            return Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription


def _forbidden(kind: int, remark: str, reason: Reason) -> Refused:
    return Refused(ResponseCode.NO_PERMISSION, remark, reason, {"forbiddenType": str(kind)})


def _unsupported_expression(expression_type: str | None) -> Refused:
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return Refused(ResponseCode.SYSTEM_ERROR, remark, Reason.SUBSCRIPTION)
