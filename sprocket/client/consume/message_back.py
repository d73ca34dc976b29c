"""Redelivery of messages: by the broker that they came from, else as new messages to the retry topic.

Source: RocketMQ 5.3.3, `DefaultMQPushConsumerImpl.sendMessageBack`, `sendMessageBackAsNormalMessage`.
"""

import logging

from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.unique_id import derived_id
from sprocket.client.errors import ClientError
from sprocket.client.message import ReceivedMessage
from sprocket.client.send.send_request import IdempotentRequest, SendRequest, SendSettings
from sprocket.client.send.sender import Sender
from sprocket.client.send_result import SendResult
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import COMPRESSION_MASK, SysFlag
from sprocket.remoting.message.topic_names import retry_topic

logger = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
# MixAll.CLIENTINNER_PRODUCER_GROUP
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
DEAD_LETTER_REASON = "DEAD_LETTER_REASON"
_MAX_REASON_CHARS = 500
# After n failures a message waits for delay level n + 3.
_FIRST_DELAY_LEVEL = 3


class MessageBack:
    """Sender of a group's messages for redelivery."""

    def __init__(self, instance: ClientInstance, group: str, max_reconsume_times: int) -> None:
        self._instance = instance
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._sender = Sender(instance, INNER_PRODUCER_GROUP, SendSettings())

    async def send(self, message: ReceivedMessage, delay_level: int) -> None:
        """Send `message` back.  Raises SendFailed, TopicNotFound or NameServerUnreachable if no broker took it.

        A message of a logical queue is sent as a new one: which broker has it is not known.
        """
        if message.queue.broker_name == LOGICAL_BROKER:
            await self.send_as_new(message, delay_level)
            return
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            max_reconsume_times=self._max_reconsume_times,
            broker_name=message.queue.broker_name,
        )
        broker_name = message.queue.broker_name
        try:
            response = await self._instance.invoke_master(
                broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_s=_TIMEOUT_S
            )
            self._instance.expect_success(response, broker_name)
        except ClientError as error:
            logger.warning("event=send_back_failed group=%s broker=%s reason=%r", self._group, broker_name, str(error))
            await self.send_as_new(message, delay_level)

    async def send_as_new(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Send a copy to the retry topic; without retries left the broker makes it a dead letter."""
        await self._sender.send(self._as_new_message(message, delay_level))

    async def send_dead_letter(self, message: ReceivedMessage, reason: str) -> None:
        """Have a copy become a dead letter at once; it has `reason` as a property.  Raises as `send`."""
        request = self._dead_letter(message, reason)
        # One retry more than allowed: the broker stores it in the dead-letter topic.
        request.max_reconsume_times = message.reconsume_times
        # The first queue: the retry topic may not exist yet, and then has one queue.
        broker_name = self._instance.broker_name_of(message.queue)
        await self._sender.send(request, queue=MessageQueue(request.topic, broker_name, 0))

    async def send_dead_letter_once(
        self, message: ReceivedMessage, reason: str, queue: MessageQueue, unique_key: str
    ) -> SendResult:
        """Send a copy to `queue` of the dead-letter topic, which exists; a Sprocket broker stores a `unique_key` once.

        Raises as `send`.
        """
        request = self._dead_letter(message, reason)
        request.topic, request.message_id = queue.topic, derived_id(queue.topic, unique_key)
        request.body = request.body or b" "  # brokers take no empty one
        ids = dict.fromkeys((names.UNIQ_KEY, names.IDEMPOTENCE_ID), request.message_id)
        request.properties = names.encode(names.parse(request.properties) | ids)
        return await self._sender.send(IdempotentRequest(request, unique_key), queue=queue)

    def _dead_letter(self, message: ReceivedMessage, reason: str) -> SendRequest:
        request = self._as_new_message(message, 0)
        properties = names.parse(request.properties)
        origin = properties[names.RETRY_TOPIC]
        properties = {name: value for name, value in properties.items() if name not in names.NOT_CARRIED}
        properties[names.RETRY_TOPIC] = origin
        if reason:
            reason = reason.replace(names.NAME_END, " ").replace(names.VALUE_END, " ")
            properties[DEAD_LETTER_REASON] = " ".join(reason.split())[:_MAX_REASON_CHARS]
        request.properties = names.encode(properties)
        return request

    def _as_new_message(self, message: ReceivedMessage, delay_level: int) -> SendRequest:
        properties = dict(message.properties)
        if names.UNIQ_KEY in properties:
            # The message's own, not its batch's: several copies with one id would be taken for duplicates.
            properties[names.UNIQ_KEY] = message.message_id
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        properties[names.RETRY_TOPIC] = self._instance.names.whole(message.topic)
        properties.pop(names.TRANSACTION_PREPARED, None)
        # The request's header has these two instead.
        properties.pop(names.RECONSUME_TIME, None)
        properties.pop(names.MAX_RECONSUME_TIMES, None)
        level = delay_level if delay_level > 0 else _FIRST_DELAY_LEVEL + message.reconsume_times
        properties[names.DELAY] = str(level)
        # As it is stored: a body that cannot be read goes on too.
        request = SendRequest(
            retry_topic(self._group), message.stored_body, names.encode(properties), message.message_id, message.flag
        )
        if message.sys_flag & SysFlag.COMPRESSED:
            request.sys_flag = message.sys_flag & (SysFlag.COMPRESSED | COMPRESSION_MASK)
        request.reconsume_times = message.reconsume_times + 1
        request.max_reconsume_times = self._max_reconsume_times
        return request
