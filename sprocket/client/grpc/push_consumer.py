"""The consumer of ``mq.consumer`` over gRPC: messages that arrive by themselves, for handlers or an iteration.

A `GrpcSimpleConsumer` receives, bounds what is held and renews it while a handler runs.  This class puts its messages
into the inbox of `Consumer`, whose handling they share.
Source: RocketMQ 5.3.3, `GrpcClientSettingsManager`; the behaviour is that of the `PushConsumer` of RocketMQ's newer
clients.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.connection.owner import Owner
from sprocket.client.connection.wakeup import pause
from sprocket.client.consume.consume_settings import ConsumeSettings
from sprocket.client.consume.handling import BatchHandler, Key, call, check_received, sharding_key_or_queue
from sprocket.client.consume.reconsume_later import ReconsumeLater
from sprocket.client.consume.subscription import Topics
from sprocket.client.consume.workers import GRACE_S
from sprocket.client.consumer import Consumer
from sprocket.client.errors import IllegalArgument, PermissionDenied
from sprocket.client.grpc.refused import needs_name_server, not_over_grpc
from sprocket.client.grpc.simple_consumer import GrpcSimpleConsumer
from sprocket.client.message import ReceivedMessage
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.send.reply import Reply
from sprocket.client.send_result import SendResult
from sprocket.client.settlement import Settlement
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import duration_ms
from sprocket.remoting.bodies.client import MessageQueue

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_DEFAULT_ATTEMPTS: Final = 17  # `SubscriptionGroupConfig.retryMaxTimes` is 16
_QUEUES: Final = "queues of a member"


class PopSource:
    """Where one message is acknowledged: its receipt.  It is a `MessageSource`."""

    def __init__(self, popped: PoppedMessage, consumer: "GrpcConsumer") -> None:
        self.popped = popped
        self._consumer = consumer
        self._is_settled = False

    @property
    def queue(self) -> MessageQueue:
        return self.popped.queue

    @property
    def consumer(self) -> Settlement | None:
        return self._consumer

    @property
    def is_dropped(self) -> bool:
        """Whether another member may have the message: its invisible time is over."""
        return self._consumer.is_over(self.popped)

    @property
    def is_waiting(self) -> bool:
        return False

    def take(self, message: ReceivedMessage, now: float, /) -> None:
        """Record that the application got `message` at `now`, monotonic s."""
        message.taken_at = now
        self._consumer.taken.add(self)

    def skip(self, message: ReceivedMessage, /) -> None:
        """Give `message` up, so that its next delivery is a new message."""
        if self.acknowledge(message):
            self._consumer.give_up(self.popped)

    def is_pending(self, message: ReceivedMessage, /) -> bool:
        return not self._is_settled

    def extend(self, message: ReceivedMessage, counts_from: float, /) -> None:
        """Do nothing: `GrpcConsumer.extend` asks the proxy."""

    def acknowledge(self, message: ReceivedMessage, /) -> bool:
        """Record that the application settled `message`.  Return False if it had before."""
        was_pending, self._is_settled = not self._is_settled, True
        self._consumer.taken.discard(self)
        return was_pending


class _Receiver(GrpcSimpleConsumer):
    """Receives for a `GrpcConsumer`."""

    _kind = wire.PUSH_CONSUMER

    def give_up(self, popped: PoppedMessage) -> None:
        """Stop renewing `popped`, which the application does not get."""
        self._renewal.forget(popped)
        self._room.set()


class GrpcConsumer(Consumer):
    """`Consumer` whose messages come from a proxy.

    A message that no handler settles is renewed for `consume_timeout_s`, then redelivered.  If its group is ordered
    (consumeMessageOrderly), `run` handles messages of one sharding key in order, and retries a failed one in place.
    """

    def __init__(
        self,
        group: str,
        topics: Topics,
        *,
        client: ClientSettings,
        max_in_flight: int | None = None,
        settings: ConsumeSettings | None = None,
        clock: Clock | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Raises IllegalArgument."""
        limit_s = (settings or ConsumeSettings()).consume_timeout_s
        self._popping = _Receiver(
            group, topics, client=client, settings=PopSettings(renew_limit_s=limit_s), clock=clock
        )
        self.taken: set[PopSource] = set()  # messages that the application has
        self._acks: set[asyncio.Task[None]] = set()
        super().__init__(
            group, topics, max_in_flight=max_in_flight, settings=settings, client=client, clock=clock, owner=owner
        )

    def _new_instance(self, client: ClientSettings, clock: Clock | None) -> ClientInstance:
        return self._popping.grpc

    # Opening and closing

    async def _start(self) -> None:
        await self._popping.start()
        self._is_started = True
        self._started_ms = self._instance.clock.wall_ms()
        self._instance.spawn(self._feed())

    async def close(self) -> None:
        """Wait for running handlers of `run`, 15 s at most, and for their acknowledgements; then close."""
        if self._is_closed or not self._is_started:
            return
        self._is_closed = True
        self._inbox.close()
        try:
            for run in list(self._runs):
                if not run.has_current:
                    await run.ended(GRACE_S)
            await self._handlers_ended()
        finally:
            if self._owner is not None:
                self._owner.left(self)
            await self._popping.close()

    async def _handlers_ended(self) -> None:
        """Wait for the acknowledgements of handled messages."""
        if self._acks:
            await asyncio.wait(self._acks, timeout=GRACE_S)

    async def _feed(self) -> None:
        while not self._is_closed:
            try:
                async for popped in self._popping:
                    self._inbox.fail(None)
                    message = popped.message
                    message.source = PopSource(popped, self)
                    self._inbox.put([message])
            except PermissionDenied as denied:
                self._inbox.fail(denied)
                await pause(_RETRY_S)

    def is_over(self, popped: PoppedMessage) -> bool:
        """Return whether the invisible time of `popped` is over."""
        return popped.invisible_until <= self._monotonic()

    def give_up(self, popped: PoppedMessage) -> None:
        """Let go of `popped`, which the application does not get."""
        self._popping.give_up(popped)
        if self._max_in_flight is not None:
            self._inbox.wake()

    def _has_room(self) -> bool:
        return self._max_in_flight is None or len(self.taken) < self._max_in_flight

    # Settling

    def _popped(self, message: ReceivedMessage) -> PoppedMessage:
        check_received(message)
        if not isinstance(message.source, PopSource):
            raise IllegalArgument(f"{message!r} came from another consumer; settle it there")
        return message.source.popped

    def _take_from(self, message: ReceivedMessage) -> PoppedMessage | None:
        """Return what to settle; None if it was settled before."""
        popped = self._popped(message)
        if message.source is None or not message.source.acknowledge(message):
            return None
        if self._max_in_flight is not None:
            self._inbox.wake()
        return popped

    async def ack(self, message: ReceivedMessage) -> None:
        """Count `message` as consumed.  Raises as `SimpleConsumer.ack`; it is redelivered then."""
        popped = self._take_from(message)
        if popped is not None:
            await self._popping.ack(popped)

    def _acknowledge(self, message: ReceivedMessage) -> bool:
        """Acknowledge soon, without waiting.  Return False if it had no effect."""
        popped = self._take_from(message)
        if popped is None:
            return False
        task = self._instance.spawn(self._ack_quietly(popped))
        self._acks.add(task)
        task.add_done_callback(self._acks.discard)
        return True

    async def _ack_quietly(self, popped: PoppedMessage) -> None:
        try:
            await self._popping.ack(popped)
        except SprocketError as error:
            logger.warning("event=pop_not_acknowledged message=%r reason=%r", popped, str(error))

    async def nack(
        self, message: ReceivedMessage, delay_level: int = 0, *, delay: timedelta | float | None = None
    ) -> None:
        """Reject `message`: it is redelivered after exactly `delay`, without it after that of the group's retry policy.

        `delay_level` -1 makes it a dead letter; other levels do not exist over gRPC.
        """
        arguments.delay_level(delay_level, low=-1)
        if delay_level < 0:
            await self.dead_letter(message)
            return
        delay_s = None if delay is None else arguments.seconds("delay", delay)
        if delay_s is None:
            if delay_level:
                raise not_over_grpc("delay levels", "pass delay=")
            delay_s = self._retry_s(message.reconsume_times)
        popped = self._take_from(message)
        if popped is not None:
            await self._popping.nack(popped, delay_s)

    def _retry_s(self, reconsume_times: int) -> float:
        """Return the delay of the next delivery by the policy that the proxy sent, s."""
        policy = self._popping.grpc.session.server.backoff_policy
        if policy.HasField("exponential_backoff"):
            backoff = policy.exponential_backoff
            first_ms, max_ms = duration_ms(backoff.initial), duration_ms(backoff.max)
            return min(first_ms * float(backoff.multiplier) ** min(reconsume_times, 32), max_ms) / 1000
        delays = policy.customized_backoff.next
        return duration_ms(delays[min(reconsume_times, len(delays) - 1)]) / 1000 if delays else _RETRY_S

    async def extend(self, message: ReceivedMessage, duration: timedelta | float | None = None) -> None:
        """Make `message` invisible to others for `duration` from now on, without it for `consume_timeout_s`."""
        limit_s = arguments.timeout_or("duration", duration, self._settings.consume_timeout_s)
        await self._popping.extend(self._popped(message), limit_s)

    async def dead_letter(self, message: ReceivedMessage, reason: str = "") -> None:
        """Give `message` up.  The protocol carries no `reason`: it is logged."""
        popped = self._take_from(message)
        if popped is not None:
            await self._popping.dead_letter(popped, reason)

    # Order

    async def _run(self, handler: BatchHandler, concurrency: int, max_messages: int, key: Key | None = None) -> None:
        await self._first_use()
        session = self._popping.grpc.session
        await session.ready(self._instance.settings.api_timeout_s)
        if not session.server.subscription.fifo:
            await super()._run(handler, concurrency, max_messages, key)
        elif max_messages > 1:
            raise not_over_grpc("batches of an ordered group", "use run")
        else:
            await super()._run(self._in_place(handler), concurrency, 1, key or sharding_key_or_queue)

    def _in_place(self, handler: BatchHandler) -> BatchHandler:
        """Return a handler that retries a failed message itself, because later ones must not overtake it."""

        async def handle(messages: list[ReceivedMessage]) -> None:
            (message,) = messages
            attempts = self._popping.grpc.session.server.backoff_policy.max_attempts or _DEFAULT_ATTEMPTS
            for times in range(message.reconsume_times, attempts):
                try:
                    await call(handler, messages)
                except Exception as error:
                    if self.is_settled(message):
                        return
                    if isinstance(error, ReconsumeLater) and error.delay_level < 0:
                        break
                    logger.warning("event=handler_failed group=%s message=%r reason=%r", self.group, message, error)
                    await pause(self._retry_s(times))
                    if self._is_closed:
                        raise
                else:
                    return
            await self.dead_letter(message, "no attempts left")

        return handle

    # What gRPC has no method for

    async def reply(
        self, message: ReceivedMessage, answer: bytes | Reply, timeout_s: float | None = None
    ) -> SendResult:
        """Raise IllegalArgument: gRPC has no replies."""
        raise needs_name_server("request and reply")

    async def subscribe(self, topic: str, expression: Any = "*") -> None:
        """Raise IllegalArgument: the topics of a group are fixed."""
        raise not_over_grpc("change of subscriptions", "name all topics when the consumer is made")

    async def unsubscribe(self, topic: str) -> None:
        """Raise IllegalArgument as `subscribe`."""
        raise not_over_grpc("change of subscriptions", "name all topics when the consumer is made")

    def _of(self, topic: str | None) -> list[ProcessQueue]:
        raise needs_name_server(_QUEUES)  # positions, lag, pause and times are of queues

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Raise IllegalArgument: no queue belongs to a member."""
        raise needs_name_server(_QUEUES)

    def pause(self, *queues: MessageQueue) -> None:
        """Raise IllegalArgument as `seek`."""
        raise needs_name_server(_QUEUES)

    def resume(self, *queues: MessageQueue) -> None:
        """Raise IllegalArgument as `seek`."""
        raise needs_name_server(_QUEUES)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Raise IllegalArgument as `seek`."""
        raise needs_name_server(_QUEUES)
