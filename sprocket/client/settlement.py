"""What an application does with a message that it got: acknowledge, reject, extend, reply, give up."""

import logging
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from sprocket.client.consume.reconsume_later import ReconsumeLater
from sprocket.client.errors import ClientError
from sprocket.client.send_result import SendResult

logger = logging.getLogger(__name__)

M = TypeVar("M", bound="Settleable", covariant=True)
Duration = timedelta | float


class Settlement(Protocol):
    """Consumer, as its messages see it.  The messages that a consumer takes are of its own kind."""

    async def ack(self, message: Any, /) -> None: ...

    async def nack(self, message: Any, /, *, delay: Duration = ...) -> None: ...

    async def extend(self, message: Any, duration: Duration | None, /) -> None: ...

    async def reply(self, message: Any, answer: bytes, /) -> SendResult: ...

    async def dead_letter(self, message: Any, reason: str, /) -> None: ...

    def is_settled(self, message: Any, /) -> bool: ...


class Settleable:
    """Message whose actions are those of the consumer that gave it."""

    __slots__ = ()

    def _settlement(self) -> Settlement | None:
        raise NotImplementedError

    def _consumer(self) -> Settlement:
        settlement = self._settlement()
        if settlement is None:
            raise ClientError(f"{self!r} was not given by a consumer, so it cannot be acknowledged or answered")
        return settlement

    @property
    def is_settled(self) -> bool:
        """Whether `ack`, `nack` or `dead_letter` was called, or another member of the group may have the message."""
        return self._consumer().is_settled(self)

    async def ack(self) -> None:
        """Count the message as consumed.  Raises as `ack` of its consumer."""
        await self._consumer().ack(self)

    async def nack(self, delay: Duration | None = None) -> None:
        """Reject the message: it is redelivered after `delay`, a timedelta or seconds.

        Messages of a `Consumer` wait for the next higher of RocketMQ's delay levels, 1 s to 2 h; without `delay` the
        wait grows with every retry.  Messages of a `SimpleConsumer` wait exactly `delay`, 1 s without it.  Raises as
        `nack` of the consumer.
        """
        if delay is None:
            await self._consumer().nack(self)
        else:
            await self._consumer().nack(self, delay=delay)

    async def extend(self, duration: Duration | None = None) -> None:
        """Allow `duration` from now on for the work with the message, a timedelta or seconds.

        Until then it is not redelivered for lack of an acknowledgement.  Without `duration` it is the consumer's
        default.  Raises as `extend` of the consumer.
        """
        await self._consumer().extend(self, duration)

    async def reply(self, body: bytes) -> SendResult:
        """Reply to a message that was sent with `Producer.request`.  Acknowledge it as well.

        Raises IllegalMessage if it expects no reply, SendFailed if the requester is gone.
        """
        return await self._consumer().reply(self, body)

    async def dead_letter(self, reason: str = "") -> None:
        """Give the message up: it goes to the dead-letter topic of the group, with `reason` in DEAD_LETTER_REASON.

        Raises as `dead_letter` of the consumer.
        """
        await self._consumer().dead_letter(self, reason)

    def process(self, *, delay: Duration | None = None) -> "Processing[Self]":
        """Return a context that acknowledges the message at its end, and rejects it after an error::

            async with message.process():
                ...

        The error is raised again.  `ReconsumeLater` rejects the message with its own delay and ends the context
        without an error.  A message that was settled inside the context stays as it is.
        """
        return Processing(self, delay)


class Processing(Generic[M]):
    """Context of the work with one message; made by `Settleable.process`."""

    def __init__(self, message: M, delay: Duration | None) -> None:
        self._message = message
        self._delay = delay

    async def __aenter__(self) -> M:
        return self._message

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        message = self._message
        if message.is_settled:
            return isinstance(exc, ReconsumeLater)
        if exc is None:
            await message.ack()
            return False
        if isinstance(exc, ReconsumeLater):
            await reject(message, exc)
            return True
        try:
            await message.nack(self._delay)
        except ClientError as error:
            # The application's error matters more; the message is redelivered when its time is over.
            logger.warning("event=nack_failed message=%r reason=%r", message, str(error))
        return False


async def reject(message: Settleable, later: ReconsumeLater) -> None:
    """Reject `message` as `later` says."""
    if later.delay_level < 0:
        await message.dead_letter()
    else:
        await message.nack(later.suspend_s)
