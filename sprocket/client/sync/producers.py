"""Blocking producers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from sprocket.client import arguments
from sprocket.client import producer as aio_producer
from sprocket.client import transaction as aio_transaction
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.message import Message, MessageQueue, ReceivedMessage
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send_result import SendResult
from sprocket.client.sync.blocking import Blocking, blocking, made_from
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.transaction import TransactionResult, TransactionState

P = TypeVar("P", bound=aio_producer.Producer)


class _Producing(Blocking[P]):
    send = blocking(aio_producer.Producer.send)
    request = blocking(aio_producer.Producer.request)
    send_oneway = blocking(aio_producer.Producer.send_oneway)
    recall = blocking(aio_producer.Producer.recall)
    queues = blocking(aio_producer.Producer.queues)

    @property
    def client_id(self) -> str:
        """Id of this client at brokers, as `mqadmin` shows it.  Raises ClientClosed unless the client is open."""
        return self._aio.client_id

    @property
    def group(self) -> str:
        """The producer group."""
        return self._aio.group

    @property
    def is_closed(self) -> bool:
        """Whether the producer was closed."""
        return self._aio.is_closed

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        at_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        batch = list(messages)
        return self._call(self._aio.send_batch(batch, queue=queue, at_offset=at_offset, timeout_s=timeout_s))

    def send_many(self, messages: Iterable[Message], *, window: int = 256) -> Iterator[SendResult]:
        """Yield results in order; `messages` are taken `window` at a time."""
        arguments.whole("window", window, 1)
        iterator = iter(messages)
        while chunk := list(islice(iterator, window)):
            yield from self._call(self._send_chunk(chunk, window))

    async def _send_chunk(self, chunk: Sequence[Message], window: int) -> list[SendResult]:
        return [result async for result in self._aio.send_many(chunk, window=window)]


class Producer(_Producing[aio_producer.Producer]):
    """Sends messages::

    with Producer("flights", "127.0.0.1:9876") as producer:
        result = producer.send(Message("Flights", b"..."))
    """

    @made_from(aio_producer.Producer)
    def __init__(self, aio: aio_producer.Producer) -> None:
        super().__init__(aio)


Checker = Callable[[ReceivedMessage], TransactionState]


def checking(checker: Checker) -> Callable[[ReceivedMessage], Awaitable[TransactionState]]:
    """Return an asynchronous checker that calls `checker` in a thread.  Raises IllegalArgument."""
    arguments.handler("checker", checker, "a message")

    async def check(message: ReceivedMessage) -> TransactionState:
        return await asyncio.to_thread(checker, message)

    return check


class TransactionProducer(_Producing[aio_transaction.TransactionProducer]):
    """Transactional sends; `checker` and `local` are called in threads and may block."""

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        checker: Checker,
        check_threads: int = 4,
        settings: SendSettings | None = None,
        client: ClientSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> None:
        super().__init__(
            aio_transaction.TransactionProducer(
                group, namesrv, checker=checking(checker), check_threads=check_threads, settings=settings,
                client=client, trace=trace,
            )
        )  # fmt: skip

    def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Message, str], TransactionState],
        *,
        check_immunity_s: int | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> TransactionResult:
        arguments.handler("local", local, "the message and its transaction id", 2)

        async def run_local(sent: Message, transaction_id: str) -> TransactionState:
            return await asyncio.to_thread(local, sent, transaction_id)

        return self._call(
            self._aio.send_in_transaction(
                message, run_local, check_immunity_s=check_immunity_s, queue=queue, timeout_s=timeout_s
            )
        )
