"""CONSUMER_SEND_MSG_BACK: redelivery of a message that a consumer could not process.

The message goes to the group's retry topic after a delay that grows with each attempt (level 3, 4, ...).  After the
last attempt it goes to the group's dead-letter topic, which operators can read.
Source: RocketMQ 5.3.3, `AbstractSendMessageProcessor.consumerSendMsgBack`, `HookUtils.transformDelayLevelMessage`.
"""

import logging

from acl.auth.model import Action as AuthAction
from acl.gate import require_topic
from broker.core import BrokerCore
from broker.message_id import offset_message_id
from broker.plan.refusals import unknown_group_of_retry
from broker.timer.timer_intake import TIMER_NAMES
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import PERM_WRITE
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC, dlq_topic, retry_topic
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Answer, Resource, Route, Traffic
from store.config.delay_levels import parse_delay_levels
from store.message_store import PendingMessage
from store.queue.consume_queue_table import is_file_name
from store.record.record import Record, TagsCodes, decode

logger = logging.getLogger(__name__)

_FIRST_RETRY_LEVEL = 3
_DLQ_QUEUE_NUMS = 1
# Clients before V3_4_9 do not know maxReconsumeTimes.
_V3_4_9 = 121
_INNER_BATCH = int(SysFlag.INNER_BATCH)
# `TopicSysFlag.FLAG_UNIT_SUB`
_UNIT_SUB_FLAG = 0x2


# Without an in-sync slave the retry is still stored; after an error the client would send it again.
_STORED = (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE)


class SendBackProcessor:
    """Handler of CONSUMER_SEND_MSG_BACK.  The response waits for the disk (SYNC_FLUSH) and slaves (SYNC_MASTER)."""

    def __init__(self, core: BrokerCore) -> None:
        self._tier = core.tier
        self._config = core.config
        self._store = core.store
        self._topics = core.topics
        self._groups = core.groups
        self._waits = core.waits
        self._below = core.random_below
        self._flow = core.flow
        self._tags_codes = TagsCodes(core.config.store.message_delay_level)
        self._max_level = len(parse_delay_levels(core.config.store.message_delay_level))

    def routes(self) -> list[Route]:
        return [
            Route(
                RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader, self.send_back,
                Resource.GROUP, Action.SUB, Traffic.SEND,
            )
        ]  # fmt: skip

    def send_back(self, request: Request[ConsumerSendMsgBackRequestHeader]) -> Answer:
        """Store the message again; the response follows when it is as safe as a confirmed send."""
        header = request.header
        group = self._groups.find(header.group)
        if group is None:
            raise unknown_group_of_retry(header.group).error(request.channel.peer)
        broker = self._config.broker
        if not broker.broker_permission & PERM_WRITE:
            remark = f"the broker[{broker.broker_ip1}] sending message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.BROKER_NOT_WRITABLE)
        if group.retry_queue_nums <= 0:
            return Response()  # the group has retries turned off
        retry = self._retry_queue(header, group)
        view = self._store.record_at(header.offset) if header.offset >= 0 else None
        if view is None and self._tier.is_on and header.offset < self._store.first_physical_offset:
            return self._archived_back(request, group, retry)
        self._store_again(request, group, retry, view)
        return None

    async def _archived_back(
        self,
        request: Request[ConsumerSendMsgBackRequestHeader],
        group: SubscriptionGroupConfig,
        retry: tuple[str, int],
    ) -> None:
        """Do the same for a message that only the object store has.  Raises RequestError, or an `ObjectStoreError`."""
        self._store_again(request, group, retry, await self._tier.record_at(request.header.offset))

    def _store_again(
        self,
        request: Request[ConsumerSendMsgBackRequestHeader],
        group: SubscriptionGroupConfig,
        retry: tuple[str, int],
        view: memoryview | None,
    ) -> None:
        header = request.header
        record = _record(header.offset, view)
        require_topic(request, record.topic, AuthAction.SUB, header.group)  # the group will read the message
        message = self._message(request, group, record, retry)
        _, physical_offset, size_bytes = self._store.append([message])[0]
        origin = header.origin_topic or record.topic
        self._flow.returned(origin, header.group, is_dead=message.topic == dlq_topic(header.group))
        self._answer_when_safe(request, physical_offset + size_bytes)

    def _retry_queue(self, header: ConsumerSendMsgBackRequestHeader, group: SubscriptionGroupConfig) -> tuple[str, int]:
        if not is_file_name(retry_topic(header.group)):
            remark = f"message is illegal: the retry topic of group {header.group} cannot be a directory"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        sys_flag = _UNIT_SUB_FLAG if header.unit_mode else 0
        topic = self._topics.get_or_create(retry_topic(header.group), group.retry_queue_nums, topic_sys_flag=sys_flag)
        if not topic.perm & PERM_WRITE:
            remark = f"the topic[{topic.topic_name}] sending message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark, Reason.TOPIC_NOT_WRITABLE)
        return topic.topic_name, self._below(group.retry_queue_nums)

    def _message(
        self,
        request: Request[ConsumerSendMsgBackRequestHeader],
        group: SubscriptionGroupConfig,
        record: Record,
        retry: tuple[str, int],
    ) -> PendingMessage:
        header = request.header
        original = bytes(record.properties)
        properties = names.parse_for_copy(original)
        properties.setdefault(names.RETRY_TOPIC, record.topic)
        properties[names.WAIT] = "false"
        for name in (names.INNER_NUM, names.INNER_BASE):
            properties.pop(name, None)
        most = group.retry_max_times
        if request.version >= _V3_4_9 and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if record.reconsume_times >= most or header.delay_level < 0:
            topic, queue_id = self._dead_letter_queue(header.group)
            properties[names.DELAY] = "0"
            properties.pop(names.IDEMPOTENCE_ID, None)  # that of the original
            peer_lines.info(
                logger, request.channel.peer, "event=dead_letter group=%s topic=%s attempts=%d key=%s",
                header.group, properties[names.RETRY_TOPIC], record.reconsume_times, properties.get(names.UNIQ_KEY),
            )  # fmt: skip
        else:
            level = min(header.delay_level or _FIRST_RETRY_LEVEL + record.reconsume_times, self._max_level)
            for name in TIMER_NAMES:
                properties.pop(name, None)
            properties[names.DELAY] = str(level)
            properties[names.REAL_TOPIC], properties[names.REAL_QUEUE_ID] = retry[0], str(retry[1])
            topic, queue_id = SCHEDULE_TOPIC, level - 1
        if not properties.get(names.ORIGIN_MESSAGE_ID):
            own_id = offset_message_id(record.store_host, record.physical_offset)
            properties[names.ORIGIN_MESSAGE_ID] = own_id
        encoded = names.encode_copy(properties, original)
        if len(encoded) > MAX_PROPERTIES_BYTES:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL: properties have no room for a retry")
        return PendingMessage(
            topic,
            queue_id,
            record.body,
            encoded,
            self._tags_codes.of("", encoded, 0),
            record.flag,
            record.sys_flag,
            record.born_timestamp,
            record.born_host,
            record.reconsume_times + 1,
        )

    def _dead_letter_queue(self, group: str) -> tuple[str, int]:
        topic = self._topics.get_or_create(dlq_topic(group), _DLQ_QUEUE_NUMS)
        return topic.topic_name, 0

    def _answer_when_safe(self, request: Request[ConsumerSendMsgBackRequestHeader], end_offset: int) -> None:
        def answer(error: StoreError | None, code: ResponseCode) -> None:
            if error is not None:
                refusal = Refusal(ResponseCode.SYSTEM_ERROR, str(error), reason=error.refusal_reason)
                request.channel.reply(request, refusal)
            elif code in _STORED:
                request.channel.reply(request, Response())
            else:
                # Stored, but less safely than configured.
                request.channel.reply(request, Response(ResponseCode.SYSTEM_ERROR, code.name))

        self._waits.wait(end_offset, answer)


def _record(physical_offset: int, view: memoryview | None) -> Record:
    record = None if view is None else decode(view)
    if not isinstance(record, Record) or record.physical_offset != physical_offset:
        remark = f"look message by offset failed, {physical_offset}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.NOT_FOUND)
    if record.sys_flag & _INNER_BATCH:
        # The record holds many messages, and the offset does not identify one; the client then sends it itself.
        raise RequestError(ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL: the offset is that of an inner batch")
    return record
