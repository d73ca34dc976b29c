"""Handlers of the requests that brokers send to a consumer: notifications, and questions of operators.

Source: RocketMQ 5.3.3, `ClientRemotingProcessor`, `DefaultMQPushConsumerImpl.consumerRunningInfo`,
`MQClientInstance.resetOffset`, `getConsumerStatus`, `consumeMessageDirectly`.
"""

import asyncio
import logging
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sprocket.client.connection.wire_names import WireNames
from sprocket.client.message import ReceivedMessage
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.consumption import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBodyForC,
)
from sprocket.remoting.bodies.stats import ResetOffsetBody
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import GetConsumerStatusRequestHeader
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from sprocket.remoting.headers.offset import ResetOffsetRequestHeader
from sprocket.remoting.message.record import HEAD
from sprocket.remoting.routes import Action, Handler, Resource, Route, Traffic

logger = logging.getLogger(__name__)


class Subject(Protocol):
    """Consumer that answers the requests."""

    @property
    def group(self) -> str: ...

    def running_info(self) -> ConsumerRunningInfo[MessageQueue]: ...

    def consume_directly(self, message: ReceivedMessage, /) -> Awaitable[ConsumeMessageDirectlyResult] | None:
        """Return None if no handler can consume it."""

    def committed(self, topic: str, /) -> Mapping[MessageQueue, int]: ...

    def members_changed(self) -> None: ...

    def reset_offsets(self, offsets: Mapping[MessageQueue, int], /) -> None: ...


@dataclass(frozen=True, kw_only=True)
class BrokerAnswers:
    """A `Subject` made of functions."""

    group: str
    running_info: Callable[[], ConsumerRunningInfo[MessageQueue]]
    consume_directly: Callable[[ReceivedMessage], Awaitable[ConsumeMessageDirectlyResult] | None]
    committed: Callable[[str], Mapping[MessageQueue, int]]
    members_changed: Callable[[], None]
    reset_offsets: Callable[[Mapping[MessageQueue, int]], None]


class ClientRemotingProcessor:
    """Handlers of the requests that a broker sends to one consumer."""

    def __init__(self, subject: Subject, names: WireNames) -> None:
        self._subject = subject
        self._names = names
        self._group = names.whole(subject.group)

    def routes(self) -> list[Route]:
        """Return the routes of the requests."""
        answers: tuple[tuple[RequestCode, type[Header], Handler], ...] = (
            (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader, self._members_changed),
            (RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader, self._running_info),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader, self._consume_directly),
            (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequestHeader, self._reset),
            (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatusRequestHeader, self._status),
        )
        return [
            Route(code, header, handle, Resource.NONE, Action.NONE, Traffic.CLIENT) for code, header, handle in answers
        ]

    def _unknown_group(self, group: str) -> Response | None:
        if group == self._group:
            return None
        return Response(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")

    def _members_changed(self, request: Request[NotifyConsumerIdsChangedRequestHeader]) -> None:
        if request.header.consumer_group == self._group:
            self._subject.members_changed()

    def _running_info(self, request: Request[GetConsumerRunningInfoRequestHeader]) -> Response:
        refusal = self._unknown_group(request.header.consumer_group)
        if refusal is not None:
            return refusal
        info = _whole(self._subject.running_info(), self._names)
        if request.header.jstack_enable:
            info.jstack = stacks()
        return Response(body=dumps(info))

    async def _consume_directly(self, request: Request[ConsumeMessageDirectlyRequestHeader]) -> Response:
        header = request.header
        refusal = self._unknown_group(header.consumer_group)
        if refusal is not None:
            return refusal
        try:
            message = _decoded(request.body, header.broker_name or "", self._names)
        except ProtocolError as error:
            return Response(ResponseCode.SYSTEM_ERROR, f"the message cannot be read: {error}")
        outcome = self._subject.consume_directly(message)
        if outcome is None:
            return Response(ResponseCode.SYSTEM_ERROR, f"a consumer of {header.consumer_group} has no handler running")
        logger.info("event=consume_directly group=%s message=%r", header.consumer_group, message)
        return Response(body=dumps(await outcome))

    def _reset(self, request: Request[ResetOffsetRequestHeader]) -> Response:
        header = request.header
        refusal = self._unknown_group(header.group)
        if refusal is not None:
            return refusal
        try:
            offsets = _offsets(request.body)
        except ProtocolError as error:
            return Response(ResponseCode.SYSTEM_ERROR, f"the offsets cannot be read: {error}")
        logger.warning("event=offset_reset_asked group=%s topic=%s queues=%d", header.group, header.topic, len(offsets))
        wanted = {queue: offset for queue, offset in offsets.items() if queue.topic == header.topic}
        self._subject.reset_offsets({self._names.bare_queue(queue): offset for queue, offset in wanted.items()})
        return Response()

    def _status(self, request: Request[GetConsumerStatusRequestHeader]) -> Response:
        refusal = self._unknown_group(request.header.group)
        if refusal is not None:
            return refusal
        committed = self._subject.committed(self._names.bare(request.header.topic))
        table = {self._names.whole_queue(queue): offset for queue, offset in committed.items()}
        return Response(body=dumps(GetConsumerStatusBody[MessageQueue](message_queue_table=table)))


def _whole(info: ConsumerRunningInfo[MessageQueue], names: WireNames) -> ConsumerRunningInfo[MessageQueue]:
    """Return what a consumer says of itself, with whole names."""
    if names.namespace:
        info.subscription_set = names.subscriptions(info.subscription_set)
        info.mq_table = {names.whole_queue(queue): entry for queue, entry in info.mq_table.items()}
        info.mq_pop_table = {names.whole_queue(queue): entry for queue, entry in info.mq_pop_table.items()}
        info.status_table = {names.whole(topic): status for topic, status in info.status_table.items()}
    return info


def _decoded(body: bytes, broker_name: str, names: WireNames) -> ReceivedMessage:
    queue_id = HEAD.unpack_from(body)[3] if len(body) >= HEAD.size else 0
    messages = names.decoded(body, MessageQueue("", broker_name, queue_id))
    if len(messages) != 1:
        raise ProtocolError("record", f"{len(messages)} messages where one belongs")
    message = messages[0]
    message.queue = MessageQueue(message.topic, broker_name, queue_id)
    return message


def _offsets(body: bytes) -> dict[MessageQueue, int]:
    """Return the table of a reset, in the form for Java or for C++."""
    if not body:
        return {}
    try:
        return by_queue(loads(body, ResetOffsetBody[str]).offset_table)
    except ProtocolError:
        listed = loads(body, ResetOffsetBodyForC).offset_table
    return {MessageQueue(entry.topic, entry.broker_name, entry.queue_id): entry.offset for entry in listed}


def stacks() -> str:
    """Return the stack of every thread and task of the process."""
    parts = []
    for number, frame in sys._current_frames().items():
        parts.append(f"thread {number}\n{''.join(traceback.format_stack(frame))}")
    for task in asyncio.all_tasks():
        lines = [
            f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}\n" for frame in task.get_stack()
        ]
        parts.append(f"task {task.get_name()}\n{''.join(lines)}")
    return "\n".join(parts)
