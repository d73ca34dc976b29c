"""Admission of pops and peeks.

Source: RocketMQ 5.3.3, `PopMessageProcessor.processRequest`, `PeekMessageProcessor`.
"""

from functools import lru_cache
from typing import Any, Final

from broker.core import BrokerCore
from broker.plan.table import PEER, Refused
from broker.send.admission import FAQ
from broker.topic.retry_topics import retry_topic_v1
from sprocket.common.errors import RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import PERM_READ, TopicConfig
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.pop import (
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
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
        self._topics = core.topics
        self._groups = core.groups

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
        config = self._topics.get(topic)
        if config is None:
            raise unknown_topic(topic).error(request.channel.peer)
        if not config.perm & PERM_READ:
            remark = f"the topic[{topic}] peeking message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.TOPIC_NOT_READABLE)
        if queue_id >= config.read_queue_nums:
            raise bad_queue(ResponseCode.INVALID_PARAMETER, config, queue_id).error(request.channel.peer)
        found = self._groups.find(group)
        if found is None:
            remark = f"subscription group [{group}] does not exist, {FAQ}"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not found.consume_enable:
            remark = f"subscription group no permission, {group}"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.GROUP_DISABLED)
        return config


def unknown_topic(topic: str) -> Refused:
    """Return the refusal of a topic that does not exist."""
    return Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}")


def bad_queue(code: ResponseCode, config: TopicConfig, queue_id: int) -> Refused:
    """Return the refusal of a queue that a topic does not have."""
    remark = (
        f"queueId[{queue_id}] is illegal, topic:[{config.topic_name}] "
        f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[{PEER}]"
    )
    return Refused(code, remark, Reason.QUEUE_NOT_EXIST)
