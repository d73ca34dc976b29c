"""Requests of a popping consumer over gRPC: receive, acknowledge, change the invisible time, dead letters.

Source: RocketMQ 5.3.3, `ReceiveMessageActivity`, `AckMessageActivity`, `ChangeInvisibleDurationActivity`.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from sprocket.client.connection.backoff import Backoff
from sprocket.client.errors import AnswerUnreadable, ClientError, ConnectFailed, ConnectionLost
from sprocket.client.grpc.calls import refusal_of
from sprocket.client.grpc.convert import filter_of, incoming
from sprocket.client.grpc.grpc_instance import GrpcInstance
from sprocket.client.message import ReceivedMessage
from sprocket.client.pop.pop_requests import MAX_POP_NUMS, PopRequests, Target
from sprocket.client.pop.popped_message import PoppedMessage, renew_handle
from sprocket.client.settlement import Settlement
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import duration
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.message.pop_extra_info import PopHandle

logger = logging.getLogger(__name__)

# A proxy holds a receive for at least grpcClientConsumerMinLongPollingTimeoutMillis, 5 s by default.
_POLL_SLACK_S: Final = 10.0


class ReceiptMessage(PoppedMessage):
    """Popped message that is acknowledged by its `receipt`, a text that only the proxy reads."""

    __slots__ = ("receipt",)

    def __init__(
        self,
        message: ReceivedMessage,
        handle: PopHandle,
        invisible_until: float,
        receipt: str,
        consumer: Settlement | None,
    ) -> None:
        """As `PoppedMessage`; `handle` only says where the message lies."""
        super().__init__(message, message.topic, handle, invisible_until, consumer)
        self.receipt = receipt

    def _exchange_handles(self, other: PoppedMessage) -> None:
        assert isinstance(other, ReceiptMessage), "two deliveries of one consumer are of one kind"
        super()._exchange_handles(other)
        self.receipt, other.receipt = other.receipt, self.receipt


class GrpcPops(PopRequests):
    """Sender of one group's requests to the proxy."""

    def __init__(self, instance: GrpcInstance, group: str, consumer: Settlement) -> None:
        super().__init__(instance, group, init_mode=1, is_ordered=False, consumer=consumer)
        self._grpc = instance

    async def pop(
        self, target: Target, subscription: SubscriptionData, max_messages: int, invisible_s: float, wait_s: float
    ) -> list[PoppedMessage]:
        """Receive up to `max_messages`, invisible to others for `invisible_s`; the proxy may hold it for `wait_s`."""
        request = wire.ReceiveMessageRequest(
            group=self._grpc.resource(self._group),
            message_queue=wire.MessageQueue(
                topic=self._grpc.resource(target.topic), id=-1, broker=wire.Broker(name=target.broker_name)
            ),
            filter_expression=filter_of(subscription),
            batch_size=min(max_messages, MAX_POP_NUMS),
            invisible_duration=duration(round(invisible_s * 1000)),
            auto_renew=False,
            long_polling_timeout=duration(round(wait_s * 1000)),
        )
        await self._grpc.session.ready(self._grpc.settings.api_timeout_s)
        found: list[PoppedMessage] = []
        try:
            async for part in self._grpc.calls.stream("ReceiveMessage", request, wait_s + _POLL_SLACK_S):
                self._take(part, target, invisible_s, found)
        except (ConnectFailed, ConnectionLost):
            if not found:
                raise
            # These messages arrived whole; the rest of the answer is redelivered.
        return found

    def _take(
        self, part: wire.ReceiveMessageResponse, target: Target, invisible_s: float, found: list[PoppedMessage]
    ) -> None:
        kind = part.WhichOneof("content")
        if kind == "status" and part.status.code not in (wire.OK, wire.MESSAGE_NOT_FOUND):
            raise refusal_of(part.status, self._grpc.calls.address, target.topic)
        if kind == "message":
            found.append(self._popped(part.message, target, invisible_s))

    def _popped(self, message: wire.Message, target: Target, invisible_s: float) -> PoppedMessage:
        system = message.system_properties
        if not system.receipt_handle:
            raise AnswerUnreadable(f"{self._grpc.calls.address} delivered a message without a receipt handle")
        clock, invisible_ms = self._grpc.clock, round(invisible_s * 1000)
        handle = PopHandle(
            system.queue_offset, clock.wall_ms(), invisible_ms, 0, "0", target.broker_name, system.queue_id,
            system.queue_offset,
        )  # fmt: skip
        received = incoming(message, self._grpc.settings.namespace, target.broker_name)
        until = clock.monotonic() + invisible_s
        return ReceiptMessage(received, handle, until, system.receipt_handle, self._consumer)

    async def has_messages(self, target: Target, wait_s: float) -> bool:
        """Raise ClientError: a proxy has no such request, and `HeldTargets` makes none."""
        raise ClientError("grpc:// cannot ask for messages without receiving them; use receive")

    async def ack(self, popped: PoppedMessage) -> None:
        """Acknowledge one message; while the proxy is away, again until the invisible time is over."""
        await self._until_invisible_ends(popped, lambda: self._ack([popped]))

    async def ack_batch(self, target: Target, batch: Iterable[PoppedMessage]) -> None:
        """Acknowledge messages of one topic, in one request."""
        listed = list(batch)
        await self._until_invisible_ends(listed[0], lambda: self._ack(listed))

    async def _ack(self, batch: list[PoppedMessage]) -> None:
        entries = [
            wire.AckMessageEntry(
                message_id=popped.message_id, receipt_handle=_receipt(popped), lite_topic=self._lite_topic(popped)
            )
            for popped in batch
        ]
        topic = self._grpc.resource(batch[0].topic)
        await self._grpc.ask(
            "AckMessage", wire.AckMessageRequest(group=self._grpc.resource(self._group), topic=topic, entries=entries)
        )

    async def change_invisible(self, popped: PoppedMessage, invisible_s: float) -> None:
        """Make a message invisible for `invisible_s` from now on, which gives it a new receipt."""

        async def change() -> None:
            now = self._grpc.clock.monotonic()
            request = wire.ChangeInvisibleDurationRequest(
                group=self._grpc.resource(self._group),
                topic=self._grpc.resource(popped.topic),
                receipt_handle=_receipt(popped),
                invisible_duration=duration(round(invisible_s * 1000)),
                message_id=popped.message_id,
                lite_topic=self._lite_topic(popped),
            )
            answer = await self._grpc.ask("ChangeInvisibleDuration", request)
            if isinstance(popped, ReceiptMessage) and answer.receipt_handle:
                popped.receipt = answer.receipt_handle
            renewed = popped.handle._replace(invisible_ms=round(invisible_s * 1000))
            renew_handle(popped, renewed, now + invisible_s)

        await self._until_invisible_ends(popped, change)

    async def forward(self, popped: PoppedMessage, max_attempts: int) -> None:
        """Make a message a dead letter of its group, which also acknowledges it."""
        request = wire.ForwardMessageToDeadLetterQueueRequest(
            group=self._grpc.resource(self._group),
            topic=self._grpc.resource(popped.topic),
            receipt_handle=_receipt(popped),
            message_id=popped.message_id,
            delivery_attempt=popped.reconsume_times + 1,
            max_delivery_attempts=max_attempts,
            lite_topic=self._lite_topic(popped),
        )
        await self._until_invisible_ends(popped, lambda: self._grpc.ask("ForwardMessageToDeadLetterQueue", request))

    async def _until_invisible_ends(self, popped: PoppedMessage, ask: Callable[[], Awaitable[object]]) -> None:
        """Call `ask`, again while the proxy is away: a receipt holds at every proxy, also after a restart."""
        backoff = Backoff()
        while True:
            try:
                await ask()
                return
            except (ConnectFailed, ConnectionLost):
                if self._grpc.clock.monotonic() + backoff.next_s >= popped.invisible_until:
                    raise
            await backoff.pause()


def _receipt(popped: PoppedMessage) -> str:
    if not isinstance(popped, ReceiptMessage):
        raise ClientError(f"{popped!r} came from no proxy; acknowledge it with the consumer that gave it")
    return popped.receipt
