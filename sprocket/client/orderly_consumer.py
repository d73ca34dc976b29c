"""The orderly consumer: one member of the group at a time handles the messages of a queue one after the other."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.connection.owner import Owner
from sprocket.client.consume.consume_settings import ConsumeSettings
from sprocket.client.consume.handling import BatchHandler, Key, call
from sprocket.client.consume.reconsume_later import ReconsumeLater
from sprocket.client.consume.subscription import Topics
from sprocket.client.consume.workers import GRACE_S, sigterm_stops
from sprocket.client.consumer import Consumer
from sprocket.client.errors import ClientClosed, ClientError, IllegalArgument, PermissionDenied
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.orderly.orderly_assignment import OrderlyAssignment
from sprocket.client.orderly.orderly_queue import OrderlyQueue, Slots
from sprocket.client.orderly.queue_locks import QueueLocks
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.rebalance.allocation import AllocateMessageQueueStrategy
from sprocket.client.rebalance.assignment import Assignment
from sprocket.client.rebalance.listener import ConsumerListener
from sprocket.client.rebalance.offset_store import OffsetStore
from sprocket.client.rebalance.start_offset import ConsumeFrom, StartOffset
from sprocket.client.trace.recorder import TraceSettings
from sprocket.common.cancellation import is_cancelled
from sprocket.common.clock import Clock

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OrderlySettings(ConsumeSettings):
    """How messages are consumed in order.  Source: RocketMQ 5.3.3, `DefaultMQPushConsumer`."""

    max_reconsume_times: int = 2**31 - 1  # a message that never succeeds stops its queue for good
    suspend_current_queue_time_s: float = 1.0  # from 10 ms to 30 s

    def __post_init__(self) -> None:
        """Raises IllegalArgument."""
        super().__post_init__()
        arguments.suspend_s("suspend_current_queue_time_s", self.suspend_current_queue_time_s)


class OrderlyConsumer(Consumer):
    """Consumer in order, with queue locks; clustering only::

        async with OrderlyConsumer("g", ["Orders"], "127.0.0.1:9876") as consumer:
            await consumer.run(handler)

    Queues are handled in parallel, messages of one queue one at a time in order.  Meanwhile no other member of the
    group handles a message of the queue, if it locks its queues too.
    """

    _is_orderly = True

    def __init__(
        self,
        group: str,
        topics: Topics = (),
        namesrv: str | Sequence[str] = "",
        *,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        listener: ConsumerListener | None = None,
        strategy: AllocateMessageQueueStrategy | None = None,
        settings: OrderlySettings | None = None,
        client: ClientSettings | None = None,
        clock: Clock | None = None,
        trace: TraceSettings | None = None,
        owner: Owner | None = None,
    ) -> None:
        """As `Consumer`."""
        self._orderly_settings = arguments.optional("settings", settings, OrderlySettings) or OrderlySettings()
        super().__init__(
            group, topics, namesrv, consume_from=consume_from, listener=listener, strategy=strategy,
            settings=self._orderly_settings, client=client, clock=clock, trace=trace, owner=owner,
        )  # fmt: skip
        self._locks = QueueLocks(self._instance, group)
        self._slots = Slots()
        self._max_messages = 1
        self._run_ended: asyncio.Future[None] | None = None
        self._orderly: OrderlyAssignment

    def _new_assignment(self, store: OffsetStore, start: StartOffset) -> Assignment:
        self._orderly = OrderlyAssignment(
            self._instance, store, start, self._pull_loop, self._is_wanted, self, self._notifier, locks=self._locks,
            new_queue=self._new_queue, rebalance=self._rebalance.due.set,
        )  # fmt: skip
        self._instance.spawn(self._orderly.renew())
        return self._orderly

    def _new_queue(self, process_queue: ProcessQueue, lost: Callable[[], None]) -> OrderlyQueue:
        return OrderlyQueue(
            process_queue,
            self._handle,
            lambda: self._max_messages,
            lambda: self._locks.is_held(process_queue.queue),
            lost,
            self._slots,
            lambda: process_queue.queue in self._paused,
        )

    def _spawn_expiry(self) -> None:
        """Do nothing: an orderly queue waits for a slow message."""

    def _locked_at(self, queue: MessageQueue) -> float | None:
        return self._locks.locked_at(queue)

    def _deliver(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self._restore_topics(process_queue.queue, messages)
        orderly = self._orderly.consumed(process_queue.queue)
        if orderly is not None and orderly.process_queue is process_queue:
            orderly.put(messages)

    async def receive(self, max_messages: int = 1, *, wait_s: float | None = None) -> list[ReceivedMessage]:
        raise ClientError("an orderly consumer gives messages to the handler of `run` only, not to an iteration")

    def stop(self) -> None:
        """End `run` after the messages in work; `close` the consumer then."""
        super().stop()
        self._slots.close()
        if self._run_ended is not None and not self._run_ended.done():
            self._run_ended.set_result(None)

    async def _run(self, handler: BatchHandler, concurrency: int, max_messages: int, key: Key | None = None) -> None:
        """Call `handler` with messages of up to `concurrency` queues at a time, until the consumer is closed.

        A handler that raises gets the same messages again after `suspend_current_queue_time_s`, or the time of a
        `ReconsumeLater`, with `reconsume_times` one higher; the queue waits.  After `max_reconsume_times` a message
        goes to the dead-letter topic.
        """
        if key is not None:
            raise IllegalArgument("by_key is given; an orderly consumer handles whole queues in order, so leave it out")
        if self._run_ended is not None:
            raise ClientError("an orderly consumer has one `run` at a time")
        if self._is_closed:
            raise ClientClosed("the consumer is closed")
        arguments.whole("concurrency", concurrency, 1)
        await self._first_use()
        if self._tracing is not None:
            handler = self._tracing.around(handler)
        self._handler, self._concurrency, self._max_messages = handler, concurrency, max_messages
        self._run_ended = asyncio.get_running_loop().create_future()
        self._denied(self._instance.outages.denial)
        self._slots.open(0 if self._inbox.is_closed else concurrency)
        if self._inbox.is_closed:
            self._run_ended.set_result(None)
        try:
            with sigterm_stops.calling(self.stop):
                await self._run_ended
        except PermissionDenied:
            self._instance.outages.told()
            raise
        finally:
            self._slots.close()
            try:
                await self._slots.settled(GRACE_S)
                if not self._is_closed:
                    await self._assignment.persist()
            finally:
                self._run_ended = None
                self._handler = None

    def _denied(self, error: PermissionDenied | None) -> None:
        self._tell_denied(error)
        self._fail(error)

    def _fail(self, error: ClientError | None) -> None:
        if error is not None and self._run_ended is not None and not self._run_ended.done():
            self._run_ended.set_exception(error)

    async def close(self) -> None:
        """Wait for running handlers, 15 s at most; then commit, unlock and leave.  A handler must not call it."""
        if self._is_started and not self._is_closed:
            if self._orderly.is_in_handler:
                raise ClientError("an orderly consumer cannot be closed by its own handler")
            self._slots.close()
        try:
            await super().close()
        finally:
            if self._run_ended is not None and not self._run_ended.done():
                self._run_ended.set_result(None)

    async def _handle(self, messages: list[ReceivedMessage]) -> tuple[list[ReceivedMessage], float]:
        """Return the messages to retry, and the pause before the retry, s."""
        suspend_s = self._orderly_settings.suspend_current_queue_time_s
        if self._handler is None:
            return messages, suspend_s
        now = self._instance.clock.monotonic()
        for message in messages:
            if message.source is not None:
                message.source.take(message, now)
        if self._tracing is not None:
            self._tracing.taken(messages)
        try:
            await call(self._handler, messages)
        except ReconsumeLater as later:
            suspend_s = suspend_s if later.suspend_s is None else later.suspend_s
        except (Exception, asyncio.CancelledError):
            if is_cancelled():
                raise
            logger.exception("event=handler_failed group=%s messages=%r", self.group, messages)
        else:
            for message in messages:
                self._acknowledge(message)
            return [], 0.0
        return await self._failed(messages), suspend_s

    async def _failed(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return the messages to retry after a failure: not acknowledged by the handler, and not dead letters."""
        left = []
        for message in messages:
            if message.source is not None and not message.source.is_pending(message):
                continue
            if self._tracing is not None:
                self._tracing.finished(message, is_success=False)
            if await self._is_given_up(message):
                self._acknowledge(message)
            else:
                left.append(message)
        return left

    async def _is_given_up(self, message: ReceivedMessage) -> bool:
        """Return whether the message became a dead letter; else count one more attempt."""
        self._stats.of(message.queue.topic, self._instance.clock.monotonic()).failed += 1
        if message.reconsume_times >= self._orderly_settings.max_reconsume_times:
            try:
                await self._back.send_as_new(message)
            except ClientError as error:
                logger.warning("event=send_back_failed group=%s message=%r reason=%r", self.group, message, str(error))
            else:
                return True
        message.reconsume_times += 1
        return False
