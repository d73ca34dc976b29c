"""Producers over gRPC: the sender below them, and the ends of transactions.

Source: RocketMQ 5.3.3, `SendMessageActivity`, `EndTransactionActivity`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from typing import Final

from sprocket.client import arguments
from sprocket.client.connection.backoff import Backoff
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.errors import (
    BrokerRefused,
    ClientError,
    ConnectFailed,
    IllegalMessage,
    RemotingTimeout,
    SendFailed,
)
from sprocket.client.grpc.calls import refusal_of
from sprocket.client.grpc.convert import outgoing
from sprocket.client.grpc.grpc_instance import GrpcInstance
from sprocket.client.grpc.refused import needs_name_server, not_over_grpc
from sprocket.client.message import Message, ReceivedMessage
from sprocket.client.producer import Producer, as_async
from sprocket.client.send.accumulator import Sharding
from sprocket.client.send.attempt import Attempt
from sprocket.client.send.producer_link import ProducerLink
from sprocket.client.send.recall import RecallHandle, recallable_topic
from sprocket.client.send.send_request import SendRequest, SendSettings, check_batchable
from sprocket.client.send.sender import Sender, is_retried
from sprocket.client.send_result import SendResult, SendStatus
from sprocket.common.clock import Clock
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.routes import Route

logger = logging.getLogger(__name__)

_STATUS: Final = {
    wire.OK: SendStatus.SEND_OK,
    wire.MASTER_PERSISTENCE_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    wire.SLAVE_PERSISTENCE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    wire.HA_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
# The proxy chooses the queue and does not say which.
_NO_QUEUE: Final = -1
Recover = Callable[[wire.RecoverOrphanedTransactionCommand], None]


class GrpcLink(ProducerLink):
    """One client of a proxy that any number of producers share.  `recover` answers open transactions."""

    def __init__(self, settings: ClientSettings, recover: Recover = lambda command: None) -> None:
        self._topics: dict[str, None] = {}
        self._recover = recover
        super().__init__(settings)

    def _new_instance(self, settings: ClientSettings, routes: list[Route], clock: Clock) -> ClientInstance:
        self.grpc = GrpcInstance(settings, self._describe, clock=clock, recover=self._recover)
        return self.grpc

    def _describe(self, settings: wire.Settings) -> None:
        settings.client_type = wire.PRODUCER
        settings.publishing.topics.extend(map(self.grpc.resource, self._topics))

    async def publishes(self, topic: str) -> None:
        """Report a topic before its first message: the proxy passes questions about its transactions here."""
        if topic not in self._topics:
            await self.grpc.publish_route(topic, 0)
            self._topics[topic] = None
            await self.grpc.session.report()

    def new_sender(self, group: str, settings: SendSettings) -> Sender:
        """Return the sender of one producer group.  Raises IllegalArgument."""
        if settings.idempotent:
            raise needs_name_server("idempotent sends")
        return GrpcSender(self, group, settings)


class GrpcSender(Sender):
    """Sender of one producer group to the proxy, which chooses the queue and its broker."""

    def __init__(self, link: GrpcLink, group: str, settings: SendSettings) -> None:
        super().__init__(link.instance, group, settings)
        self._link = link
        self.grpc = link.grpc

    def start(self, request: SendRequest, timeout_s: float) -> Attempt | None:
        """Return None: a send needs a task of its own, which `send` is run in."""
        return None

    async def send(
        self,
        request: SendRequest,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        among: int | None = None,
        timeout_s: float | None = None,
        failed: tuple[MessageQueue, ClientError] | None = None,
    ) -> SendResult:
        """Send until the proxy has stored the message, or attempts or time are used up.

        The proxy chooses the queue of a sharding key, so `among` has no meaning.  Raises IllegalArgument for a `queue`,
        else as `Sender.send`.
        """
        if queue is not None:
            raise not_over_grpc("choice of a queue", "pass sharding_key, which keeps messages of one key in order")
        (result,) = await self.send_entries([request], sharding_key, timeout_s)
        return result

    async def send_oneway(self, request: SendRequest, queue: MessageQueue | None, sharding_key: str | None) -> None:
        """Raise IllegalArgument: every call of gRPC is answered."""
        raise not_over_grpc("one-way sends", "use send")

    async def send_entries(
        self, requests: Sequence[SendRequest], sharding_key: str | None = None, timeout_s: float | None = None
    ) -> list[SendResult]:
        """Send `requests`, all of one topic, in one call; return their results in order.  Raises as `send`."""
        topic, loop = requests[0].topic, asyncio.get_running_loop()
        begun = loop.time()
        deadline = begun + (self.settings.send_msg_timeout_s if timeout_s is None else timeout_s)
        namespace, now_ms = self.grpc.settings.namespace, self.grpc.clock.wall_ms()
        messages = [outgoing(request, namespace, sharding_key, now_ms) for request in requests]
        call = wire.SendMessageRequest(messages=messages)
        self._check_size(messages)
        tried: list[str] = []
        left, backoff = self._attempts(), Backoff()
        error: ClientError = RemotingTimeout("the time for the send was over before the first attempt")
        while left > 0 and loop.time() < deadline:
            if tried:
                await backoff.pause(deadline - loop.time())
            tried.append(self.grpc.calls.address)
            try:
                await self._link.publishes(topic)
                limit_s = max(deadline - loop.time(), 0.001)
                await self.grpc.session.ready(limit_s)
                answer = await self.grpc.calls.call("SendMessage", call, max(deadline - loop.time(), 0.001))
                return self._results(requests, answer)
            except ConnectFailed as unsent:
                error = unsent
                continue
            except BrokerRefused as refused:
                if not is_retried(refused):
                    raise
                error = refused
            except IllegalMessage:
                raise
            except ClientError as failure:
                error = failure
            left -= 1
            logger.info("event=send_attempt_failed topic=%s proxy=%s reason=%r", topic, tried[-1], str(error))
        raise SendFailed(topic, tried, round((loop.time() - begun) * 1000), error) from error

    def _attempts(self) -> int:
        """Return the max attempts: the server's, unless the application wants fewer."""
        own = self.settings.retry_times_when_send_failed + 1
        policy = self.grpc.session.server.backoff_policy.max_attempts
        return min(own, policy) if policy else own

    def _check_size(self, messages: Sequence[wire.Message]) -> None:
        limit = self.grpc.session.server.publishing.max_body_size
        for message in messages:
            if 0 < limit < len(message.body):
                raise IllegalMessage(f"the body has {len(message.body)} bytes, and the proxy takes at most {limit}")

    def _results(self, requests: Sequence[SendRequest], answer: wire.SendMessageResponse) -> list[SendResult]:
        """Return the results.  Raises the error of the first entry that was not stored."""
        address, topic = self.grpc.calls.address, requests[0].topic
        if len(answer.entries) == 1 < len(requests):
            # RocketMQ's proxy stores them as a batch, whose messages follow each other in one queue.
            places = [(answer.entries[0], request.message_id, index) for index, request in enumerate(requests)]
        elif len(answer.entries) == len(requests):
            places = [(entry, entry.message_id, 0) for entry in answer.entries]
        else:
            raise refusal_of(answer.status, address, topic)
        results = []
        for entry, message_id, index in places:
            status = _STATUS.get(entry.status.code)
            if status is None:
                raise refusal_of(entry.status, address, topic)
            results.append(
                SendResult(
                    status,
                    message_id,
                    "",
                    MessageQueue(topic, "", _NO_QUEUE),
                    entry.offset + index,
                    entry.transaction_id or None,
                    entry.recall_handle or None,
                )
            )
        return results


class GrpcProducer(Producer):
    """Producer over gRPC.  The place of a result has no queue, because the proxy does not say which one it chose."""

    def _new_link(self, client: ClientSettings, clock: Clock | None) -> ProducerLink:
        return GrpcLink(client)

    async def _placed(self, message: Message, queue: MessageQueue | None) -> MessageQueue | None:
        """Return `queue`: the proxy finds that of a lite topic."""
        return queue

    @property
    def _grpc_sender(self) -> GrpcSender:
        assert isinstance(self._sender, GrpcSender)  # GrpcLink made it
        return self._sender

    async def _send_together(
        self,
        batch: Sequence[Message],
        queue: MessageQueue | None = None,
        sharding: Sharding | None = None,
        *,
        timeout_s: float | None = None,
        at_offset: int | None = None,
    ) -> SendResult:
        """Send `batch` as entries of one call; the result has all ids and the place of the first message."""
        self._instance.check_open()
        if not batch:
            raise IllegalMessage("a batch holds at least one message")
        if sharding is not None:
            raise IllegalMessage("messages with keys go alone: the proxy chooses the queue of each key")
        if queue is not None:
            raise not_over_grpc("choice of a queue", "send messages of one sharding key with `send`")
        if len({message.topic for message in batch}) > 1:
            raise IllegalMessage("one batch has one topic")
        for message in batch:
            check_batchable(message)
        requests = [self._prepare(message) for message in batch]
        size = sum(len(request.body) for request in requests)
        await self._sender.take_room(size)
        try:
            results = await self._grpc_sender.send_entries(requests, timeout_s=timeout_s)
        finally:
            self._sender.give_room(size)
        results[0].message_id = ",".join(result.message_id for result in results)
        return results[0]

    async def _send_singly(
        self, messages: Iterable[Message] | AsyncIterable[Message], window: int
    ) -> AsyncIterator[SendResult]:
        """Send a stream with up to `window` calls outstanding, each in a task: calls of gRPC need one."""
        started: deque[asyncio.Task[SendResult]] = deque()
        try:
            async for message in as_async(messages):
                if len(started) >= window:
                    yield await started.popleft()
                started.append(asyncio.ensure_future(self.send(message)))
            while started:
                yield await started.popleft()
        finally:
            await asyncio.gather(*started, return_exceptions=True)

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float = 3.0,
    ) -> ReceivedMessage:
        """Raise IllegalArgument: gRPC has no replies."""
        raise needs_name_server("request and reply")

    async def recall(self, handle: str) -> str:
        """Recall a delayed message before its delivery; `handle` is its `SendResult.recall_handle`.

        Returns its message id.  Raises IllegalMessage for an invalid handle; BrokerRefused if it is too late or the
        broker does not recall messages; ConnectFailed, ConnectionLost, RemotingTimeout.
        """
        self._check_open()
        arguments.text("handle", handle, "pass the recall_handle of a SendResult", IllegalMessage)
        topic = recallable_topic(RecallHandle.decode(handle))
        request = wire.RecallMessageRequest(topic=self._grpc_sender.grpc.resource(topic), recall_handle=handle)
        answer = await self._grpc_sender.grpc.ask("RecallMessage", request, timeout_s=self._settings.send_msg_timeout_s)
        return str(answer.message_id)
