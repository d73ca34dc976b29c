"""Decision whether a topic accepts messages, taken once per topic and batch.

Source: RocketMQ 5.3.3, `AbstractSendMessageProcessor.msgCheck`, `TopicValidator`.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.names import illegal_topic
from broker.plan.refusals import FAQ
from broker.topic.attributes import QUEUE_TYPE
from broker.topic.topics import TopicTable
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.topic import PERM_WRITE, TopicConfig
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import NOT_ALLOWED_SEND_TOPICS, RETRY_PREFIX, is_light
from store.queue.logic_queue import QueueType

logger = logging.getLogger(__name__)

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2
# Return a random number from 0 to below the argument; chooses a queue.
Below = Callable[[int], int]

# This bit is no flag of a message.
RETRY_MARK: Final = 1 << 32
# `TopicSysFlag`
_UNIT: Final = 0x1
_UNIT_SUB: Final = 0x2


def check_accepting(config: BrokerConfig, now_ms: int) -> None:
    """Raise RequestError before startAcceptSendRequestTimeStamp."""
    start_ms = config.start_accept_send_request_time_stamp
    if now_ms < start_ms:
        until = datetime.fromtimestamp(start_ms / 1000).astimezone()
        text = f"{until:%Y-%m-%d %H:%M:%S},{start_ms % 1000:03}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {text}", Reason.NOT_READY)


class Admission:
    """Topic that accepts messages, with the facts that a send needs."""

    __slots__ = ("config", "flags", "is_retry", "keeps_batches", "queue_limit", "sys_flag", "topic", "usual")

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.topic = config.topic_name
        # A client's batch stays one record (`QueueTypeUtils.isBatchCq`).
        self.keeps_batches = config.attributes.get(QUEUE_TYPE) == QueueType.BATCH
        self.is_retry = self.topic.startswith(RETRY_PREFIX)
        # After a topic lost queues, consumers may still read its old queues, so producers may write to them.
        self.queue_limit = max(config.write_queue_nums, config.read_queue_nums)
        self.sys_flag = int(SysFlag.MULTI_TAGS) if config.topic_filter_type == "MULTI_TAG" else 0
        # Or-ed into a message's flags before they are tested: saves one test per message.
        self.flags = self.sys_flag | (RETRY_MARK if self.is_retry else 0)
        # What the compiled path needs of a topic whose messages may be usual: topic, limit of queue ids, flags.
        self.usual = None if self.is_retry else (self.topic, self.queue_limit, self.flags)


class SendAdmission:
    """Check of the topic of a send; creates a topic that may be created on first use.

    Stricter than the reference in one point: it checks the topic's own write permission.  RocketMQ only shows that
    permission to clients in the route.
    """

    def __init__(self, config: LiveConfig, topics: TopicTable, below: Below) -> None:
        self._config = config
        self._topics = topics
        self._below = below
        # By topic.  An entry is valid while the configurations that it was derived from are current.
        self._admissions: dict[str, Admission] = {}
        self._derived_for = config.broker

    def admit(self, header: SendHeader, peer: tuple[str, int]) -> Admission:
        """Return the admission of the topic.  Raises RequestError, or StoreError if a new topic cannot be saved."""
        broker, topic = self._config.broker, header.topic
        if broker is not self._derived_for:
            self._admissions.clear()
            self._derived_for = broker
        config = self._topics.get(topic)
        admission = self._admissions.get(topic)
        if admission is None or admission.config is not config:
            self._admissions.pop(topic, None)
            admission = self._derive(header, config, peer)
            if not is_light(topic):  # the number of light topics has no bound
                self._admissions[topic] = admission
        if self._topics.unsaved:
            self._topics.rely_on(topic)
        return admission

    def usual(self, topic: str) -> tuple[str, int, int] | None:
        """Return topic, limit of queue ids and flags of an admitted topic whose messages may be usual.

        None also if the admission must be made again, or a send must wait for the topic's file.
        """
        admission = self._admissions.get(topic)
        if admission is None or self._config.broker is not self._derived_for or topic in self._topics.unsaved:
            return None
        return admission.usual if admission.config is self._topics.get(topic) else None

    def _derive(self, header: SendHeader, config: TopicConfig | None, peer: tuple[str, int]) -> Admission:
        topic, broker = header.topic, self._config.broker
        if not broker.broker_permission & PERM_WRITE and config is not None and config.order:
            remark = f"the broker[{broker.broker_ip1}] sending message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.BROKER_NOT_WRITABLE)
        if config is None:
            config = self._create(header, peer)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            raise _system_topic(topic)
        if not config.perm & PERM_WRITE:
            remark = f"the topic[{topic}] sending message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.TOPIC_NOT_WRITABLE)
        return Admission(config)

    def _create(self, header: SendHeader, peer: tuple[str, int]) -> TopicConfig:
        topic = header.topic
        reason = illegal_topic(topic)
        if reason is not None:
            raise RequestError(ResponseCode.INVALID_PARAMETER, reason)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            raise _system_topic(topic)
        is_retry = topic.startswith(RETRY_PREFIX)
        sys_flag = (_UNIT_SUB if is_retry else _UNIT) if header.unit_mode else 0
        created = self._topics.create_on_send(
            topic,
            header.default_topic,
            header.default_topic_queue_nums,
            topic_sys_flag=sys_flag,
            peer=f"{peer[0]}:{peer[1]}",
        )
        if created is None and is_retry:
            created = self._topics.get_or_create(topic, 1, topic_sys_flag=sys_flag)
        if created is None:
            remark = f"topic[{topic}] not exist, apply first please!{FAQ}"
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
        return created

    def queue(self, admission: Admission, queue_id: int, peer: tuple[str, int]) -> int:
        """Return a random queue if the request names none; raise RequestError if `queue_id` does not exist."""
        write_queue_nums = admission.config.write_queue_nums
        if queue_id < 0 and write_queue_nums > 0:
            return self._below(write_queue_nums)
        remark = (
            f"request queueId[{queue_id}] is illegal, {admission.topic} has {write_queue_nums} write queues and "
            f"{admission.config.read_queue_nums} read queues, Producer: {peer[0]}:{peer[1]}"
        )
        peer_lines.warning(
            logger, peer, "event=send_refused reason=queue_id topic=%s queue=%d", admission.topic, queue_id
        )
        raise RequestError(ResponseCode.INVALID_PARAMETER, remark, Reason.QUEUE_NOT_EXIST)


def _system_topic(topic: str) -> RequestError:
    remark = f"Sending message to topic[{topic}] is forbidden."
    return RequestError(ResponseCode.NO_PERMISSION, remark, Reason.SYSTEM_TOPIC)
