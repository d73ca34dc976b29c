"""SendMessage: one message, or several of one topic.

Source: RocketMQ 5.5.0, `SendMessageActivity`, `ProducerProcessor`, `DefaultTopicMessageTypeValidator`.
Unlike there, each message of a batch has its own entry in the answer, and a broker that cannot be reached is not the
end of a send: nothing was sent yet, so another broker takes it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.brokers.transaction_ids import TransactionId
from proxy.config import ProxyConfig
from proxy.convert.answers import SendResult, encoded_sends
from proxy.convert.incoming import Incoming, incoming
from proxy.server.call import Call
from proxy.status import OK, Refusal, status, status_of
from proxy.validation import topic_of
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.connection.wakeup import pause
from sprocket.client.errors import AnswerUnreadable, ConnectFailed, refusal
from sprocket.client.send.queue_choice import RoundRobin, by_consistent_hash
from sprocket.client.send.send_request import SendRequest, batched
from sprocket.common.errors import SprocketError
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import DLQ_PREFIX, RETRY_PREFIX

_NOT_DURABLE: Final = {
    ResponseCode.FLUSH_DISK_TIMEOUT: (wire.MASTER_PERSISTENCE_TIMEOUT, "FLUSH_DISK_TIMEOUT"),
    ResponseCode.FLUSH_SLAVE_TIMEOUT: (wire.SLAVE_PERSISTENCE_TIMEOUT, "FLUSH_SLAVE_TIMEOUT"),
    ResponseCode.SLAVE_NOT_AVAILABLE: (wire.HA_NOT_AVAILABLE, "SLAVE_NOT_AVAILABLE"),
}
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_MAX_MESSAGES: Final = 1024
# The last offset of a batch must fit 63 bits.
_OFFSET_LIMIT: Final = (1 << 63) - _MAX_MESSAGES
# How often a send looks for the broker that leads a logical queue now, and how much longer it waits each time.
_MAX_MOVES: Final = 8
_MOVED_S: Final = 0.1
_BATCHABLE: Final = frozenset({"NORMAL", "FIFO"})
# Offset of the record in the log, in the last 8 bytes of the offset message id, as hexadecimal digits.
_LOG_OFFSET_DIGITS: Final = 16


class SendActivity:
    """Sender of the messages of clients.  `new_id` makes the id of a batch."""

    def __init__(self, brokers: Brokers, metadata: Metadata, config: ProxyConfig, first: Callable[[], int]) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._config = config
        self._round_robin = RoundRobin(first)

    async def send_message(self, call: Call, request: wire.SendMessageRequest) -> bytes:
        """Send the messages of a request, all of one topic.  Return the bytes of a SendMessageResponse."""
        count = len(request.messages)
        if not count:
            raise Refusal(wire.MESSAGE_CORRUPTED, "no message to send")
        if count > _MAX_MESSAGES:
            raise Refusal(wire.PAYLOAD_TOO_LARGE, f"{count} messages in one request, the max is {_MAX_MESSAGES}")
        topic_resource = request.messages[0].topic
        topic = topic_of(topic_resource)
        now_ms = self._brokers.instance.clock.wall_ms()
        messages: list[Incoming] = []
        peer = call.peer_text
        for message in request.messages:
            if messages and message.topic != topic_resource:
                raise Refusal(wire.MESSAGE_CORRUPTED, "topic in message is not same")
            messages.append(incoming(message, topic, peer, self._config, now_ms))
        await self._check_types(topic, messages)
        return encoded_sends(await self._send(call, topic, messages))

    async def _check_types(self, topic: str, messages: Sequence[Incoming]) -> None:
        if not self._config.enable_topic_message_type_check or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return
        await self._route(topic)  # an unknown topic is answered as such, not as one without a type
        expected = self._metadata.known_type(topic) or await self._metadata.message_type(topic)
        check_type(expected, {message.message_type for message in messages})

    async def _send(self, call: Call, topic: str, messages: Sequence[Incoming]) -> list[SendResult]:
        if len(messages) == 1:
            return await self._send_request(call, topic, _single(topic, messages[0]), messages)
        is_batch = (
            all(message.message_type in _BATCHABLE and not message.sys_flag for message in messages)
            and len({message.sharding_key for message in messages}) == 1
        )
        if is_batch:
            return await self._send_request(call, topic, _batch(topic, messages), messages)
        if any(message.sharding_key for message in messages):
            # In order, because messages of one group or lite topic are.
            return [await self._send_one(call, topic, message) for message in messages]
        return list(await asyncio.gather(*(self._send_one(call, topic, message) for message in messages)))

    async def _send_one(self, call: Call, topic: str, message: Incoming) -> SendResult:
        """Send one of several messages; its failure is its own."""
        try:
            return (await self._send_request(call, topic, _single(topic, message), [message]))[0]
        except SprocketError as error:
            return SendResult(status_of(error), message.message_id)

    async def _send_request(
        self, call: Call, topic: str, request: SendRequest, messages: Sequence[Incoming]
    ) -> list[SendResult]:
        route = await self._route(topic)
        key = messages[0].sharding_key
        failed: list[str] = []
        moves = 0
        while True:
            queue = self._queue(route, key, failed)
            sharding_queues = len(route.publish) if key else None
            try:
                response = await self._brokers.send(request, queue, messages[0].born_ms, sharding_queues, call.caller)
            except (ConnectFailed, Refusal):
                # Nothing was sent.  A message group stays with its queue, and a lite topic with its broker.
                self._brokers.instance.request_refresh(topic)
                failed.append(queue.broker_name)
                if key or len(failed) >= len({route.broker_of(one) for one in route.publish}):
                    raise
                continue
            if response.code == ResponseCode.FLOW_CONTROL:
                self._brokers.slowed.refused(call.caller, call.peer)
            if response.code == ResponseCode.NOT_LEADER_FOR_QUEUE and moves < _MAX_MOVES:
                # Nothing was stored: the logical queue has moved, which name servers learn at once; or the topic grows.
                moves += 1
                await pause(_MOVED_S * (moves - 1))
                route = await self._brokers.instance.refresh_route(topic)
                continue
            return _results(response, queue, messages)

    async def _route(self, topic: str) -> TopicRoute:
        route = self._brokers.instance.cached_route(topic)
        return await self._brokers.route(topic) if route is None else route

    def _queue(self, route: TopicRoute, key: str, failed: Sequence[str]) -> MessageQueue:
        if not route.publish:
            raise Refusal(wire.FORBIDDEN, "no writable queue")
        queue = by_consistent_hash(route, key) if key else self._round_robin.choose(route, None, failed)
        # A logical queue keeps its number; the request goes to the broker that leads it.
        return queue if route.leaders is None else replace(queue, broker_name=route.broker_of(queue))


def check_type(expected: str, found: "set[str]") -> None:
    """Raise Refusal unless a topic whose type is `expected` takes messages of the types `found`."""
    for actual in sorted(found):
        if actual == "UNSPECIFIED" or expected not in (actual, "MIXED"):
            raise Refusal(
                wire.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
            )


def _single(topic: str, message: Incoming) -> SendRequest:
    request = SendRequest(topic, message.body, message.properties, message.message_id, message.flag)
    request.sys_flag = message.sys_flag
    return request


def _batch(topic: str, messages: Sequence[Incoming]) -> SendRequest:
    body = b"".join(batched(message.body, message.properties, message.flag) for message in messages)
    properties = names.encode({names.UNIQ_KEY: messages[0].message_id, names.WAIT: "true"})
    request = SendRequest(topic, body, properties, messages[0].message_id)
    request.code = int(RequestCode.SEND_BATCH_MESSAGE)
    return request


def _results(response: ReceivedResponse, queue: MessageQueue, messages: Sequence[Incoming]) -> list[SendResult]:
    if response.code in _NOT_DURABLE:
        code, name = _NOT_DURABLE[ResponseCode(response.code)]
        refused = status(code, f"send message failed, sendStatus={name}")
        return [SendResult(refused) for _ in messages]
    if response.code != ResponseCode.SUCCESS:
        raise refusal(response.code, response.remark, queue.broker_name)
    fields = response.ext_fields
    try:
        offset = int(fields.get("queueOffset", 0))
        if abs(offset) >= _OFFSET_LIMIT:
            raise ValueError(f"{offset} is no offset")
        log_offset = int(fields.get("msgId", "").split(",")[0][-_LOG_OFFSET_DIGITS:] or "0", 16)
    except ValueError as error:
        raise AnswerUnreadable(f"{queue.broker_name} took the message and answered with no number: {error}") from None
    results = []
    for index, message in enumerate(messages):
        transaction_id = ""
        if message.sys_flag & _PREPARED:
            transaction_id = TransactionId(message.message_id, queue.broker_name, offset, log_offset).encode()
        recall_handle = fields.get("recallHandle") or ""
        results.append(SendResult(OK, message.message_id, transaction_id, offset + index, recall_handle))
    return results
