"""Plans of sends: all rules about which topics and queues take messages, and what a topic's messages have in common.

The compiled kernel, the handler and replies have the same plans.
Source: RocketMQ 5.3.3, `AbstractSendMessageProcessor.msgCheck`, `TopicValidator`; 5.5.1, `SendMessageProcessor`.
"""

import logging
from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from broker.core import BrokerCore
from broker.names import illegal_topic
from broker.namespace.namespaces import SendLimits
from broker.plan.planner import Planner, ServedPlan
from broker.plan.refusals import FAQ
from broker.plan.table import MAX_KEPT_CHARS, PEER, PlanTable, Refused
from broker.quota.bucket import Buckets
from broker.quota.quotas import CallerChannel, Quotas
from broker.send.replies import SendForm
from broker.topic.attributes import QUEUE_TYPE, is_compacted, sharding_queues
from broker.topic.logical_queue import led_items, led_queue_ids, own_item
from broker.topic.moved_queues import key_queues
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.topic import PERM_WRITE, TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingDetail
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from sprocket.remoting.message.message_type import MessageType, priority_of, type_of
from sprocket.remoting.message.properties import PRIORITY
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import NOT_ALLOWED_SEND_TOPICS, RETRY_PREFIX, is_light
from store.queue.logic_queue import LogicQueue, QueueType

logger = logging.getLogger(__name__)

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

# This bit is no flag of a message.
RETRY_MARK: Final = 1 << 32
# `TopicSysFlag`
_UNIT: Final = 0x1
_UNIT_SUB: Final = 0x2


class Why(Enum):
    """Why the handler must serve a send."""

    STATIC = "the topic is static, and its queues are logical ones"
    ANY_QUEUE = "the header names no queue, so one is drawn"
    UNSAVED = "responses wait until the topic is in its file"
    LIGHT = "the number of light topics has no bound"
    RETRY = "a retry may be a dead letter"
    BATCHES = "the topic keeps a client's batch as one record"
    KEYED = "the topic is compacted, so each message needs a key and may have no body"
    SHARDED = "the topic grows, so the number of queues that a key chose from is checked"


class SendKey(NamedTuple):
    """What the header of a send says about its plan."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class SendPlan(ServedPlan):
    """How sends with one key are served; `needs_handler` says why a kernel leaves them to the handler.

    `queue_id` is a physical queue; `logical_id` is the queue of the request, if the topic is static.
    `sharding_queues` is the number of queues that keys choose from; None if it is not checked.  `key_queues` is that of
    `broker.topic.moved_queues`.
    `queue` is None if there is none yet: then a kernel takes only messages that wait in a topic of the broker first.
    `sys_flag` is added to that of each message, and so is `flags`, which has RETRY_MARK too.  A topic of type BatchCQ
    `keeps_batches`: a client's batch stays one record (`QueueTypeUtils.isBatchCq`).  Each send is charged to `buckets`.
    `needs_key`: the topic is compacted.  `limits` are those of the namespace; None without any.
    """

    topic: str
    queue_id: int
    write_queues: int
    queue: LogicQueue | None
    flags: int
    sys_flag: int
    is_retry: bool
    keeps_batches: bool
    needs_handler: Why | None
    is_lasting: bool
    buckets: Buckets = ()
    logical_id: int | None = None
    sharding_queues: int | None = None
    key_queues: int = 0
    needs_key: bool = False
    limits: SendLimits | None = None

    @property
    def reported_queue_id(self) -> int:
        """The queue that responses name."""
        return self.queue_id if self.logical_id is None else self.logical_id

    def queue_by(self, properties: MutableMapping[str, str]) -> int:
        """Return the queue of a message that is no batch: its priority overrides the choice of its client.

        In a static topic the client's choice stays.

        As in the reference the properties decide, not the type of the topic.  A message of another type loses its
        priority.
        """
        priority = priority_of(properties.get(PRIORITY))
        if priority is None or not self.write_queues or self.logical_id is not None:
            return self.queue_id
        if type_of(properties.get) is MessageType.PRIORITY:
            return min(priority, self.write_queues - 1)
        del properties[PRIORITY]
        return self.queue_id


class SendPlanner(Planner[SendKey, SendPlan]):
    """Planner of sends and replies.

    Stricter than the reference in one point: it checks the topic's own write permission.  RocketMQ only shows that
    permission to clients in the route.
    """

    def __init__(self, core: BrokerCore) -> None:
        super().__init__(core.config.plan_version)
        self.quotas = core.quotas
        self._namespaces = core.namespaces
        self._config = core.config
        self._topics = core.topics
        self._store = core.store
        self._clock = core.clock
        self._below = core.random_below
        self._static = core.mappings.by_name
        self._forms: PlanTable[None, SendForm] = PlanTable(self.version)

    def form(self) -> SendForm:
        """Return what all records and responses have in common."""
        return self._forms.plan(None, lambda _: SendForm(self._config.broker, self._store.store_host))

    def new_plan(self, key: SendKey) -> SendPlan | Refused:
        return self._decided(key, self._topics.get(key.topic))

    def admit(self, header: SendHeader, peer: tuple[str, int]) -> SendPlan:
        """Return the plan of one send, with the queue that it goes to; create a topic that is created on first use.

        Raises RequestError, or StoreError if a new topic cannot be saved.
        """
        key = SendKey(header.topic, header.queue_id)
        if key.queue_id < 0 and key.topic in self._static:
            key = self._any_logical(key)
        plan = self.plan(key)
        if isinstance(plan, Refused):
            created = self._created(header, peer) if plan.code == ResponseCode.TOPIC_NOT_EXIST else None
            if created is not None:
                plan = self._decided(key, created)
            if isinstance(plan, Refused):
                if plan.reason is Reason.QUEUE_NOT_EXIST:
                    peer_lines.warning(logger, peer, "event=send_refused reason=queue_id topic=%s queue=%d", *key)
                raise plan.error(peer)
        if plan.sharding_queues is not None and header.sharding_queues not in (None, plan.sharding_queues):
            raise _other_sharding(header, plan.sharding_queues)
        if self._topics.unsaved:
            self._topics.rely_on(key.topic)
        if plan.needs_handler is Why.ANY_QUEUE:
            return replace(plan, queue_id=self._below(plan.write_queues))
        return plan

    def _any_logical(self, key: SendKey) -> SendKey:
        """Return the key of a logical queue that this broker leads, by chance; the same key if it leads none."""
        led = led_queue_ids(self._static[key.topic])
        return key._replace(queue_id=led[self._below(len(led))]) if led else key

    @property
    def has_static(self) -> bool:
        """Whether any topic is static: then `shown_offset` is needed."""
        return bool(self._static)

    def shown_offset(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the offset that the response to a send to a queue of `topic` names.

        For a logical queue it is -1 while a remapping goes on (`computeStaticQueueOffsetLoosely`).
        """
        detail = self._static.get(topic)
        items = None if detail is None else detail.items(queue_id)
        return items[-1].logical(offset) if items else offset

    def shown_place(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        """Return the queue and the offset that a response names for a place in a physical queue of this broker.

        As `shown_offset`; the queue may belong to an older item.
        """
        detail = self._static.get(topic)
        own = None if detail is None else own_item(detail, queue_id)
        return (queue_id, offset) if own is None else (own.logical_id, own.item.logical(offset))

    def _created(self, header: SendHeader, peer: tuple[str, int]) -> TopicConfig | None:
        """Return the topic of a send, created on first use; None if it may not be created."""
        if self._config.store.read_only_from:
            return None
        topic, is_retry = header.topic, header.topic.startswith(RETRY_PREFIX)
        sys_flag = (_UNIT_SUB if is_retry else _UNIT) if header.unit_mode else 0
        created = self._topics.create_on_send(
            topic,
            header.default_topic,
            header.default_topic_queue_nums,
            topic_sys_flag=sys_flag,
            peer=f"{peer[0]}:{peer[1]}",
        )
        if created is None and is_retry:
            return self._topics.get_or_create(topic, 1, topic_sys_flag=sys_flag)
        return created

    @property
    def charging(self) -> Quotas | None:
        """The quotas, if any account or address has one now: then connections have buckets."""
        return self.quotas if self.quotas.has_callers else None

    def callers(self, channel: CallerChannel) -> Buckets:
        """Return the buckets of who sends on a connection."""
        charging = self.charging
        return () if charging is None else charging.callers_in(channel)

    def spend(self, plan: SendPlan, callers: Buckets, request: Request[Any], messages: int = 1) -> None:
        """Charge a send, as `Quotas.spend`."""
        self.quotas.spend(plan, callers, request, messages)

    # What a plan says

    def _decided(self, key: SendKey, topic: TopicConfig | None) -> SendPlan | Refused:
        refused = self._refused_time() or self._refused_topic(key.topic, topic)
        if refused is None and topic is not None:
            detail = self._static.get(key.topic)
            if detail is not None:
                return self._static_plan(key, topic, detail)
            # After a topic lost queues, consumers may still read its old queues, so producers may write to them.
            queue_limit = max(topic.write_queue_nums, topic.read_queue_nums)
            if key.queue_id < queue_limit if key.queue_id >= 0 else topic.write_queue_nums > 0:
                return self._plan(key, topic)
            refused = _no_queue(topic, key.queue_id)
        assert refused is not None
        return refused._replace(is_lasting=refused.is_lasting and len(key.topic) <= MAX_KEPT_CHARS)

    def _plan(self, key: SendKey, topic: TopicConfig) -> SendPlan:
        name, queue, why = key.topic, None, None
        is_retry = name.startswith(RETRY_PREFIX)
        keeps_batches = topic.attributes.get(QUEUE_TYPE) == QueueType.BATCH
        is_unsaved = name in self._topics.unsaved
        sharded, limits = sharding_queues(topic.attributes), self._namespaces.send_limits(name)
        needs_key = is_compacted(topic.attributes)
        if key.queue_id < 0:
            why = Why.ANY_QUEUE
        elif is_unsaved:
            why = Why.UNSAVED
        elif is_light(name):
            why = Why.LIGHT
        elif is_retry:
            why = Why.RETRY
        elif keeps_batches:
            why = Why.BATCHES
        elif needs_key:
            why = Why.KEYED
        elif sharded is not None:
            why = Why.SHARDED
        else:
            queue = self._store.plain_queue(name, key.queue_id)
        sys_flag = int(SysFlag.MULTI_TAGS) if topic.topic_filter_type == "MULTI_TAG" else 0
        return SendPlan(
            name, key.queue_id, topic.write_queue_nums, queue, sys_flag | (RETRY_MARK if is_retry else 0), sys_flag,
            is_retry, keeps_batches, why,
            is_lasting=not is_unsaved and not is_light(name) and (why is not None or queue is not None),
            buckets=self.quotas.of_send(name),
            sharding_queues=sharded, key_queues=key_queues(topic, self._static.get(name)), needs_key=needs_key,
            limits=limits,
        )  # fmt: skip

    def _static_plan(self, key: SendKey, topic: TopicConfig, detail: TopicQueueMappingDetail) -> SendPlan | Refused:
        """Return the plan for a logical queue; only the broker that leads it takes messages."""
        items = led_items(detail, key.queue_id)
        if isinstance(items, Refused):
            return items
        queue_id = items[-1].queue_id
        if queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
            return _no_queue(topic, queue_id)
        plan = self._plan(SendKey(key.topic, queue_id), topic)
        return replace(plan, queue=None, needs_handler=Why.STATIC, logical_id=key.queue_id)

    # Refusals

    def _refused_time(self) -> Refused | None:
        """Return the refusal before startAcceptSendRequestTimeStamp."""
        start_ms = self._config.broker.start_accept_send_request_time_stamp
        if not start_ms or self._clock.wall_ms() >= start_ms:
            return None
        until = datetime.fromtimestamp(start_ms / 1000).astimezone()
        remark = f"broker unable to service, until {until:%Y-%m-%d %H:%M:%S},{start_ms % 1000:03}"
        return Refused(ResponseCode.SYSTEM_ERROR, remark, Reason.NOT_READY, is_lasting=False)

    def _refused_topic(self, name: str, topic: TopicConfig | None) -> Refused | None:
        broker = self._config.broker
        if self._config.store.read_only_from:
            remark = f"broker {broker.broker_name} serves an archive (readOnlyFrom) and takes no messages"
            return Refused(ResponseCode.NO_PERMISSION, remark, Reason.BROKER_NOT_WRITABLE)
        if topic is None and (illegal := illegal_topic(name)) is not None:
            return Refused(ResponseCode.INVALID_PARAMETER, illegal)
        if topic is not None and topic.order and not broker.broker_permission & PERM_WRITE:
            remark = f"the broker[{broker.broker_ip1}] sending message is forbidden"
            return Refused(ResponseCode.NO_PERMISSION, remark, Reason.BROKER_NOT_WRITABLE)
        if name in NOT_ALLOWED_SEND_TOPICS:
            remark = f"Sending message to topic[{name}] is forbidden."
            return Refused(ResponseCode.NO_PERMISSION, remark, Reason.SYSTEM_TOPIC)
        if topic is None:
            return Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{FAQ}")
        if not topic.perm & PERM_WRITE:
            remark = f"the topic[{name}] sending message is forbidden"
            return Refused(ResponseCode.NO_PERMISSION, remark, Reason.TOPIC_NOT_WRITABLE)
        if name in self.quotas.closed:
            return Refused(ResponseCode.FLOW_CONTROL, self.quotas.closed[name], Reason.QUOTA)
        return None


def _other_sharding(header: SendHeader, count: int) -> RequestError:
    """Return the refusal of a send whose key chose among another number of queues; clients ask for the route then."""
    grown = f"its keys choose from {count}" if count else "it grows, try again"
    remark = f"the sharding key chose from {header.sharding_queues} queues of topic {header.topic}: {grown}"
    return RequestError(ResponseCode.NOT_LEADER_FOR_QUEUE, remark, Reason.QUEUE_NOT_EXIST)


def _no_queue(topic: TopicConfig, queue_id: int) -> Refused:
    remark = (
        f"request queueId[{queue_id}] is illegal, {topic.topic_name} has {topic.write_queue_nums} write queues and "
        f"{topic.read_queue_nums} read queues, Producer: {PEER}"
    )
    return Refused(ResponseCode.INVALID_PARAMETER, remark, Reason.QUEUE_NOT_EXIST)
