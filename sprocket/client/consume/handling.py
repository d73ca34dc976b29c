"""Calls of an application's handler, and what its outcome means for the messages.

Source: RocketMQ 5.3.3, `ConsumeMessageConcurrentlyService`, `ConsumeConcurrentlyContext`, `ConsumeOrderlyContext`.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from sprocket.client import arguments
from sprocket.client.connection.wakeup import pause
from sprocket.client.consume.inbox import Inbox
from sprocket.client.errors import PermissionDenied
from sprocket.client.message import ReceivedMessage
from sprocket.common.cancellation import is_cancelled
from sprocket.remoting.bodies.consumption import CMResult, ConsumeMessageDirectlyResult

logger = logging.getLogger(__name__)

Handler = Callable[[ReceivedMessage], Awaitable[object] | object]
BatchHandler = Callable[[list[ReceivedMessage]], Awaitable[object] | object]


class ReconsumeLater(Exception):
    """Raised by a handler that wants its message redelivered, without an error in the log.

    `delay_level` 1 to 18 chooses the delay (delayLevelWhenNextConsume), 0 leaves it to the broker and its retry
    policy, -1 sends the message to the dead-letter topic.  An orderly consumer has no delay level: there `suspend_s`,
    10 ms to 30 s, is how long the queue waits (suspendCurrentQueueTimeMillis).
    """

    def __init__(self, delay_level: int = 0, *, suspend_s: float | None = None) -> None:
        """Raises IllegalArgument."""
        arguments.delay_level(delay_level, low=-1)
        if suspend_s is not None:
            arguments.seconds("suspend_s", suspend_s)
        super().__init__(f"delay_level={delay_level}" if suspend_s is None else f"suspend_s={suspend_s:g}")
        self.delay_level = delay_level
        self.suspend_s = suspend_s


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


class Consumption(Protocol):
    """Receiver of a handler's outcome."""

    @property
    def group(self) -> str: ...

    def acknowledge(self, message: ReceivedMessage, /) -> bool: ...

    async def nack(self, message: ReceivedMessage, delay_level: int = 0, /) -> None: ...


class Handling:
    """Workers that pass messages of an inbox to one handler and report its outcome to `consumption`."""

    def __init__(self, inbox: Inbox, consumption: Consumption, handler: BatchHandler, max_messages: int) -> None:
        self._inbox = inbox
        self._consumption = consumption
        self._handler = handler
        self._max_messages = max_messages
        self.denied: PermissionDenied | None = None  # why it ended

    async def work(self) -> None:
        """Handle lists of up to `max_messages` messages, one list after the other, until the inbox is closed.

        If access control refuses a request that the consumer needs, `denied` is set and all workers end.
        """
        next_ready = self._inbox.next_ready
        while self.denied is None:
            message = next_ready() if self._max_messages == 1 else None
            try:
                messages = [message] if message is not None else await self._inbox.take(self._max_messages)
            except PermissionDenied as denied:
                self.denied = denied
                return
            if not messages:
                return
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
        """Nack the messages that the handler has not acknowledged itself, until it succeeds.

        Meanwhile the queue's offset stays before the message, so it is not lost.
        """
        for message in messages:
            while not self._inbox.is_closed and message.source is not None and message.source.is_pending(message):
                try:
                    await self._consumption.nack(message, delay_level)
                except Exception as error:
                    logger.warning(
                        "event=nack_failed group=%s message=%r reason=%r",
                        self._consumption.group, message, str(error),
                    )  # fmt: skip
                    await pause(1.0)
                else:
                    break


async def run_workers(handling: Handling, concurrency: int) -> None:
    """Run `concurrency` workers until all have ended.  Raises PermissionDenied if access control ended them."""
    async with asyncio.TaskGroup() as workers:
        for _ in range(concurrency):
            workers.create_task(handling.work())
    if handling.denied is not None:
        raise handling.denied
