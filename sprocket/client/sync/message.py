"""Received messages of the blocking client."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, TypeVar

from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.message import MessageQueue
from sprocket.client.send_result import SendResult
from sprocket.client.settlement import Settleable

Duration = timedelta | float


M = TypeVar("M", bound=Settleable)


class BlockingMessage(Generic[M]):
    """Message with the actions of `sprocket.ReceivedMessage` as blocking calls; any thread may call them.

    `message` is that of the asyncio client; its other attributes are here too.
    """

    __slots__ = ("message",)

    def __init__(self, message: M) -> None:
        self.message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.message, name)

    @property
    def body(self) -> bytes:
        """The body as it was sent."""
        body: bytes = getattr(self.message, "body")  # noqa: B009 - both kinds of messages have it
        return body

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message lies in."""
        queue: MessageQueue = getattr(self.message, "queue")  # noqa: B009
        return queue

    def ack(self) -> None:
        """Count the message as consumed."""
        shared_loop.call(self.message.ack())

    def nack(self, delay: Duration | None = None) -> None:
        """Reject the message: it is redelivered after `delay`."""
        shared_loop.call(self.message.nack(delay))

    def extend(self, duration: Duration | None = None) -> None:
        """Allow `duration` from now on for the work with the message."""
        shared_loop.call(self.message.extend(duration))

    def reply(self, body: bytes) -> SendResult:
        """Reply to a message that was sent with `Producer.request`."""
        return shared_loop.call(self.message.reply(body))

    def dead_letter(self, reason: str = "") -> None:
        """Give the message up: it goes to the dead-letter topic of the group."""
        shared_loop.call(self.message.dead_letter(reason))

    @contextmanager
    def process(self, *, delay: Duration | None = None) -> Iterator["BlockingMessage[M]"]:
        """Acknowledge the message at the end of the context, or reject it after an error, which is raised again."""
        processing = self.message.process(delay=delay)
        try:
            yield self
        except BaseException as error:
            if not shared_loop.call(processing.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            shared_loop.call(processing.__aexit__(None, None, None))

    def __repr__(self) -> str:
        return repr(self.message)
