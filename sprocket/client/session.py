"""Sessions: ordered channels that an application or an agent opens by name.  Each is a lite topic of a parent topic.

What is sent to a session is read by its one reader, in order.  Two programs that talk have a session each, and each
names that of the other one as its `peer`.  Source of the idea: RocketMQ 5.5 (RIP-83), rocketmq-a2a.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from sprocket.client import arguments
from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.errors import ClientClosed, ClientError, SessionLost
from sprocket.client.lite.start import LiteStart, offset_option
from sprocket.client.lite_consumer import LiteConsumer, Lost
from sprocket.client.message import Message
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.producer import Producer
from sprocket.client.send_result import SendResult
from sprocket.common.errors import SprocketError

logger = logging.getLogger(__name__)

NewConsumer = Callable[[str, str, Lost], LiteConsumer]


class _Inbox:
    """Messages that a session got and its application has not, or why it gets no more."""

    def __init__(self) -> None:
        self.messages: deque[PoppedMessage] = deque()
        self.failure: ClientError | None = None
        self.is_joined = False  # whether messages come
        self.arrived = Wakeup()

    def offer(self, popped: PoppedMessage) -> None:
        """Take a message."""
        self.messages.append(popped)
        self.arrived.set()

    def fail(self, error: ClientError) -> None:
        """Take the reason why no more messages come."""
        self.failure, self.is_joined = error, False
        self.messages.clear()
        self.arrived.set()


class Session:
    """Channel `id` of `topic`; an async context manager, and an async iterator; made by `Connection.session`::

        async with mq.session("chat-42") as session:
            await session.send(b"hello")
            async for message in session:
                print(message.body)

    A message is acknowledged when the next one is asked for, and the last one when the context ends without an error.
    An error that ends the context rejects it: it is delivered again, before those that follow.  `ack`, `nack`,
    `extend` and `dead_letter` of the message may be called before.  Only who iterates reads: a session that only sends
    takes no messages and is no member of the group.  One task iterates at a time.
    """

    def __init__(
        self, session_id: str, topic: str, group: str, peer: str | None, start: LiteStart | None,
        producer: Callable[[], Producer], readers: "Readers",
    ) -> None:  # fmt: skip
        """Raises IllegalArgument."""
        self.id = arguments.lite_topic("id", session_id)
        arguments.check_topic(topic)
        arguments.check_group(group)
        self.topic = topic
        self.group = group
        self.peer = None if peer is None else arguments.lite_topic("peer", peer)
        offset_option(start)
        self._start = start
        self._producer = producer
        self._readers = readers
        self._inbox = _Inbox()
        self._current: PoppedMessage | None = None
        self._joining: asyncio.Task[None] | None = None
        self._is_waiting = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"Session({self.id!r}, topic={self.topic!r}, group={self.group!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is None:
            await self._settle()
        await self.close()

    async def close(self) -> None:
        """Stop reading; a message that is not acknowledged is delivered again.  A second call does nothing."""
        self._is_closed = True
        inbox = self._inbox
        inbox.arrived.set()
        unsettled = [*inbox.messages] if self._current is None else [self._current, *inbox.messages]
        self._current = None
        inbox.messages.clear()
        for popped in unsettled:
            if not popped.is_settled:
                await _quietly(popped, popped.nack())
        joining, self._joining = self._joining, None
        if joining is not None:
            await asyncio.wait([joining])
            inbox.is_joined = not joining.cancelled() and joining.exception() is None
        if inbox.is_joined:
            inbox.is_joined = False
            await self._readers.leave(self.topic, self.group, self.id, inbox)

    async def send(
        self,
        body: bytes,
        *,
        tags: str = "",
        keys: Iterable[str] | str = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send to the reader of `peer`; without a peer, to the session's own reader.  Arguments as in `Message`.

        Raises what `Producer.send` raises; LiteQuotaExceeded means that the brokers have too many sessions.
        """
        self._check_open()
        message = Message(
            self.topic, body, tags=tags, keys=keys, properties=properties, lite_topic=self.peer or self.id
        )
        return await self._producer().send(message, timeout_s=timeout_s)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(f"session {self.id} is closed; open it again with `session` of the connection")

    # Reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PoppedMessage:
        """Acknowledge the message before, and return the next one.

        Raises SessionLost if another client reads the session now, LiteQuotaExceeded, BrokerRefused, ClientClosed.
        """
        if self._is_waiting:
            raise ClientError(f"another task waits for messages of session {self.id}; one task iterates at a time")
        self._is_waiting = True
        try:
            await self._settle()
            return await self._next()
        finally:
            self._is_waiting = False

    async def _next(self) -> PoppedMessage:
        inbox = self._inbox
        while not self._is_closed:
            if inbox.failure is not None:
                failure, inbox.failure = inbox.failure, None
                raise failure
            if not inbox.is_joined:
                await self._join()
            elif inbox.messages:
                self._current = inbox.messages.popleft()
                return self._current
            else:
                await inbox.arrived.wait()
        raise StopAsyncIteration

    async def _join(self) -> None:
        """Begin to read.  A caller that is cancelled does not stop that: short waits would never get so far."""
        if self._joining is None:
            joining = self._readers.join(self.topic, self.group, self.id, self._inbox, self._start)
            self._joining = asyncio.create_task(joining)
        task = self._joining
        try:
            await asyncio.shield(task)
            self._inbox.is_joined, self._start = True, None
        finally:
            if task.done() and self._joining is task:
                self._joining = None

    async def receive(self, *, wait_s: timedelta | float | None = None) -> PoppedMessage | None:
        """Return the next message, as the iteration does; None if there is none for `wait_s`, or the session closes."""
        limit_s = arguments.wait_or("wait_s", wait_s, None)
        try:
            async with asyncio.timeout(limit_s):
                return await anext(self, None)
        except TimeoutError:
            return None

    async def _settle(self) -> None:
        """Acknowledge the message in work, if the application has not settled it."""
        popped, self._current = self._current, None
        if popped is not None and not popped.is_settled:
            await _quietly(popped, popped.ack())


async def _quietly(popped: PoppedMessage, settling: Coroutine[Any, Any, None]) -> None:
    """Settle a message; if that fails, it is delivered again."""
    try:
        await settling
    except SprocketError as error:
        logger.warning("event=session_message_not_settled message=%r reason=%r", popped, str(error))


class _Reader:
    """Sessions of one topic and group, and the consumer that they share."""

    def __init__(self, topic: str, group: str, new_consumer: NewConsumer) -> None:
        self.group = group
        self.inboxes: dict[str, _Inbox] = {}
        self.consumer = new_consumer(group, topic, self._lost)
        self._feeding: asyncio.Task[None] | None = None
        self._giving: set[asyncio.Task[None]] = set()

    @property
    def is_over(self) -> bool:
        """Whether the consumer gives no more messages."""
        return self._feeding is not None and self._feeding.done()

    async def join(self, name: str, inbox: _Inbox, start: LiteStart | None) -> None:
        """Subscribe a session.  Raises ClientError, also if this connection reads it already."""
        if self.inboxes.setdefault(name, inbox) is not inbox:
            raise ClientError(f"this connection reads session {name} already; iterate over that object")
        try:
            await self.consumer.subscribe(name, start=start)
        except BaseException:
            del self.inboxes[name]
            raise
        if self._feeding is None:
            self._feeding = asyncio.create_task(self._feed())

    async def leave(self, name: str, inbox: _Inbox) -> None:
        """Unsubscribe a session."""
        if self.inboxes.get(name) is inbox:
            del self.inboxes[name]
            if not self.is_over:
                await self.consumer.unsubscribe(name)

    async def _feed(self) -> None:
        """Hand messages to sessions until the consumer ends; its error is that of every session."""
        error: ClientError = ClientClosed("the connection of the session is closed; make a new one")
        try:
            async for popped in self.consumer:
                inbox = self.inboxes.get(popped.lite_topic)
                if inbox is None:  # its session left meanwhile
                    await _quietly(popped, popped.nack())
                else:
                    inbox.offer(popped)
        except ClientError as failure:
            error = failure
        finally:
            inboxes, self.inboxes = self.inboxes, {}
            for inbox in inboxes.values():
                inbox.fail(error)

    def _lost(self, name: str) -> None:
        inbox = self.inboxes.pop(name, None)
        if inbox is not None:
            for popped in inbox.messages:  # for the other client
                giving = asyncio.create_task(_quietly(popped, popped.nack()))
                self._giving.add(giving)
                giving.add_done_callback(self._giving.discard)
            inbox.fail(SessionLost(name, self.group))


class Readers:
    """Readers of a connection by topic and group.  `new_consumer` takes group, topic, and what to call on a loss."""

    def __init__(self, new_consumer: NewConsumer) -> None:
        self._new_consumer = new_consumer
        self._readers: dict[tuple[str, str], _Reader] = {}

    async def join(self, topic: str, group: str, name: str, inbox: _Inbox, start: LiteStart | None) -> None:
        """Let `inbox` get the messages of a session, from `start` on.  Raises ClientError."""
        key = topic, group
        reader = self._readers.get(key)
        if reader is None or reader.is_over:
            reader = self._readers[key] = _Reader(topic, group, self._new_consumer)
        try:
            await reader.join(name, inbox, start)
        except ClientError:
            if not reader.inboxes and self._readers.get(key) is reader:
                del self._readers[key]  # its consumer may not have opened
                await reader.consumer.close()
            raise

    async def leave(self, topic: str, group: str, name: str, inbox: _Inbox) -> None:
        """Stop that."""
        reader = self._readers.get((topic, group))
        if reader is not None:
            await reader.leave(name, inbox)
