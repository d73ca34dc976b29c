"""Calls of an application's handler, and what its outcome means for the messages.

Source: RocketMQ 5.3.3, `ConsumeMessageConcurrentlyService`, `ConsumeConcurrentlyContext`, `ConsumeOrderlyContext`.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from sprocket.client import arguments
from sprocket.client.connection.wakeup import pause
from sprocket.client.consume.inbox import Inbox
from sprocket.client.consume.reconsume_later import ReconsumeLater
from sprocket.client.errors import ClientError
from sprocket.client.message import ReceivedMessage
from sprocket.common.cancellation import is_cancelled
from sprocket.remoting.bodies.consumption import CMResult, ConsumeMessageDirectlyResult

logger = logging.getLogger(__name__)

Handler = Callable[[ReceivedMessage], Awaitable[object] | object]
BatchHandler = Callable[[list[ReceivedMessage]], Awaitable[object] | object]


def check_received(message: object) -> None:
    """Raise IllegalArgument for a message that no consumer gave."""
    arguments.choice("message", message, ReceivedMessage, "pass a message that this consumer gave")


def as_batch_handler(handler: Handler) -> BatchHandler:
    """Return a batch handler that calls `handler` with the only message of a list."""
    return lambda messages: handler(messages[0])


async def call(handler: BatchHandler, messages: list[ReceivedMessage]) -> None:
    """Run `handler`, whether it is sync or async.  Raises what it raises."""
    outcome = handler(messages)
    if inspect.isawaitable(outcome):
        await outcome


async def try_directly(
    handler: BatchHandler, message: ReceivedMessage, monotonic: Callable[[], float], *, is_orderly: bool
) -> ConsumeMessageDirectlyResult:
    """Let `handler` consume `message` again for an operator; nothing is acknowledged or redelivered."""
    begun = monotonic()
    result = ConsumeMessageDirectlyResult(order=is_orderly, consume_result=CMResult.SUCCESS)
    try:
        await call(handler, [message])
    except ReconsumeLater:
        result.consume_result = CMResult.LATER
    except Exception as error:
        logger.exception("event=handler_failed message=%r asked_by=operator", message)
        result.consume_result = CMResult.THROW_EXCEPTION
        result.remark = f"{type(error).__name__}: {error}"
    result.spent_time_mills = round((monotonic() - begun) * 1000)
    return result


@dataclass(frozen=True)
class Consumption:
    """Receiver of a handler's outcome."""

    group: str
    acknowledge: Callable[[ReceivedMessage], bool]
    nack: Callable[[ReceivedMessage, int], Awaitable[None]]


Key = Callable[[ReceivedMessage], Hashable]


def sharding_key_or_queue(message: ReceivedMessage) -> Hashable:
    """Return the sharding key of a message; without one its queue, so that its queue's order is kept."""
    return message.sharding_key or message.queue


class Handling:
    """Workers that pass messages of an inbox to one handler and report its outcome to `consumption`.

    With `key` messages of one key are handled one after the other, in the order of their arrival.
    """

    def __init__(
        self,
        inbox: Inbox,
        consumption: Consumption,
        handler: BatchHandler,
        max_messages: int,
        key: Key | None = None,
    ) -> None:
        self._inbox = inbox
        self._consumption = consumption
        self._handler = handler
        self._max_messages = max_messages
        self._key = key
        # Keys in work, and messages that wait for them.
        self._waiting_by_key: dict[Hashable, deque[ReceivedMessage]] = {}
        self._idle: set[asyncio.Task[None] | None] = set()
        self._is_stopping = False
        self.denied: ClientError | None = None  # why it ended

    def stop(self) -> None:
        """Begin no further message: workers end after the one that they handle."""
        self._is_stopping = True
        for task in self._idle:
            if task is not None:
                task.cancel()
        waiting = [message for queue in self._waiting_by_key.values() for message in queue]
        for queue in self._waiting_by_key.values():
            queue.clear()
        self._inbox.put_back(waiting)

    async def work(self) -> None:
        """Handle lists of up to `max_messages` messages, one list after the other, until the inbox is closed.

        If access control refuses a request that the consumer needs, `denied` is set and all workers end.
        """
        next_ready = self._inbox.next_ready
        while self.denied is None and not self._is_stopping:
            message = next_ready() if self._max_messages == 1 else None
            try:
                messages = [message] if message is not None else await self._take()
            except ClientError as denied:
                self.denied = denied
                return
            if not messages:
                return
            if self._key is None:
                await self._handle(messages)
            else:
                await self._handle_by_key(messages[0], self._key)

    async def _take(self) -> list[ReceivedMessage]:
        task = asyncio.current_task()
        self._idle.add(task)
        try:
            return await self._inbox.take(self._max_messages)
        finally:
            self._idle.discard(task)

    async def _handle_by_key(self, message: ReceivedMessage, key_of: Key) -> None:
        try:
            key = key_of(message)
            queue = self._waiting_by_key.get(key)
        except Exception:
            logger.exception("event=key_failed group=%s message=%r", self._consumption.group, message)
            await self._give_back([message], 0)
            return
        if queue is not None:
            queue.append(message)
            return
        queue = self._waiting_by_key[key] = deque([message])
        try:
            while queue:
                first = queue.popleft()
                if first.source is None:
                    continue
                if first.source.is_dropped:
                    first.source.skip(first)
                else:
                    await self._handle([first])
        finally:
            del self._waiting_by_key[key]

    async def _handle(self, messages: list[ReceivedMessage]) -> None:
        try:
            outcome = self._handler(messages)
            if inspect.isawaitable(outcome):
                await outcome
        except ReconsumeLater as later:
            await self._give_back(messages, later.delay_level)
        except (Exception, asyncio.CancelledError):
            if is_cancelled():
                raise
            logger.exception("event=handler_failed group=%s messages=%r", self._consumption.group, messages)
            await self._give_back(messages, 0)
        else:
            for message in messages:
                self._consumption.acknowledge(message)

    async def _give_back(self, messages: list[ReceivedMessage], delay_level: int) -> None:
        """Nack the messages that the handler has not acknowledged itself, until it succeeds or the inbox is closed.

        Meanwhile the queue's offset stays before the message, so it is not lost.
        """
        for message in messages:
            while message.source is not None and message.source.is_pending(message):
                try:
                    await self._consumption.nack(message, delay_level)
                except Exception as error:
                    logger.warning(
                        "event=nack_failed group=%s message=%r reason=%r",
                        self._consumption.group, message, str(error),
                    )  # fmt: skip
                    if self._inbox.is_closed:
                        return
                    await pause(1.0)
                else:
                    break
