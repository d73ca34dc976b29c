"""Admission of pops, peeks, acknowledgements and changes of the invisible time.

Source: RocketMQ 5.3.3, `PopMessageProcessor.processRequest`, `PeekMessageProcessor`, `AckMessageProcessor`,
`ChangeInvisibleTimeProcessor`.
"""

from functools import lru_cache
from typing import Any, Final

from broker.core import BrokerCore
from broker.send.admission import FAQ
from broker.topic.retry_topics import retry_topic_v1
from sprocket.common.errors import RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import PERM_READ, TopicConfig
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
from sprocket.remoting.message.topic_names import REVIVE_TOPIC_PREFIX
from store.queue.consume_queue_table import is_file_name

MAX_MESSAGES: Final = 32
# A pop that arrives this long after its client stopped waiting is not answered.
LATE_MS: Final = 500


@lru_cache(maxsize=1024)
def _has_retry_topic(topic: str, group: str) -> bool:
    return is_file_name(retry_topic_v1(topic, group))


class PopChecks:
    """Checks that raise RequestError with RocketMQ's codes and remarks."""

    def __init__(self, core: BrokerCore) -> None:
        self._config = core.config
        self._clock = core.clock
        self._store = core.store
        self._topics = core.topics
        self._groups = core.groups
        self._revive_topic = REVIVE_TOPIC_PREFIX + core.config.broker.broker_cluster_name

    def pop(self, request: Request[PopMessageRequestHeader]) -> TopicConfig:
        """Return the topic of a pop.  Sets a missing born time."""
        header, broker = request.header, self._config.broker
        now = self._clock.wall_ms()
        if not header.born_time:
            header.born_time = now
        if now - header.born_time - header.poll_time > LATE_MS:
            remark = f"the broker[{broker.broker_ip1}] pop message is timeout too much"
            raise RequestError(ResponseCode.POLLING_TIMEOUT, remark)
        self._readable("pop")
        if header.max_msg_nums > MAX_MESSAGES:
            remark = f"the broker[{broker.broker_ip1}] pop message's num is greater than {MAX_MESSAGES}"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
        if not self._config.store.timer_wheel_enable:
            remark = f"the broker[{broker.broker_ip1}] pop message is forbidden because timerWheelEnable is false"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.TURNED_OFF)
        longest_ms = self._config.store.timer_max_delay_sec * 1000
        if header.invisible_time > longest_ms and not header.order:
            # RocketMQ then finds nothing, without an error.
            remark = f"invisibleTime is {header.invisible_time} ms, more than timerMaxDelaySec allows: {longest_ms} ms"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
        config = self._topic(request, header.topic, header.queue_id, header.consumer_group)
        if not header.order:
            self._check_retry_topic(header.topic, header.consumer_group)
        return config

    def may_pop(self, topic: TopicConfig, group: SubscriptionGroupConfig) -> bool:
        """Return whether `pop` admits this topic and group, as far as they and the configuration decide."""
        return bool(
            self._config.broker.broker_permission & PERM_READ
            and self._config.store.timer_wheel_enable
            and topic.perm & PERM_READ
            and group.consume_enable
            and _has_retry_topic(topic.topic_name, group.group_name)
        )

    def _check_retry_topic(self, topic: str, group: str) -> None:
        """Refuse what could not be redelivered; both kinds of retry topic have names of equal length."""
        if not _has_retry_topic(topic, group):
            size = len(retry_topic_v1(topic, group))
            remark = (
                f"group {group} cannot pop topic {topic}: their retry topic would have a name of {size} "
                "characters, at most 255; choose shorter names, or consume without pop"
            )
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)

    def peek(
        self,
        request: Request[PeekMessageRequestHeader]
        | Request[NotificationRequestHeader]
        | Request[PollingInfoRequestHeader],
    ) -> TopicConfig:
        """Return the topic of a peek, or of a request for what can be popped or is held."""
        header = request.header
        self._readable("peeking")
        return self._topic(request, header.topic, header.queue_id, header.consumer_group)

    def _readable(self, what: str) -> None:
        broker = self._config.broker
        if not broker.broker_permission & PERM_READ:
            remark = f"the broker[{broker.broker_ip1}] {what} message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.BROKER_NOT_READABLE)

    def _topic(self, request: Request[Any], topic: str, queue_id: int, group: str) -> TopicConfig:
        config = self._known(topic)
        if not config.perm & PERM_READ:
            remark = f"the topic[{topic}] peeking message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.TOPIC_NOT_READABLE)
        if queue_id >= config.read_queue_nums:
            raise self._bad_queue(ResponseCode.INVALID_PARAMETER, config, queue_id, request.channel.peer)
        found = self._groups.find(group)
        if found is None:
            remark = f"subscription group [{group}] does not exist, {FAQ}"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not found.consume_enable:
            remark = f"subscription group no permission, {group}"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.GROUP_DISABLED)
        return config

    def _known(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}")
        return config

    def _bad_queue(self, code: int, config: TopicConfig, queue_id: int, peer: tuple[str, int]) -> RequestError:
        remark = (
            f"queueId[{queue_id}] is illegal, topic:[{config.topic_name}] "
            f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[{peer[0]}:{peer[1]}]"
        )
        return RequestError(code, remark, Reason.QUEUE_NOT_EXIST)

    # For popped messages

    def popped(self, header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader, peer: tuple[str, int]) -> None:
        """Check that an acknowledgement or a change names an existing queue and an offset that may have been popped."""
        topic, queue_id, offset = header.topic, header.queue_id, header.offset
        low, high = self.bounds(topic, queue_id, peer)
        # An acknowledgement may name the end itself, as in RocketMQ.
        is_change = isinstance(header, ChangeInvisibleTimeRequestHeader)
        if not low <= offset <= (high - 1 if is_change else high):
            remark = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}"
            raise RequestError(ResponseCode.NO_MESSAGE, remark)

    def same_topic(self, topic: str, queue_id: int, offset: int, pop_time_ms: int) -> None:
        """Check that a handle is not one of a deleted topic: its place may hold a message of a new topic."""
        if self._store.was_deleted(topic) and self._store.store_time(topic, queue_id, offset) > pop_time_ms:
            remark = f"the handle is of a topic {topic} that was deleted; the message is of a new one"
            raise RequestError(ResponseCode.NO_MESSAGE, remark)

    def bounds(self, topic: str, queue_id: int, peer: tuple[str, int]) -> tuple[int, int]:
        """Return the offset of the oldest message of an existing queue, and the queue's end."""
        config = self._known(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise self._bad_queue(ResponseCode.MESSAGE_ILLEGAL, config, queue_id, peer)
        return self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)

    def revive_queue(self, revive_queue_id: int) -> None:
        """Check that a handle names a queue of the revive topic.  RocketMQ writes to any queue that a client names.

        If reviveQueueNum is lowered, the topic keeps its queues, because earlier handles name them.
        """
        topic = self._topics.get(self._revive_topic)
        count = max(self._config.broker.revive_queue_num, 0 if topic is None else topic.read_queue_nums)
        if not 0 <= revive_queue_id < count:
            remark = f"revive queue {revive_queue_id} of a handle is none of {count}"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
