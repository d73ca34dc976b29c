"""Received messages as FastStream's handlers see them."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final, TypeVar

from faststream.message import StreamMessage, decode_message

from sprocket.client.message import ReceivedMessage
from sprocket.remoting.message import properties as names

# Properties with these names bear what FastStream knows of a message beside its body; its other brokers use the same.
CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
REPLY_TO: Final = "reply_to"

# What a batch subscriber gets at once: consecutive messages of one queue, at least one.
Batch = tuple[ReceivedMessage, ...]
Raw = TypeVar("Raw", bound=ReceivedMessage | Batch)


class _Settled(StreamMessage[Raw]):
    """Message of FastStream whose end settles the messages of the client that it holds."""

    async def ack(self) -> None:
        """Count the message, or all of a batch, as consumed.  Raises as `ReceivedMessage.ack`."""
        await _all([message.ack() for message in self._open()])
        await super().ack()

    async def nack(self, delay: timedelta | float | None = None) -> None:
        """Reject it: it is redelivered after `delay`, and without it ever later.

        Raises as `ReceivedMessage.nack`; of a batch, after it tried all messages.
        """
        await _all([message.nack(delay) for message in self._open()])
        await super().nack()

    async def reject(self, reason: str = "") -> None:
        """Give it up: it goes to the dead-letter topic of the group, with `reason` in DEAD_LETTER_REASON.

        Raises as `ReceivedMessage.dead_letter`; of a batch, after it tried all messages.
        """
        await _all([message.dead_letter(reason) for message in self._open()])
        await super().reject()

    def _open(self) -> list[ReceivedMessage]:
        if self.committed is not None:
            return []
        raw = self.raw_message
        return [one for one in (raw if isinstance(raw, tuple) else (raw,)) if one.source is not None]


class SprocketMessage(_Settled[ReceivedMessage]):
    """Message of a subscriber, or the reply to a request; `raw_message` is what the client gave.

    `headers` are the application's own properties.  A reply and a message of `TestSprocketBroker` have no consumer, so
    to acknowledge or reject them does nothing.
    """


class SprocketBatchMessage(_Settled[Batch]):
    """Messages of a batch subscriber; `raw_message` is a tuple of what the client gave.

    `body`, `batch_headers` and the decoded value are lists, one item for each message.  The ids, headers and content
    type are those of the first message.  A handler may settle some messages itself, by
    ``await message.raw_message[0].ack()``: then the end of the handler settles the others.
    """


async def _all(calls: list[Coroutine[Any, Any, None]]) -> None:
    """Wait for all calls.  Raises what the first one raised that failed."""
    if len(calls) == 1:
        await calls[0]  # without a task
        return
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def asks_for_reply(message: ReceivedMessage) -> bool:
    """Return whether the sender of `message` waits in `Producer.request`."""
    return names.REPLY_TO_CLIENT in message.properties and names.CORRELATION_ID in message.properties


async def parse(message: ReceivedMessage) -> SprocketMessage:
    """Return `message` for handlers.  Raises BodyUnreadable."""
    properties = message.properties
    # The client of a waiting requester, or the topic for the result of a handler.
    reply_to = properties[names.REPLY_TO_CLIENT] if asks_for_reply(message) else properties.get(REPLY_TO, "")
    return SprocketMessage(
        message,
        message.body,
        headers={name: value for name, value in properties.items() if name not in names.RESERVED},
        reply_to=reply_to,
        content_type=properties.get(CONTENT_TYPE),
        correlation_id=properties.get(CORRELATION_ID) or properties.get(names.CORRELATION_ID) or message.message_id,
        message_id=message.message_id,
    )


async def parse_batch(messages: Batch) -> SprocketBatchMessage:
    """Return `messages` for handlers.  Raises BodyUnreadable."""
    parsed = [await parse(message) for message in messages]
    first = parsed[0]
    # No `reply_to`: each requester waits for a result of its own, and a batch has one.
    return SprocketBatchMessage(
        messages,
        [message.body for message in parsed],
        headers=first.headers,
        batch_headers=[message.headers for message in parsed],
        content_type=first.content_type,
        correlation_id=first.correlation_id,
        message_id=first.message_id,
    )


async def decode_batch(message: StreamMessage[Batch]) -> list[Any]:
    """Return the values of the bodies, each as `decode`.  FastStream knows batch subscribers by this name."""
    return [decode_message(await parse(one)) for one in message.raw_message]


async def decode(message: StreamMessage[ReceivedMessage]) -> Any:
    """Return the value of a body: by its content type, and without one JSON or else the bytes."""
    return decode_message(message)
