"""The client for programs without an event loop: scripts and threads.

Each class is the asyncio class of the same name as a blocking context manager, with the same arguments, results and
errors.  All objects share one event loop in one background thread, which ends with the last of them.
Any number of threads may use one object.  An interrupt (Ctrl-C) ends the waiting call.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from sprocket.client import arguments
from sprocket.client import consumer as aio_consumer
from sprocket.client import orderly_consumer as aio_orderly
from sprocket.client import producer as aio_producer
from sprocket.client import simple_consumer as aio_simple
from sprocket.client import transaction as aio_transaction
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.consume.allocation import AllocateMessageQueueStrategy
from sprocket.client.consume.consume_settings import ConsumeSettings, MessageModel
from sprocket.client.consume.listener import ConsumerListener
from sprocket.client.consume.start_offset import ConsumeFrom
from sprocket.client.consume.subscription import ALL, SqlFilter, Topics
from sprocket.client.message import Message, MessageQueue, ReceivedMessage, SendResult
from sprocket.client.orderly_consumer import OrderlySettings
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.send.reply import Reply
from sprocket.client.send.send_request import SendSettings
from sprocket.client.simple_consumer import PopSettings
from sprocket.client.sync_message import BlockingMessage
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.transaction import TransactionResult, TransactionState
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.tls.settings import TlsSettings

__all__ = ["Admin", "Consumer", "OrderlyConsumer", "Producer", "SimpleConsumer", "TransactionProducer"]

T = TypeVar("T")
# How many messages cross the threads at once.
_CHUNK = 32


class _Opened(Protocol):
    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


C = TypeVar("C", bound=_Opened)


class _Blocking(Generic[C]):
    """Opens and closes `aio` in the loop's thread."""

    def __init__(self, aio: C, *, is_owned: bool = False) -> None:
        """An owned object is part of a `Connection`, which keeps the loop running."""
        self._aio = aio
        self._is_open = False
        self._is_owned = is_owned

    @classmethod
    def _part(cls, aio: C) -> Self:
        """Return the blocking form of a part of a connection."""
        part = cls.__new__(cls)
        _Blocking.__init__(part, aio, is_owned=True)
        return part

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Open the asyncio object.  Raises as its `start`."""
        if self._is_owned:
            shared_loop.call(_entered(self._aio))
            return
        shared_loop.acquire()
        try:
            shared_loop.call(_entered(self._aio))
        except BaseException:
            shared_loop.release()
            raise
        self._is_open = True

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the asyncio object; a second call does nothing."""
        if self._is_owned:
            shared_loop.call(self._aio.__aexit__(None, None, None))
        elif self._is_open:
            self._is_open = False
            try:
                shared_loop.call(self._aio.__aexit__(None, None, None))
            finally:
                shared_loop.release()

    def _call(self, work: Coroutine[object, object, T]) -> T:
        return shared_loop.call(work)


async def _entered(aio: _Opened) -> None:
    await aio.__aenter__()


P = TypeVar("P", bound=aio_producer.Producer)


class _Producing(_Blocking[P]):
    @property
    def client_id(self) -> str:
        """Id of this client at brokers, as `mqadmin` shows it.  Raises ClientClosed unless the client is open."""
        return self._aio.client_id

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        return self._call(self._aio.send(message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s))

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float = 3.0,
    ) -> ReceivedMessage:
        return self._call(self._aio.request(message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s))

    def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, sharding_key: str | None = None
    ) -> None:
        self._call(self._aio.send_oneway(message, queue=queue, sharding_key=sharding_key))

    def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout_s: float | None = None
    ) -> SendResult:
        return self._call(self._aio.send_batch(list(messages), queue=queue, timeout_s=timeout_s))

    def send_many(self, messages: Iterable[Message], *, window: int = 256) -> Iterator[SendResult]:
        """Yield results in order; `messages` are taken `window` at a time."""
        arguments.whole("window", window, 1)
        iterator = iter(messages)
        while chunk := list(islice(iterator, window)):
            yield from self._call(self._send_chunk(chunk, window))

    async def _send_chunk(self, chunk: Sequence[Message], window: int) -> list[SendResult]:
        return [result async for result in self._aio.send_many(chunk, window=window)]

    def recall(self, handle: str) -> str:
        return self._call(self._aio.recall(handle))

    def queues(self, topic: str) -> list[MessageQueue]:
        return self._call(self._aio.queues(topic))


class Producer(_Producing[aio_producer.Producer]):
    """Sends messages::

    with Producer("flights", "127.0.0.1:9876") as producer:
        result = producer.send(Message("Flights", b"..."))
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        settings: SendSettings | None = None,
        client: ClientSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> None:
        super().__init__(aio_producer.Producer(group, namesrv, settings=settings, client=client, trace=trace))


class TransactionProducer(_Producing[aio_transaction.TransactionProducer]):
    """Transactional sends; `checker` and `local` are called in threads and may block."""

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        checker: Callable[[ReceivedMessage], TransactionState],
        check_threads: int = 4,
        settings: SendSettings | None = None,
        client: ClientSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> None:
        arguments.function("checker", checker)

        async def check(message: ReceivedMessage) -> TransactionState:
            return await asyncio.to_thread(checker, message)

        super().__init__(
            aio_transaction.TransactionProducer(
                group,
                namesrv,
                checker=check,
                check_threads=check_threads,
                settings=settings,
                client=client,
                trace=trace,
            )
        )

    def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Message, str], TransactionState],
        *,
        check_immunity_s: int | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> TransactionResult:
        arguments.function("local", local)

        async def run_local(sent: Message, transaction_id: str) -> TransactionState:
            return await asyncio.to_thread(local, sent, transaction_id)

        return self._call(
            self._aio.send_in_transaction(
                message, run_local, check_immunity_s=check_immunity_s, queue=queue, timeout_s=timeout_s
            )
        )


Received = BlockingMessage[ReceivedMessage]
BlockingHandler = Callable[[Received], object]
PC = TypeVar("PC", bound=aio_consumer.Consumer)


class _Consuming(_Blocking[PC]):
    @property
    def client_id(self) -> str:
        """Id of this client at brokers, as `mqadmin` shows it.  Raises ClientClosed unless the client is open."""
        return self._aio.client_id

    def subscribe(self, topic: str, expression: str | SqlFilter = ALL) -> None:
        self._call(self._aio.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        self._call(self._aio.unsubscribe(topic))

    def nack(
        self, message: Received | ReceivedMessage, delay_level: int = 0, *, delay: timedelta | float | None = None
    ) -> None:
        self._call(self._aio.nack(_plain(message), delay_level, delay=delay))

    def reply(
        self, message: Received | ReceivedMessage, answer: bytes | Reply, timeout_s: float | None = None
    ) -> SendResult:
        return self._call(self._aio.reply(_plain(message), answer, timeout_s))

    # Control of the queues

    @property
    def assignment(self) -> list[MessageQueue]:
        return self._aio.assignment

    @property
    def paused(self) -> list[MessageQueue]:
        return self._aio.paused

    def position(self, topic: str | None = None) -> dict[MessageQueue, int]:
        return self._call(_in_loop(lambda: self._aio.position(topic)))

    def committed(self, topic: str | None = None) -> dict[MessageQueue, int]:
        return self._call(_in_loop(lambda: self._aio.committed(topic)))

    def lag(self, topic: str | None = None) -> dict[MessageQueue, int]:
        return self._call(self._aio.lag(topic))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self._call(self._aio.seek(queue, offset))

    def seek_to_time(self, when: datetime, topic: str | None = None) -> dict[MessageQueue, int]:
        return self._call(self._aio.seek_to_time(when, topic))

    def pause(self, *queues: MessageQueue) -> None:
        self._call(_in_loop(lambda: self._aio.pause(*queues)))

    def resume(self, *queues: MessageQueue) -> None:
        self._call(_in_loop(lambda: self._aio.resume(*queues)))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        self._call(self._aio.assign(list(queues)))

    def stop(self) -> None:
        """End `run` and iterations after the messages in work; a handler may call it."""
        shared_loop.soon(self._aio.stop)

    def run(self, handler: BlockingHandler, *, concurrency: int = 20, by_key: bool = False) -> None:
        """Hand every message to `handler` in one of `concurrency` threads, until `stop` or `close`.

        With `by_key` messages of one sharding key are handled one after the other.

        An interrupt ends it after the running handlers.
        """
        arguments.function("handler", handler)
        arguments.whole("concurrency", concurrency, 1)
        with ThreadPoolExecutor(concurrency, thread_name_prefix="sprocket-handler") as threads:

            async def handle(message: ReceivedMessage) -> None:
                await asyncio.get_running_loop().run_in_executor(threads, handler, BlockingMessage(message))

            self._call(self._aio.run(handle, concurrency=concurrency, by_key=by_key))


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

    def __init__(
        self,
        group: str,
        topics: Topics = (),
        namesrv: str | Sequence[str] = "",
        *,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        max_in_flight: int | None = None,
        listener: ConsumerListener | None = None,
        strategy: AllocateMessageQueueStrategy | None = None,
        settings: ConsumeSettings | None = None,
        client: ClientSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> None:
        super().__init__(
            aio_consumer.Consumer(
                group, topics, namesrv, model=model, consume_from=consume_from, max_in_flight=max_in_flight,
                listener=listener, strategy=strategy,
                settings=settings, client=client, trace=trace,
            )
        )  # fmt: skip

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

    def ack(self, message: Received | ReceivedMessage) -> None:
        aio_consumer.check_received(_plain(message))
        shared_loop.soon(self._aio.acknowledge, _plain(message))

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


async def _in_loop(what: Callable[[], T]) -> T:
    """Call `what` in the thread of the loop."""
    return what()


class OrderlyConsumer(_Consuming[aio_orderly.OrderlyConsumer]):
    """Consumes in order, with `run`."""

    def __init__(
        self,
        group: str,
        topics: Topics = (),
        namesrv: str | Sequence[str] = "",
        *,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        strategy: AllocateMessageQueueStrategy | None = None,
        settings: OrderlySettings | None = None,
        client: ClientSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> None:
        super().__init__(
            aio_orderly.OrderlyConsumer(
                group,
                topics,
                namesrv,
                consume_from=consume_from,
                strategy=strategy,
                settings=settings,
                client=client,
                trace=trace,
            )
        )


Popped = BlockingMessage[PoppedMessage]


class SimpleConsumer(_Blocking[aio_simple.SimpleConsumer]):
    """Pops messages: `receive` some, or iterate; while an iteration has a message, it is renewed in the background."""

    def __init__(
        self,
        group: str,
        topics: Topics,
        namesrv: str | Sequence[str] = "",
        *,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        ordered: bool = False,
        settings: PopSettings | None = None,
        client: ClientSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> None:
        super().__init__(
            aio_simple.SimpleConsumer(
                group,
                topics,
                namesrv,
                consume_from=consume_from,
                ordered=ordered,
                settings=settings,
                client=client,
                trace=trace,
            )
        )

    @property
    def client_id(self) -> str:
        """Id of this client at brokers, as `mqadmin` shows it.  Raises ClientClosed unless the client is open."""
        return self._aio.client_id

    def receive(
        self, max_messages: int = _CHUNK, *, invisible: timedelta | float | None = None, wait_s: float | None = None
    ) -> list[Popped]:
        received = self._call(self._aio.receive(max_messages, invisible=invisible, wait_s=wait_s))
        return [BlockingMessage(popped) for popped in received]

    def ack(self, popped: Popped | PoppedMessage) -> None:
        self._call(self._aio.ack(_plain_popped(popped)))

    def ack_all(self, batch: Iterable[Popped | PoppedMessage]) -> None:
        self._call(self._aio.ack_all([_plain_popped(popped) for popped in batch]))

    def extend(self, popped: Popped | PoppedMessage, invisible: timedelta | float | None = None) -> None:
        self._call(self._aio.extend(_plain_popped(popped), invisible))

    def renew(self, popped: Popped | PoppedMessage, invisible: timedelta | float | None = None) -> None:
        """As `extend`, which is the newer name."""
        self.extend(popped, invisible)

    def nack(self, popped: Popped | PoppedMessage, delay: timedelta | float = 1.0) -> None:
        self._call(self._aio.nack(_plain_popped(popped), delay))

    def __iter__(self) -> Iterator[Popped]:
        messages = aiter(self._aio)
        while (popped := self._call(_next(messages))) is not None:
            yield BlockingMessage(popped)


def _plain_popped(popped: Popped | PoppedMessage) -> PoppedMessage:
    """Return the message of the asyncio client."""
    return popped.message if isinstance(popped, BlockingMessage) else popped


async def _next(messages: AsyncIterator[PoppedMessage]) -> PoppedMessage | None:
    return await anext(messages, None)


class Admin(_Blocking[AdminClient]):
    """Asks name servers and brokers: ``admin(lambda aio: aio.topic_list())`` calls any method of `AdminClient`."""

    def __init__(
        self,
        namesrv: str | Sequence[str],
        *,
        timeout_s: float = 5.0,
        credentials: Credentials | None = None,
        tls: TlsSettings | None = None,
    ) -> None:
        super().__init__(AdminClient(namesrv, timeout_s=timeout_s, credentials=credentials, tls=tls))

    def __call__(self, ask: Callable[[AdminClient], Awaitable[T]]) -> T:
        """Return the outcome of what `ask` makes of the asyncio client."""

        async def work() -> T:
            return await ask(self._aio)

        return self._call(work())
