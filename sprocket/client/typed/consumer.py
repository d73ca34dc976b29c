"""Consumer of a typed topic."""

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from enum import Enum
from types import TracebackType
from typing import Generic, Self, TypeVar

from sprocket.client import arguments
from sprocket.client.consumer import Consumer
from sprocket.client.errors import ClientError
from sprocket.client.message import ReceivedMessage
from sprocket.client.settlement import Processing
from sprocket.client.typed.serializers import Serializer

logger = logging.getLogger(__name__)

T = TypeVar("T")


class BodyUndecodable(ClientError):
    """A body that is no value of its typed topic's type.  `message` is still to be acknowledged or rejected."""

    def __init__(self, message: ReceivedMessage, reason: str) -> None:
        super().__init__(f"{message!r} is no value of its topic's type: {reason}")
        self.message = message


class Undecodable(Enum):
    """What a typed consumer does with a body that does not decode."""

    DEAD_LETTER = "dead letter"  # it goes to the dead-letter topic with the reason
    SKIP = "skip"  # it counts as consumed, with a log line
    RAISE = "raise"  # BodyUndecodable is raised; the message is still to be settled


class TypedMessage(Generic[T]):
    """A value and the message that brought it."""

    __slots__ = ("message", "value")

    def __init__(self, value: T, message: ReceivedMessage) -> None:
        self.value = value
        self.message = message

    async def ack(self) -> None:
        """Count the message as consumed."""
        await self.message.ack()

    async def nack(self, delay: timedelta | float | None = None) -> None:
        """Reject the message, as `ReceivedMessage.nack`."""
        await self.message.nack(delay)

    def process(self, *, delay: timedelta | float | None = None) -> Processing[ReceivedMessage]:
        """Return the context of `ReceivedMessage.process`."""
        return self.message.process(delay=delay)

    def __repr__(self) -> str:
        return f"TypedMessage({self.value!r}, {self.message!r})"


class TypedConsumer(Generic[T]):
    """Values of one topic for one group; made by `Topic.consume`.

    An iteration acknowledges a value when it asks for the next one.  The last value is acknowledged at the end of
    ``async with consumer``, and rejected if that ends with an error.  Without it, the last value is redelivered::

        async with orders.consume("billing") as consumer:
            async for order in consumer:
                ...

    `messages` gives the messages too, to be acknowledged one by one, and `run` calls a handler with many at a time.
    """

    def __init__(self, consumer: Consumer, serializer: Serializer[T], undecodable: Undecodable) -> None:
        self.consumer = consumer  # for `seek`, `pause` and the like
        self._serializer = serializer
        self._undecodable = undecodable
        self._current: ReceivedMessage | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        current, self._current = self._current, None
        try:
            if current is not None:
                await current.process().__aexit__(exc_type, exc, traceback)
        finally:
            await self.close()

    async def start(self) -> None:
        """Open the consumer.  Raises as `Consumer.start`."""
        await self.consumer.start()

    async def close(self) -> None:
        """Close the consumer; a value in work is redelivered."""
        await self.consumer.close()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        current, self._current = self._current, None
        if current is not None:
            await current.ack()
        typed = await self._next()
        self._current = typed.message
        return typed.value

    async def messages(self) -> AsyncIterator[TypedMessage[T]]:
        """Yield values with their messages, which the caller acknowledges."""
        while True:
            try:
                yield await self._next()
            except StopAsyncIteration:
                return

    async def run(
        self, handler: Callable[[T], Awaitable[object] | object], *, concurrency: int = 20, by_key: bool = False
    ) -> None:
        """Hand every value to `handler`, as `Consumer.run`; with `by_key` in order for each sharding key.

        With `Undecodable.RAISE` a body that does not decode is redelivered, as if the handler had raised.
        """
        arguments.handler("handler", handler, "a value")

        async def handle(message: ReceivedMessage) -> None:
            typed = await self._decoded(message)
            if typed is not None:
                outcome = handler(typed.value)
                if inspect.isawaitable(outcome):
                    await outcome

        await self.consumer.run(handle, concurrency=concurrency, by_key=by_key)

    def stop(self) -> None:
        """End `run` and iterations after the values in work; `close` the consumer then."""
        self.consumer.stop()

    async def _next(self) -> TypedMessage[T]:
        """Raises StopAsyncIteration when the consumer is closed, and BodyUndecodable."""
        while True:
            typed = await self._decoded(await anext(self.consumer))
            if typed is not None:
                return typed

    async def _decoded(self, message: ReceivedMessage) -> TypedMessage[T] | None:
        """Return the value; None for a body that does not decode and was settled.  Raises BodyUndecodable."""
        try:
            return TypedMessage(self._serializer.decode(message.body), message)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if self._undecodable is Undecodable.RAISE:
                raise BodyUndecodable(message, reason) from error
        if self._undecodable is Undecodable.DEAD_LETTER:
            await message.dead_letter(reason)
            logger.warning("event=undecodable_dead_letter message=%r reason=%r", message, reason)
        else:
            await message.ack()
            logger.warning("event=undecodable_skipped message=%r reason=%r", message, reason)
        return None
