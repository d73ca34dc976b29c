"""Requests to brokers: to the master of a broker group, over the connections and routes of the client.

Source: RocketMQ 5.3.3, `ClusterMessageService`, `ConsumerProcessor`, `AbstractProcessor`.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from proxy.brokers.ack_requests import ack_header, encoded_ack
from proxy.brokers.caller_connections import Caller, CallerConnections
from proxy.brokers.pace import Pace
from proxy.brokers.pop_requests import encoded_pop
from proxy.brokers.receipts import Receipt
from proxy.brokers.send_requests import SEND_SETTINGS, send_header
from proxy.brokers.slowed_callers import SlowedCallers
from proxy.brokers.turn_share import TurnShare
from proxy.status import Refusal
from sprocket.client.answers import header_of
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.errors import AnswerUnreadable, ClientError, TopicNotFound, refusal
from sprocket.client.pop.lite_popped import lite_popped_messages
from sprocket.client.pop.popped_message import PoppedMessage, popped_messages
from sprocket.client.pull.record_decoder import decode_records
from sprocket.client.send.send_request import SendRequest, sharded
from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Buffer, ReceivedResponse
from sprocket.remoting.headers.admin import CreateTopicRequestHeader, ViewMessageRequestHeader
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.lite import PopLiteMessageRequestHeader, PopLiteMessageResponseHeader
from sprocket.remoting.headers.pop import (
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from sprocket.remoting.message.topic_names import AUTO_CREATE_TOPIC

logger = logging.getLogger(__name__)

# `MessagingProcessor.DEFAULT_TIMEOUT_MILLS`
TIMEOUT_S: Final = 2.0
# The answer to a held pop may come this much later than its wait.
_POLL_SLACK_S: Final = 5.0
# A larger body may not fit into a frame beside its header.
_LARGE_BODY_BYTES: Final = limits.MAX_FRAME_BYTES - (1 << 20)
# Answers of pops that are read and passed on in one turn of the loop: about 2 ms.
_POPPED_BYTES: Final = 64 * 1024
_NOTHING: Final = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})


class Brokers:
    """Sender of requests to brokers.  Methods raise Refusal and ClientError; `status_of` turns both into a status."""

    def __init__(self, instance: ClientInstance, max_caller_connections: int | None = None) -> None:
        self.instance = instance
        self.callers = CallerConnections(instance, max_caller_connections)
        self.slowed = SlowedCallers(instance.clock.monotonic)
        self._sends = Pace()
        self._pops = TurnShare(_POPPED_BYTES)

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of `topic`."""
        return await self.instance.route(topic)

    async def readable(self, topic: str) -> list[str]:
        """Return the broker groups with a master and queues of `topic` to read, at least one."""
        route = await self.route(topic)
        names = sorted({queue.broker_name for queue in route.popped})
        found = [name for name in names if self.instance.master_address(name) is not None]
        if not found:
            raise Refusal(wire.FORBIDDEN, "no readable queue")
        return found

    async def is_known(self, broker_name: str, topic: str) -> bool:
        """Return whether a broker group has a master now; ask for the route of `topic` if not."""
        if self.instance.master_address(broker_name) is not None:
            return True
        try:
            await self.instance.refresh_route(topic)
        except TopicNotFound:
            return False
        return self.instance.master_address(broker_name) is not None

    async def ask(
        self,
        broker_name: str,
        code: int,
        header: Header | dict[str, str] | None,
        body: Buffer = b"",
        *,
        timeout_s: float,
        caller: Caller | None = None,
    ) -> ReceivedResponse:
        """Return the response of a master, whatever its code.  It charges `caller`; without one, the proxy."""
        channel = await self._channel(broker_name, caller)
        return await channel.request(code, header, body, timeout_s=timeout_s)

    def open_channel(self, broker_name: str) -> RemotingChannel | None:
        """Return the connection to a master, if there is one now."""
        address = self.instance.master_address(broker_name)
        return None if address is None else self.instance.remoting.open_channel(address)

    async def _channel(self, broker_name: str, caller: Caller | None) -> RemotingChannel:
        address = self.instance.master_address(broker_name)
        if address is None:
            raise Refusal(wire.BAD_REQUEST, f"cannot find broker {broker_name}")
        return self.callers.open_channel(address, caller) or await self.callers.channel(address, caller)

    async def send(
        self,
        request: SendRequest,
        queue: MessageQueue,
        born_ms: int,
        sharding_queues: int | None = None,
        caller: Caller | None = None,
    ) -> ReceivedResponse:
        """Return the response of a master to a send of `caller`, which may wait a moment for others, see `Pace`.

        `sharding_queues` is the number of queues that a message group chose from; None without a group.
        """
        moment = self._sends.moment()
        if moment is not None:
            await moment
        with self._sends:
            channel = await self._channel(queue.broker_name, caller)
            if channel.is_signing or len(request.body) > _LARGE_BODY_BYTES:
                fields = request.ext_fields(request.topic, SEND_SETTINGS, queue, born_ms) | sharded(sharding_queues)
                return await channel.request(request.code, fields, request.body, timeout_s=TIMEOUT_S)
            header, opaque = send_header(request.code, queue, sharding_queues), channel.next_opaque()
            numbers = request.sys_flag, born_ms, request.flag
            prefix = header.prefix(opaque, *numbers, request.properties, len(request.body))
            answer: asyncio.Future[ReceivedResponse] = asyncio.get_running_loop().create_future()
            channel.request_encoded(answer, request.code, opaque, prefix, request.body, TIMEOUT_S)
            return await answer

    def success(self, response: ReceivedResponse, broker_name: str) -> ReceivedResponse:
        """Return `response` unless it is an error.  Raises BrokerRefused."""
        if response.code != ResponseCode.SUCCESS:
            raise refusal(response.code, response.remark, broker_name)
        return response

    async def create_topic(self, topic: str, cluster: str, queues: int = 1) -> None:
        """Create `topic` on every master of `cluster` that does not have it."""
        try:
            there = (await self.instance.refresh_route(topic)).broker_addresses
        except TopicNotFound:
            there = {}
        header = CreateTopicRequestHeader(
            topic=topic, default_topic=AUTO_CREATE_TOPIC, read_queue_nums=queues, write_queue_nums=queues, perm=6,
            topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
        )  # fmt: skip
        for name, members in (await self.instance.route(cluster)).broker_addresses.items():
            if name not in there and MASTER_ID in members:
                code = RequestCode.UPDATE_AND_CREATE_TOPIC
                self.success(await self.ask(name, code, header, timeout_s=TIMEOUT_S), name)
                peer_lines.info(logger, "", "event=topic_created topic=%s broker=%s", topic, name)

    async def pop(
        self,
        broker_name: str,
        header: PopMessageRequestHeader | PopLiteMessageRequestHeader,
        wait_s: float,
        unread: Callable[[ReceivedResponse], None],
        caller: Caller | None = None,
    ) -> ReceivedResponse:
        """Return the response of a master to a pop of `caller` that it may hold for `wait_s`.

        The broker may take messages for a pop at any time.  If the caller is cancelled, `unread` gets the response.
        """
        channel, limit_s = await self._channel(broker_name, caller), wait_s + _POLL_SLACK_S
        poll = _Poll(unread)
        if isinstance(header, PopLiteMessageRequestHeader):
            channel.request_for(poll, RequestCode.POP_LITE_MESSAGE, header, timeout_s=limit_s)
        elif channel.is_signing:
            channel.request_for(poll, RequestCode.POP_MESSAGE, header, timeout_s=limit_s)
        else:
            opaque = channel.next_opaque()
            channel.request_encoded(poll, RequestCode.POP_MESSAGE, opaque, encoded_pop(header, opaque), b"", limit_s)
        try:
            response = await poll.answer
            if response.body:
                await self._pops.take(len(response.body))
        except asyncio.CancelledError:
            poll.leave()
            raise
        return response

    def popped(
        self, response: ReceivedResponse, topic: str, broker_name: str, asked_at: float, *, is_lite: bool = False
    ) -> list[PoppedMessage]:
        """Return what a pop took that was asked for at `asked_at`, monotonic s; nothing if no message came in time.

        `is_lite`: it was a pop of the lite topics of `topic`.
        """
        if response.code in _NOTHING:
            return []
        if response.code == ResponseCode.POLLING_FULL:
            raise Refusal(wire.TOO_MANY_REQUESTS, "polling full")
        self.success(response, broker_name)
        try:
            if is_lite:
                lite = header_of(response, PopLiteMessageResponseHeader)
                return lite_popped_messages(response.body, lite, topic, broker_name, asked_at)
            answer = header_of(response, PopMessageResponseHeader)
            return popped_messages(response.body, answer, topic, broker_name, asked_at)
        except ProtocolError as error:
            raise AnswerUnreadable(f"the answer of {broker_name} to a pop: {error}") from None

    async def ack(self, receipt: Receipt, group: str, topic: str, caller: Caller | None = None) -> None:
        """Acknowledge one message."""
        handle, stored_topic = receipt.handle, receipt.stored_topic(topic, group)
        broker_name = handle.broker_name
        await self._check(receipt, topic)
        channel = await self._channel(broker_name, caller)
        if channel.is_signing or receipt.lite_topic:
            header = ack_header(group, stored_topic, handle, receipt.offset, receipt.lite_topic or None)
            answer = channel.request(RequestCode.ACK_MESSAGE, header, timeout_s=TIMEOUT_S)
        else:
            opaque = channel.next_opaque()
            frame = encoded_ack(group, stored_topic, handle, receipt.offset, opaque)
            answer = asyncio.get_running_loop().create_future()
            channel.request_encoded(answer, RequestCode.ACK_MESSAGE, opaque, frame, b"", TIMEOUT_S)
        self.success(await answer, broker_name)

    async def ack_batch(self, receipts: Sequence[Receipt], group: str, topic: str, caller: Caller | None) -> None:
        """Acknowledge several messages of one broker."""
        await self._check(receipts[0], topic)
        acks: dict[tuple[str, int, int, int, int], BatchAck] = {}
        bits: defaultdict[tuple[str, int, int, int, int], int] = defaultdict(int)
        for receipt in receipts:
            handle = receipt.handle
            key = (handle.retry, handle.queue_id, handle.first_offset, handle.pop_time_ms, handle.invisible_ms)
            bits[key] |= 1 << (receipt.offset - handle.first_offset)
            acks[key] = BatchAck(
                c=group, t=topic, r=handle.retry, so=handle.first_offset, q=handle.queue_id,
                rq=handle.revive_queue_id, pt=handle.pop_time_ms, it=handle.invisible_ms,
            )  # fmt: skip
        for key, ack in acks.items():
            ack.b = bits[key].to_bytes((bits[key].bit_length() + 7) // 8, "little")
        broker_name = receipts[0].handle.broker_name
        body = dumps(BatchAckMessageRequestBody(broker_name, list(acks.values())))
        code = RequestCode.BATCH_ACK_MESSAGE
        response = await self.ask(broker_name, code, None, body, timeout_s=TIMEOUT_S, caller=caller)
        self.success(response, broker_name)

    async def change_invisible(
        self, receipt: Receipt, group: str, topic: str, invisible_ms: int, *, suspend: bool = False
    ) -> Receipt:
        """Make a message invisible for `invisible_ms` from now on.  Return its new receipt.

        With `suspend` its next delivery is not counted.
        """
        await self._check(receipt, topic)
        handle = receipt.handle
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=group,
            topic=receipt.stored_topic(topic, group),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            offset=receipt.offset,
            invisible_time=invisible_ms,
            suspend=suspend or None,
            lite_topic=receipt.lite_topic or None,
        )
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        response = await self.ask(handle.broker_name, code, header, timeout_s=TIMEOUT_S)
        answer = header_of(self.success(response, handle.broker_name), ChangeInvisibleTimeResponseHeader)
        return receipt.renewed(answer.pop_time, answer.invisible_time, answer.revive_qid)

    async def forward_to_dead_letters(
        self, receipt: Receipt, message_id: str, group: str, topic: str
    ) -> ReceivedResponse:
        """Let the broker make a message a dead letter of `group`, then acknowledge it.  Return the broker's answer."""
        if receipt.log_offset < 0:
            raise Refusal(wire.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
        await self._check(receipt, topic, may_be_expired=True)
        await self._check_topic(receipt, receipt.stored_topic(topic, group))
        header = ConsumerSendMsgBackRequestHeader(
            offset=receipt.log_offset,
            group=group,
            delay_level=-1,
            origin_msg_id=message_id,
            origin_topic=receipt.stored_topic(topic, group),
            max_reconsume_times=0,
        )
        broker_name = receipt.handle.broker_name
        response = await self.ask(broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_s=TIMEOUT_S)
        if response.code == ResponseCode.SUCCESS:
            try:
                await self.ack(receipt, group, topic)
            except (ClientError, Refusal) as error:
                # It is redelivered once more, and then found in both places: better than in none.
                peer_lines.warning(
                    logger, "", "event=ack_of_dead_letter_failed id=%s reason=%r", message_id, str(error)
                )
        return response

    async def _check_topic(self, receipt: Receipt, topic: str) -> None:
        """Refuse a handle with the place of another topic's message: its owner would get that one to read."""
        broker_name = receipt.handle.broker_name
        asked = ViewMessageRequestHeader(topic=topic, offset=receipt.log_offset)
        found = await self.ask(broker_name, RequestCode.VIEW_MESSAGE_BY_ID, asked, timeout_s=TIMEOUT_S)
        messages = []
        if found.code == ResponseCode.SUCCESS:
            try:
                messages = decode_records(found.body, MessageQueue(topic, broker_name, 0))
            except ProtocolError as error:
                raise AnswerUnreadable(f"the message at {receipt.log_offset} of {broker_name}: {error}") from None
        if len(messages) != 1 or messages[0].topic != topic:
            raise Refusal(wire.INVALID_RECEIPT_HANDLE, f"no message of {topic} is at {receipt.log_offset} in the log")

    async def _check(self, receipt: Receipt, topic: str, *, may_be_expired: bool = False) -> None:
        if not may_be_expired and receipt.is_expired(self.instance.clock.wall_ms()):
            raise Refusal(wire.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
        broker_name = receipt.handle.broker_name
        if self.instance.master_address(broker_name) is None and not await self.is_known(broker_name, topic):
            raise Refusal(wire.INVALID_RECEIPT_HANDLE, f"cannot find broker {broker_name}")


class _Poll:
    """Waiter of a held request; `unread` gets a response that nobody waits for any more."""

    __slots__ = ("_unread", "answer")

    def __init__(self, unread: Callable[[ReceivedResponse], None]) -> None:
        self._unread = unread
        self.answer: asyncio.Future[ReceivedResponse] = asyncio.get_running_loop().create_future()

    def leave(self) -> None:
        """Stop waiting.  The response may have come in this turn of the loop."""
        answer = self.answer
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            self._unread(answer.result())

    def done(self) -> bool:
        return False  # the broker may still answer

    def set_result(self, response: ReceivedResponse) -> None:
        if self.answer.done():
            self._unread(response)
        else:
            self.answer.set_result(response)

    def set_exception(self, error: ClientError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
