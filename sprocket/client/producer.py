"""The producer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Never, TypeVar

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientSettings, settings_of
from sprocket.client.errors import (
    BrokerRefused,
    ClientClosed,
    ClientError,
    IllegalArgument,
    IllegalMessage,
    ReplyTimeout,
)
from sprocket.client.message import Message, ReceivedMessage
from sprocket.client.openable import Openable
from sprocket.client.send.accumulator import Accumulator, Sharding
from sprocket.client.send.attempt import Attempt
from sprocket.client.send.batched_stream import BatchedStream
from sprocket.client.send.compiled_starts import CompiledStart
from sprocket.client.send.producer_link import ProducerLink
from sprocket.client.send.queue_choice import BY_HASH, by_consistent_hash, by_sharding_key
from sprocket.client.send.recall import RecallHandle, recall
from sprocket.client.send.reply import Reply
from sprocket.client.send.request_reply import ReplySender
from sprocket.client.send.send_request import (
    SendRequest,
    SendSettings,
    batch_request,
    compiled_requests,
    single_request,
)
from sprocket.client.send.sender import is_retried
from sprocket.client.send_result import SendResult
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.trace.tracing import Tracing, new_tracing
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.message import properties as names
from sprocket.remoting.routes import Route

T = TypeVar("T")
# Characters of a sharding key that a message carries; a longer key only chooses the queue.
_MAX_SHARDING_KEY = 1024


class Producer(Openable):
    """Producer; an async context manager::

        async with Producer(group="flights", namesrv="127.0.0.1:9876") as producer:
            result = await producer.send(Message("Flights", b"..."))

    `namesrv` is one address or several with semicolons.  Connections open on first use, so a producer opens even while
    no server runs.  `SendSettings` has the settings of sends, `client` those of connections.  `start` and `close` are
    for programs that cannot use `async with`.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        settings: SendSettings | None = None,
        client: ClientSettings | None = None,
        clock: Clock | None = None,
        trace: TraceSettings | None = None,
        link: ProducerLink | None = None,
    ) -> None:
        """With `trace` the producer records what it sends.  `link` has connections that others use too.

        Raises IllegalArgument.
        """
        arguments.check_group(group)
        self.group = group
        arguments.optional("settings", settings, SendSettings)
        if link is not None and (namesrv or client is not None or clock is not None):
            raise IllegalArgument("link has the name servers, the settings and the clock; pass it without them")
        self._owns_link = link is None
        self._link = link or self._new_link(settings_of(namesrv, client), clock)
        self._link.join(group)
        self._pending = self._link.pending
        self._instance = self._link.instance
        self._is_closing = False
        self._is_closed = False
        self._settings = settings or SendSettings()
        self._compiled_request = compiled_requests(self._settings)
        self._sender = self._link.new_sender(group, self._settings)
        self._tracing = new_tracing(trace, self._instance, group)
        if self._tracing is not None:
            self._sender.on_sent.append(self._tracing.sent)
        self._replies = ReplySender(self._sender, self._settings)
        self._accumulator: Accumulator | None = None
        if self._settings.auto_batch:
            self._accumulator = Accumulator(self._settings, self._send_alone, self._send_together)
        # Whether a usual message is sent as it is: alone and without a span.
        self._is_direct = self._accumulator is None and (self._tracing is None or not self._tracing.follows_sends)
        self._announced_topics: set[str] = set()  # their brokers know this client as a target of replies

    async def start(self) -> None:
        """Start without connecting; a producer of a `Connection` is started already.

        Raises TlsUnusable for invalid TLS files.
        """
        if self._owns_link:
            await self._instance.open()
        if self._tracing is not None:
            self._tracing.start()

    async def close(self) -> None:
        """Wait for outstanding sends, for `send_msg_timeout_s` at most; then unregister and close the connections."""
        if not self._instance.is_open or self._is_closing:
            return
        self._is_closing = True
        try:
            if self._accumulator is not None:
                await self._accumulator.close()
            self._is_closed = True
            await self._sender.settled(self._settings.send_msg_timeout_s)
            if self._tracing is not None:
                await self._tracing.close()
            await self._link.leave(self.group)
        finally:
            self._is_closed = True
            if self._owns_link:
                await self._instance.close()

    @property
    def is_closed(self) -> bool:
        """Whether the producer was closed."""
        return self._is_closed

    def _check_open(self) -> None:
        """Raise ClientClosed unless messages can be sent."""
        if self._is_closed:
            raise ClientClosed(f"the producer of group {self.group} is closed; open a new one, best with `async with`")
        self._instance.check_open()

    def _new_link(self, client: ClientSettings, clock: Clock | None) -> ProducerLink:
        """Return connections of this producer's own."""
        return ProducerLink(client, self._routes(), clock)

    def _routes(self) -> list[Route]:
        """Return the routes of requests that brokers send to this kind of producer."""
        return []

    @property
    def client_id(self) -> str:
        """Id of this client at brokers, as `mqadmin` shows it.  Raises ClientClosed unless the client is open."""
        self._check_open()
        return self._instance.client_id

    async def send(
        self,
        message: Message,
        *misplaced: Never,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send `message` and wait until a broker has it.

        With `queue` the message goes there; with `sharding_key` to the queue of that key, so that messages of one key
        stay in order.  A failed attempt is retried on another broker, so a message may arrive twice.  With
        `SendSettings.idempotent` it is retried on the same queue, and a Sprocket broker stores it once.
        A reply (`make_reply`) goes to the client that waits for it; `queue` and `sharding_key` have no effect.
        With `SendSettings.auto_batch` it may wait and travel with other messages, unless `timeout_s` is given.

        Raises IllegalArgument, TopicNotFound, TopicNotWritable, NameServerUnreachable, SendFailed, BrokerRefused (of
        which PermissionDenied is one), ClientClosed.
        """
        if misplaced:
            raise _no_message(message)
        is_anywhere = queue is None and sharding_key is None and timeout_s is None
        if is_anywhere and self._is_direct and type(message) is Message and not message.lite_topic:
            start = self._sender.compiled.start
            attempt = None if start is None else self._start_compiled(start, message)
            if attempt is not None:
                try:
                    if attempt.outcome is None:
                        await attempt.ended()
                    return self._sender.result_at_once(attempt) or await self._finish(attempt)
                finally:
                    self._sender.give_room(len(attempt.request.body))
            return await self._send_direct(self._prepare(message), self._settings.send_msg_timeout_s)
        self._check_place(message, queue, sharding_key, timeout_s)
        if isinstance(message, Reply):
            self._check_open()
            return await self._replies.send(message, timeout_s)
        if self._accumulator is not None and timeout_s is None and self._accumulator.takes(message):
            self._check_open()
            sharding = None
            if queue is None and sharding_key is not None:
                route = await self._instance.publish_route(message.topic, self._settings.default_topic_queue_nums)
                queue, sharding = by_sharding_key(route, sharding_key), Sharding(sharding_key, len(route.publish))
            return await self._accumulator.add(message, queue, sharding)
        return await self._send_alone(message, queue, sharding_key, timeout_s)

    async def _placed(self, message: Message, queue: MessageQueue | None) -> MessageQueue | None:
        """Return the queue that `message` goes to: that of its lite topic, or else `queue`."""
        if not message.lite_topic:
            return queue
        route = await self._instance.publish_route(message.topic, self._settings.default_topic_queue_nums)
        return by_consistent_hash(route, message.lite_topic)

    def _start_compiled(self, start: CompiledStart, message: Message) -> Attempt | None:
        """Start a usual message with compiled code, if there is room for it now; None if that cannot be."""
        sender, body = self._sender, message.body
        if self._is_closed or not self._instance.is_open or type(body) is not bytes:
            return None
        if not sender.take_free_room(len(body)):
            return None
        attempt = start(message, self._settings.send_msg_timeout_s)
        if attempt is None:
            sender.give_room(len(body))
        return attempt

    async def _send_alone(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        request = self._prepare(message, sharding_key)
        queue = await self._placed(message, queue)
        if self._tracing is not None and self._tracing.follows_sends:
            return await self._send_followed(self._tracing, request, queue, sharding_key, timeout_s)
        return await self._send_request(request, queue, sharding_key, timeout_s)

    async def _send_followed(
        self,
        tracing: Tracing,
        request: SendRequest,
        queue: MessageQueue | None,
        sharding_key: str | None,
        timeout_s: float | None,
    ) -> SendResult:
        send = tracing.sending(request)
        error: BaseException | None = None
        try:
            return await self._send_request(request, queue, sharding_key, timeout_s)
        except BaseException as failure:
            error = failure
            raise
        finally:
            tracing.send_ended(send, error)

    async def _send_request(
        self, request: SendRequest, queue: MessageQueue | None, sharding_key: str | None, timeout_s: float | None
    ) -> SendResult:
        if queue is None and sharding_key is None:
            limit_s = self._settings.send_msg_timeout_s if timeout_s is None else timeout_s
            return await self._send_direct(request, limit_s)
        body_bytes = len(request.body)
        await self._sender.take_room(body_bytes)
        try:
            return await self._sender.send(request, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s)
        finally:
            self._sender.give_room(body_bytes)

    async def _send_direct(self, request: SendRequest, timeout_s: float) -> SendResult:
        """Send to the next queue; at once, if the way there is known."""
        sender, body_bytes = self._sender, len(request.body)
        if not sender.take_free_room(body_bytes):
            await sender.take_room(body_bytes)
        try:
            attempt = sender.start(request, timeout_s)
            if attempt is None:
                return await sender.send(request, timeout_s=timeout_s)
            if attempt.outcome is None:
                await attempt.ended()
            return sender.result_at_once(attempt) or await self._finish(attempt)
        finally:
            sender.give_room(body_bytes)

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float = 3.0,
    ) -> ReceivedMessage:
        """Send `message` and wait for its consumer's reply (`make_reply`), both within `timeout_s`.

        It counts as outstanding until the reply.  Raises ReplyTimeout if it was sent without a reply, and as `send`.
        """
        self._check_place(message, queue, sharding_key, timeout_s)
        request = self._prepare(message)
        queue = await self._placed(message, queue)
        correlation_id = self._instance.identity.new_unique_id()
        properties = {names.CORRELATION_ID: correlation_id, names.REPLY_TO_CLIENT: self._instance.client_id}
        properties[names.TTL] = str(round(timeout_s * 1000))
        request.properties += names.encode(properties)
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_s
        await self._sender.take_room(len(request.body))
        reply = self._pending.expect(correlation_id)
        try:
            await self._announce(request.topic)
            try:
                left_s = max(deadline - now(), 0.001)
                await self._sender.send(request, queue=queue, sharding_key=sharding_key, timeout_s=left_s)
            except ClientError:
                # The reply says more about the request than a lost response.
                if not reply.done():
                    raise
            async with asyncio.timeout(deadline - now()):
                return await reply
        except TimeoutError:
            raise ReplyTimeout(message.topic, timeout_s) from None
        finally:
            self._pending.forget(correlation_id)
            self._sender.give_room(len(request.body))

    async def _announce(self, topic: str) -> None:
        """Make sure that the brokers of `topic` know this producer: a reply may arrive before its next heartbeat."""
        if topic not in self._announced_topics:
            await self._instance.publish_route(topic, self._settings.default_topic_queue_nums)
            await self._instance.heartbeat_all()
            self._announced_topics.add(topic)

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, sharding_key: str | None = None
    ) -> None:
        """Send `message` without a response: it may be lost without notice."""
        self._check_place(message, queue, sharding_key, None)
        request = self._prepare(message, sharding_key)
        await self._sender.send_oneway(request, await self._placed(message, queue), sharding_key)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        at_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send `messages` as one request; all of them go to one queue, or none does.

        With `at_offset` a Sprocket broker stores them only if the first one gets that offset in `queue`.  Otherwise
        BrokerRefused has the code ILLEGAL_OPERATION: another send was there before, or an attempt of this one whose
        answer was lost.
        Raises as `send`; IllegalMessage also when they differ in topic or `wait_store_ok`, have a delay, a
        priority or a lite topic, or are larger together than maxMessageSize.
        """
        self._check_open()
        batch = list(messages)
        for message in batch:
            self._check_place(message, queue, None, timeout_s)
        if at_offset is not None:
            arguments.whole("at_offset", at_offset, 0)
            if queue is None or self._settings.idempotent:
                raise IllegalArgument("at_offset needs a queue, and a producer that is not idempotent")
        return await self._send_together(batch, queue, timeout_s=timeout_s, at_offset=at_offset)

    async def _send_together(
        self,
        batch: Sequence[Message],
        queue: MessageQueue | None = None,
        sharding: Sharding | None = None,
        *,
        timeout_s: float | None = None,
        at_offset: int | None = None,
    ) -> SendResult:
        """Send a batch; raise IllegalMessage if its keys chose from another number of queues than there is now."""
        self._instance.check_open()
        request = batch_request(batch, self._settings, self._instance.identity.new_unique_id, at_offset)
        await self._sender.take_room(len(request.body))
        try:
            if sharding is None:
                return await self._sender.send(request, queue=queue, timeout_s=timeout_s)
            return await self._sender.send(request, sharding_key=sharding.key, among=sharding.queues)
        finally:
            self._sender.give_room(len(request.body))

    def send_many(
        self, messages: Iterable[Message] | AsyncIterable[Message], *, window: int = 256
    ) -> AsyncIterator[SendResult]:
        """Send a stream with up to `window` messages outstanding; yield results in the order of the messages.

        The next message is taken only if there is room, so memory is bounded and a slow cluster slows the source.
        No task is created per message.  The first message that cannot be sent raises, as `send` does.  The outstanding
        messages may or may not have arrived then.  With `SendSettings.auto_batch`, neighbours share a request.
        """
        arguments.whole("window", window, 1)
        is_batched = self._accumulator is not None
        return self._send_batches(messages, window) if is_batched else self._send_singly(messages, window)

    async def _send_batches(
        self, messages: Iterable[Message] | AsyncIterable[Message], window: int
    ) -> AsyncIterator[SendResult]:
        self._check_open()
        stream = BatchedStream(self._settings, window, self._send_alone, self._send_together)
        try:
            async for message in as_async(messages):
                while stream.is_full or stream.has_outcome:
                    for outcome in await stream.oldest():
                        yield _result_of(outcome)
                self._check_place(message, None, None, None)
                stream.add(message)
            while not stream.is_settled:
                for outcome in await stream.oldest():
                    yield _result_of(outcome)
        finally:
            stream.abandon()

    async def _send_singly(
        self, messages: Iterable[Message] | AsyncIterable[Message], window: int
    ) -> AsyncIterator[SendResult]:
        started: deque[Attempt] = deque()
        timeout_s = self._settings.send_msg_timeout_s
        sender = self._sender
        take, take_async = _takers(messages)
        while True:
            try:
                message = await take_async() if take is None else take()
            except (StopIteration, StopAsyncIteration):
                break
            while started and (len(started) >= window or started[0].outcome is not None):
                ended = started.popleft()
                # Without a coroutine for each message, if its response has arrived.
                yield sender.result_at_once(ended) or await self._finish(ended)
            if self._is_closed or not self._instance.is_open:
                self._check_open()
            start = sender.compiled.start
            attempt = None if start is None else start(message, timeout_s)
            if attempt is None:
                request = self._prepare(message)
                attempt = None if message.lite_topic else sender.start(request, timeout_s)
            if attempt is not None:
                started.append(attempt)
                continue
            # The route or the connection is missing, or a lite topic chooses the queue: wait before the next message.
            while started:
                yield await self._finish(started.popleft())
            yield await sender.send(request, queue=await self._placed(message, None))
        while started:
            ended = started.popleft()
            yield sender.result_at_once(ended) or await self._finish(ended)

    async def _finish(self, attempt: Attempt) -> SendResult:
        """Return the result of the first attempt, or else of its retries."""
        try:
            return await self._sender.finish(attempt)
        except BrokerRefused as refused:
            if not is_retried(refused):
                raise
            error: ClientError = refused
        except ClientError as failure:
            error = failure
        return await self._sender.send(attempt.request, failed=(attempt.queue, error))

    async def recall(self, handle: str) -> str:
        """Recall a delayed message before its delivery; `handle` is its `SendResult.recall_handle`.

        Returns its message id.  Raises IllegalMessage for an invalid handle; BrokerRefused if it is too late or the
        broker does not recall messages; TopicNotFound, NameServerUnreachable, BrokerNotFound, ConnectFailed,
        ConnectionLost, RemotingTimeout if the broker could not be reached.
        """
        self._check_open()
        arguments.text("handle", handle, "pass the recall_handle of a SendResult", IllegalMessage)
        message_id = await recall(self._instance, self.group, handle, self._settings.send_msg_timeout_s)
        if self._tracing is not None:
            self._tracing.recalled(self._instance.names.bare(RecallHandle.decode(handle).topic), message_id)
        return message_id

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of `topic` may be sent to.  Raises TopicNotFound, NameServerUnreachable."""
        self._check_open()
        arguments.check_topic(topic)
        route = await self._instance.publish_route(topic, self._settings.default_topic_queue_nums)
        return list(route.publish)

    def _prepare(self, message: Message, sharding_key: str | None = None) -> SendRequest:
        if self._is_closed or not self._instance.is_open:
            self._check_open()
        if not isinstance(message, Message):
            raise _no_message(message)
        arguments.check_topic(message.topic)
        new_id, request = self._instance.identity.new_unique_id, None
        if self._compiled_request is not None:
            request = self._compiled_request(message, new_id)
        if request is None:
            request = single_request(message, self._settings, new_id)
        if sharding_key and _is_carried(sharding_key):
            own = {names.SHARDING_KEY: sharding_key}  # for `Consumer.run(by_key=True)`
            if message.is_delayed:
                own[names.INNER_SHARDING] = BY_HASH  # for the broker, when it is due
            request.properties += names.encode(own)
        return request

    @staticmethod
    def _check_place(
        message: Message, queue: MessageQueue | None, sharding_key: str | None, timeout_s: float | None
    ) -> None:
        if not isinstance(message, Message):
            raise _no_message(message)
        if queue is not None:
            arguments.queue_of(queue, message.topic)
        if sharding_key is not None:
            arguments.sharding_key(sharding_key, queue)
        if message.priority is not None and (queue is not None or sharding_key is not None):
            raise IllegalMessage("a priority chooses the queue; leave queue and sharding_key out")
        if message.lite_topic and (queue is not None or sharding_key is not None):
            raise IllegalMessage("a lite topic chooses the queue; leave queue and sharding_key out")
        if sharding_key is not None and message.is_delayed and not _is_carried(sharding_key):
            raise IllegalMessage(
                f"a delayed message carries its sharding key, which has up to {_MAX_SHARDING_KEY} characters, none of"
                " them \\x01 or \\x02"
            )
        if timeout_s is not None:
            arguments.timeout("timeout_s", timeout_s)


def _is_carried(sharding_key: str) -> bool:
    """Return whether a message gets its sharding key as a property."""
    return len(sharding_key) <= _MAX_SHARDING_KEY and not names.separators_in(sharding_key)


def _no_message(given: object) -> IllegalMessage:
    topic = given if isinstance(given, str) else "topic"
    return IllegalMessage(
        f"message is of type {type(given).__name__}; pass a Message, such as Message({topic!r}, b'body')"
    )


def _result_of(outcome: SendResult | Exception) -> SendResult:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _takers(items: Iterable[T] | AsyncIterable[T]) -> tuple[Callable[[], T] | None, Callable[[], Awaitable[T]]]:
    """Return a function that takes the next item, None for an async source, and one that returns it to await."""
    if isinstance(items, AsyncIterable):
        return None, aiter(items).__anext__
    return iter(items).__next__, _no_async_item


async def _no_async_item() -> Any:
    raise StopAsyncIteration


async def as_async(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """Yield `items`, whether their source is async or not."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
