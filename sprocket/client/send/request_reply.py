"""Request and reply: waiting requesters, and the way of a reply to its requester.

Source: RocketMQ 5.3.3, `DefaultMQProducerImpl.request`, `RequestFutureHolder`,
`ClientRemotingProcessor.receiveReplyMessage`.
Different here: a reply is first sent to the broker that the request came from, because the requester is certainly
connected to it.
"""

import asyncio
import logging

from sprocket.client.arguments import check_topic
from sprocket.client.errors import ClientError, SendFailed
from sprocket.client.message import ReceivedMessage, packed_host
from sprocket.client.send.reply import Reply
from sprocket.client.send.send_request import SendSettings, single_request
from sprocket.client.send.sender import Sender
from sprocket.client.send_result import SendResult
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.send import ReplyMessageRequestHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.routes import Action, Resource, Route, Traffic

logger = logging.getLogger(__name__)


class PendingReplies:
    """Table of one client's requests that wait for a reply, by correlation id."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._futures: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def route(self) -> Route:
        """Return the routes of replies that a broker pushes."""
        return Route(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ReplyMessageRequestHeader,
            self._receive,
            Resource.NONE,
            Action.NONE,
            Traffic.CLIENT,
        )

    def expect(self, correlation_id: str) -> "asyncio.Future[ReceivedMessage]":
        """Return a future that gets the reply; its caller must call `forget` in the end."""
        future = self._futures[correlation_id] = asyncio.get_running_loop().create_future()
        return future

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for the reply."""
        self._futures.pop(correlation_id, None)

    def _receive(self, request: Request[ReplyMessageRequestHeader]) -> Response:
        properties = names.parse(request.header.properties)
        future = self._futures.pop(properties.get(names.CORRELATION_ID, ""), None)
        if future is None or future.done():
            # The reply is too late or a duplicate; the broker has done its part.
            logger.warning(
                "event=reply_unexpected correlation_id=%s from=%s",
                properties.get(names.CORRELATION_ID), request.header.born_host,
            )  # fmt: skip
        else:
            properties[names.ARRIVE_TIME] = str(self._clock.wall_ms())
            future.set_result(_received(request, properties))
        return Response()


def _received(request: Request[ReplyMessageRequestHeader], properties: dict[str, str]) -> ReceivedMessage:
    header = request.header
    return ReceivedMessage(
        topic=header.topic,
        queue=MessageQueue(header.topic, "", header.queue_id),
        queue_offset=0,
        physical_offset=0,
        body=request.body,
        raw_properties=names.encode(properties).encode(),
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp_ms=header.born_timestamp,
        born_host=packed_host(header.born_host),
        store_timestamp_ms=header.store_timestamp,
        store_host=packed_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        size_bytes=len(request.body),
    )


class ReplySender:
    """Sender of replies through `sender`."""

    def __init__(self, sender: Sender, settings: SendSettings) -> None:
        self._sender = sender
        self._settings = settings

    async def send(self, reply: Reply, timeout_s: float | None = None) -> SendResult:
        """Send `reply` and wait until the requester has it.

        Raises SendFailed with the broker's response as its cause if the requester is gone, and as `Sender.send`.
        """
        check_topic(reply.topic)
        instance = self._sender.instance
        request = single_request(reply, self._settings, instance.identity.new_unique_id)
        await self._sender.take_room(len(request.body))
        try:
            route = await instance.publish_route(reply.topic, self._settings.default_topic_queue_nums)
            near = [queue for queue in route.publish if queue.broker_name == reply.broker_name]
            failed: tuple[MessageQueue, ClientError] | None = None
            if near:
                try:
                    return await self._sender.send(request, queue=near[0], timeout_s=timeout_s)
                except SendFailed as error:
                    if len(route.publish) == len(near):
                        raise
                    cause = error.__cause__
                    failed = (near[0], cause if isinstance(cause, ClientError) else error)
            return await self._sender.send(request, timeout_s=timeout_s, failed=failed)
        finally:
            self._sender.give_room(len(request.body))
