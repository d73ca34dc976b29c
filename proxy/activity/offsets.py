"""PullMessage, UpdateOffset, GetOffset and QueryOffset: reading a queue by offsets, without pop.

RocketMQ 5.3.3 defines these methods and does not serve them.  Statuses are those that the definition names.
"""

from typing import Final

from proxy.brokers.brokers import TIMEOUT_S, Brokers
from proxy.config import ProxyConfig
from proxy.convert.filters import subscription_of
from proxy.convert.outgoing import encoded_topic, encoder
from proxy.server.call import Call
from proxy.server.write_limit import Answer
from proxy.status import OK, Refusal, status
from proxy.validation import group_of, topic_of
from sprocket.client.answers import header_of
from sprocket.client.errors import AnswerUnreadable
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.errors import ProtocolError
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import duration_ms, timestamp_ms
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

# Bits of a pull's sysFlag.  Source: RocketMQ 5.3.3, `PullSysFlag`.
_SUSPEND: Final = 2
_SUBSCRIPTION: Final = 4
_POLL_SLACK_S: Final = 5.0
_MAX_MESSAGES: Final = 1024
_EMPTY: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
_encode: Final = encoder(wire.PullMessageResponse)


class OffsetActivity:
    """Pulls and offsets of clients."""

    def __init__(self, brokers: Brokers, config: ProxyConfig) -> None:
        self._brokers = brokers
        self._config = config

    async def pull_message(self, call: Call, request: wire.PullMessageRequest, write: Answer) -> None:
        """Answer with a status, the messages from an offset on, and the next offset."""
        queue, group = await self._queue(request.message_queue), group_of(request.group)
        wanted = subscription_of(queue.topic, request.filter_expression)
        if request.offset < 0:
            raise Refusal(wire.ILLEGAL_OFFSET, f"the offset is {request.offset}")
        longest_ms = self._config.grpc_client_consumer_max_long_polling_timeout_millis
        wait_ms = min(max(0, duration_ms(request.long_polling_timeout)), longest_ms)
        if call.remaining_ms is not None:
            wait_ms = min(wait_ms, call.remaining_ms)
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=request.offset,
            max_msg_nums=max(1, min(request.batch_size, _MAX_MESSAGES)),
            sys_flag=_SUBSCRIPTION | (_SUSPEND if wait_ms else 0),
            commit_offset=0,
            suspend_timeout_millis=wait_ms,
            subscription=wanted.sub_string,
            sub_version=0,
            expression_type=wanted.expression_type,
        )
        limit_s = wait_ms / 1000 + _POLL_SLACK_S
        code, caller = RequestCode.PULL_MESSAGE, call.caller
        response = await self._brokers.ask(queue.broker_name, code, header, timeout_s=limit_s, caller=caller)
        await self._write_pulled(response, queue, request.offset, set(wanted.tags_set or ()), write)

    async def _write_pulled(
        self, response: ReceivedResponse, queue: MessageQueue, offset: int, tags: set[str], write: Answer
    ) -> None:
        if response.code == ResponseCode.PULL_OFFSET_MOVED:
            answer = header_of(response, PullMessageResponseHeader)
            refused = status(wire.ILLEGAL_OFFSET, f"offset {offset} is not in the queue")
            await write(wire.PullMessageResponse(status=refused))
            await write(wire.PullMessageResponse(next_offset=answer.next_begin_offset))
            return
        if response.code in _EMPTY:
            answer = header_of(response, PullMessageResponseHeader)
            await write(wire.PullMessageResponse(status=status(wire.MESSAGE_NOT_FOUND, "no new message")))
            await write(wire.PullMessageResponse(next_offset=answer.next_begin_offset))
            return
        answer = header_of(self._brokers.success(response, queue.broker_name), PullMessageResponseHeader)
        write.hold(len(response.body))
        try:
            messages = decode_records(response.body, queue, answer.offset_delta or 0, offset)
        except ProtocolError as error:
            raise AnswerUnreadable(f"the answer of {queue.broker_name} to a pull: {error}") from None
        await write(wire.PullMessageResponse(status=OK))
        now_ms, topic = self._brokers.instance.clock.wall_ms(), encoded_topic(queue.topic)
        for message in messages:
            if tags and message.tags not in tags:
                continue  # brokers compare the hashes of tags alone
            await write(_encode(message, topic, None, now_ms))
        await write(wire.PullMessageResponse(next_offset=answer.next_begin_offset))

    async def update_offset(self, call: Call, request: wire.UpdateOffsetRequest) -> wire.UpdateOffsetResponse:
        """Commit the offset of a group in a queue."""
        queue, group = await self._queue(request.message_queue), group_of(request.group)
        if request.offset < 0:
            raise Refusal(wire.ILLEGAL_OFFSET, f"the offset is {request.offset}")
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=request.offset
        )
        await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        return wire.UpdateOffsetResponse(status=OK)

    async def get_offset(self, call: Call, request: wire.GetOffsetRequest) -> wire.GetOffsetResponse:
        """Return the committed offset of a group in a queue."""
        queue, group = await self._queue(request.message_queue), group_of(request.group)
        header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id)
        code = RequestCode.QUERY_CONSUMER_OFFSET
        response = await self._brokers.ask(queue.broker_name, code, header, timeout_s=TIMEOUT_S)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return wire.GetOffsetResponse(status=status(wire.OFFSET_NOT_FOUND, "the group has no offset in the queue"))
        answer = header_of(self._brokers.success(response, queue.broker_name), QueryConsumerOffsetResponseHeader)
        return wire.GetOffsetResponse(status=OK, offset=answer.offset)

    async def query_offset(self, call: Call, request: wire.QueryOffsetRequest) -> wire.QueryOffsetResponse:
        """Return the first offset of a queue, the one after its last, or that of a time."""
        queue = await self._queue(request.message_queue)
        topic, queue_id = queue.topic, queue.queue_id
        if request.query_offset_policy == wire.BEGINNING:
            low = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
            found = await self._ask(queue, RequestCode.GET_MIN_OFFSET, low)
            return wire.QueryOffsetResponse(status=OK, offset=header_of(found, GetMinOffsetResponseHeader).offset)
        if request.query_offset_policy == wire.END:
            high = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
            found = await self._ask(queue, RequestCode.GET_MAX_OFFSET, high)
            return wire.QueryOffsetResponse(status=OK, offset=header_of(found, GetMaxOffsetResponseHeader).offset)
        if not request.HasField("timestamp"):
            raise Refusal(wire.BAD_REQUEST, "the policy TIMESTAMP needs a timestamp")
        at_ms = timestamp_ms(request.timestamp)
        search = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=at_ms)
        found = await self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
        return wire.QueryOffsetResponse(status=OK, offset=header_of(found, SearchOffsetResponseHeader).offset)

    async def _ask(self, queue: MessageQueue, code: int, header: Header) -> ReceivedResponse:
        response = await self._brokers.ask(queue.broker_name, code, header, timeout_s=TIMEOUT_S)
        return self._brokers.success(response, queue.broker_name)

    async def _queue(self, asked: wire.MessageQueue) -> MessageQueue:
        """Return the queue that a request names.  Raises Refusal."""
        topic = topic_of(asked.topic)
        if (await self._brokers.route(topic)).leaders is not None:
            raise Refusal(wire.UNSUPPORTED, f"topic {topic} is static: use ReceiveMessage, or a remoting client")
        if not await self._brokers.is_known(asked.broker.name, topic):
            raise Refusal(wire.BAD_REQUEST, f"cannot find broker {asked.broker.name}")
        return MessageQueue(topic, asked.broker.name, asked.id)
