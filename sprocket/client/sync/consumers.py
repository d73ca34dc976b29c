"""Blocking consumers that own queues: `Consumer` and `OrderlyConsumer`."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import timedelta
from typing import Self, TypeVar

from sprocket.client import arguments
from sprocket.client import consumer as aio_consumer
from sprocket.client import orderly_consumer as aio_orderly
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.consume.consume_settings import MessageModel
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.send.reply import Reply
from sprocket.client.send_result import SendResult
from sprocket.client.sync.blocking import Blocking, blocking, called_in_loop, in_loop, in_threads, made_from
from sprocket.client.sync.message import BlockingMessage

# How many messages cross the threads at once.
_CHUNK = 32

Received = BlockingMessage[ReceivedMessage]
BlockingHandler = Callable[[Received], object]
BlockingKey = Callable[[Received], Hashable]
PC = TypeVar("PC", bound=aio_consumer.Consumer)


class _Consuming(Blocking[PC]):
    subscribe = blocking(aio_consumer.Consumer.subscribe)
    unsubscribe = blocking(aio_consumer.Consumer.unsubscribe)
    lag = blocking(aio_consumer.Consumer.lag)
    seek = blocking(aio_consumer.Consumer.seek)
    seek_to_time = blocking(aio_consumer.Consumer.seek_to_time)
    position = called_in_loop(aio_consumer.Consumer.position)
    committed = called_in_loop(aio_consumer.Consumer.committed)
    pause = called_in_loop(aio_consumer.Consumer.pause)
    resume = called_in_loop(aio_consumer.Consumer.resume)

    @property
    def client_id(self) -> str:
        """Id of this client at brokers, as `mqadmin` shows it.  Raises ClientClosed unless the client is open."""
        return self._aio.client_id

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._aio.group

    @property
    def model(self) -> MessageModel:
        """Whether members share the messages or each gets all."""
        return self._aio.model

    @property
    def is_closed(self) -> bool:
        """Whether the consumer delivers no more messages."""
        return self._aio.is_closed

    # Messages

    def ack(self, message: Received | ReceivedMessage) -> None:
        self._call(self._aio.ack(_plain(message)))

    def nack(
        self, message: Received | ReceivedMessage, delay_level: int = 0, *, delay: timedelta | float | None = None
    ) -> None:
        self._call(self._aio.nack(_plain(message), delay_level, delay=delay))

    def reply(
        self, message: Received | ReceivedMessage, answer: bytes | Reply, timeout_s: float | None = None
    ) -> SendResult:
        return self._call(self._aio.reply(_plain(message), answer, timeout_s))

    def extend(self, message: Received | ReceivedMessage, duration: timedelta | float | None = None) -> None:
        self._call(self._aio.extend(_plain(message), duration))

    def dead_letter(self, message: Received | ReceivedMessage, reason: str = "") -> None:
        self._call(self._aio.dead_letter(_plain(message), reason))

    def is_settled(self, message: Received | ReceivedMessage) -> bool:
        """Return whether `message` was acknowledged or rejected, or another member may have its queue."""
        return self._call(in_loop(lambda: self._aio.is_settled(_plain(message))))

    # Control of the queues

    @property
    def assignment(self) -> list[MessageQueue]:
        return self._aio.assignment

    @property
    def paused(self) -> list[MessageQueue]:
        return self._aio.paused

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        self._call(self._aio.assign(list(queues)))

    def stop(self) -> None:
        """End `run` and iterations after the messages in work; a handler may call it."""
        shared_loop.soon(self._aio.stop)

    def run(self, handler: BlockingHandler, *, concurrency: int = 20, by_key: bool | BlockingKey = False) -> None:
        """Hand every message to `handler` in one of `concurrency` threads, until `stop` or `close`.

        With `by_key` messages of one sharding key are handled one after the other; a function returns another key, and
        must not block.  An interrupt ends `run` after the running handlers.
        """
        arguments.handler("handler", handler, "a message")
        arguments.whole("concurrency", concurrency, 1)
        key_of = by_key
        if not isinstance(key_of, bool):
            arguments.handler("by_key", key_of, "a message")

        def call(message: ReceivedMessage) -> object:
            return handler(BlockingMessage(message))

        with in_threads(call, concurrency) as handle:
            key = key_of if isinstance(key_of, bool) else lambda message: key_of(BlockingMessage(message))
            self._call(self._aio.run(handle, concurrency=concurrency, by_key=key))

    def run_batches(self, handler: Callable[[list[Received]], object], *, concurrency: int = 20) -> None:
        """Do as `run`, with lists of up to `consume_message_batch_max_size` messages of one queue, in order."""
        arguments.handler("handler", handler, "a list of messages")
        arguments.whole("concurrency", concurrency, 1)

        def call(messages: list[ReceivedMessage]) -> object:
            return handler([BlockingMessage(message) for message in messages])

        with in_threads(call, concurrency) as handle:
            self._call(self._aio.run_batches(handle, concurrency=concurrency))


class Consumer(_Consuming[aio_consumer.Consumer]):
    """Receives messages; an iterator::

    with Consumer("readers", ["Flights"], "127.0.0.1:9876") as consumer:
        for message in consumer:
            with message.process():
                ...
    """

    @classmethod
    def _part(cls, aio: aio_consumer.Consumer) -> Self:
        part = super()._part(aio)
        part._ready = deque()
        return part

    @made_from(aio_consumer.Consumer)
    def __init__(self, aio: aio_consumer.Consumer) -> None:
        super().__init__(aio)

        self._ready: deque[ReceivedMessage] = deque()  # arrived together with a requested message

    def receive(self, max_messages: int = 1, *, wait_s: float | None = None) -> list[Received]:
        arguments.whole("max_messages", max_messages, 1)
        kept: list[ReceivedMessage] = []
        while len(kept) < max_messages and (message := self._next_ready()) is not None:
            kept.append(message)
        return [BlockingMessage(message) for message in kept or self._call(self._receive(max_messages, wait_s))]

    async def _receive(self, max_messages: int, wait_s: float | None = None) -> list[ReceivedMessage]:
        return await self._aio.receive(max_messages, wait_s=wait_s)

    def _next_ready(self) -> ReceivedMessage | None:
        while True:
            try:
                message = self._ready.popleft()
            except IndexError:
                return None
            if message.source is None or not message.source.is_dropped:
                return message
            shared_loop.soon(message.source.skip, message)

    def __iter__(self) -> Iterator[Received]:
        while True:
            message = self._next_ready()
            if message is None:
                came = self._call(self._aio.receive(_CHUNK))
                if not came:
                    return
                self._ready.extend(came)
            else:
                yield BlockingMessage(message)


def _plain(message: Received | ReceivedMessage) -> ReceivedMessage:
    """Return the message of the asyncio client."""
    return message.message if isinstance(message, BlockingMessage) else message


class OrderlyConsumer(_Consuming[aio_orderly.OrderlyConsumer]):
    """Consumes in order, with `run`."""

    @made_from(aio_orderly.OrderlyConsumer)
    def __init__(self, aio: aio_orderly.OrderlyConsumer) -> None:
        super().__init__(aio)
