"""The blocking consumer that pops."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

from sprocket.client import arguments
from sprocket.client import simple_consumer as aio_simple
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.pop.pop_requests import MAX_POP_NUMS
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.send.reply import Reply
from sprocket.client.send_result import SendResult
from sprocket.client.sync.blocking import Blocking, in_threads, iterate, made_from
from sprocket.client.sync.message import BlockingMessage

Popped = BlockingMessage[PoppedMessage]


SC = TypeVar("SC", bound=aio_simple.SimpleConsumer)


class Popping(Blocking[SC]):
    """What blocking consumers that pop have in common."""

    @property
    def client_id(self) -> str:
        """Id of this client at brokers, as `mqadmin` shows it.  Raises ClientClosed unless the client is open."""
        return self._aio.client_id

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._aio.group

    def receive(
        self,
        max_messages: int = MAX_POP_NUMS,
        *,
        invisible: timedelta | float | None = None,
        wait_s: float | None = None,
        renew: bool = False,
    ) -> list[Popped]:
        received = self._call(self._aio.receive(max_messages, invisible=invisible, wait_s=wait_s, renew=renew))
        return [BlockingMessage(popped) for popped in received]

    def ack(self, popped: Popped | PoppedMessage) -> None:
        self._call(self._aio.ack(_plain_popped(popped)))

    def ack_all(self, batch: Iterable[Popped | PoppedMessage]) -> None:
        self._call(self._aio.ack_all([_plain_popped(popped) for popped in batch]))

    def extend(self, popped: Popped | PoppedMessage, invisible: timedelta | float | None = None) -> None:
        self._call(self._aio.extend(_plain_popped(popped), invisible))

    def nack(self, popped: Popped | PoppedMessage, delay: timedelta | float = 1.0) -> None:
        self._call(self._aio.nack(_plain_popped(popped), delay))

    def dead_letter(self, popped: Popped | PoppedMessage, reason: str = "") -> None:
        self._call(self._aio.dead_letter(_plain_popped(popped), reason))

    def reply(
        self, popped: Popped | PoppedMessage, answer: bytes | Reply, timeout_s: float | None = None
    ) -> SendResult:
        return self._call(self._aio.reply(_plain_popped(popped), answer, timeout_s))

    def is_settled(self, popped: Popped | PoppedMessage) -> bool:
        """Return whether `popped` was acknowledged or rejected."""
        return self._aio.is_settled(_plain_popped(popped))

    def run(self, handler: Callable[[Popped], object], *, concurrency: int = 20) -> None:
        """Hand every message to `handler` in one of `concurrency` threads, until `stop` or `close`."""
        arguments.handler("handler", handler, "a message")
        arguments.whole("concurrency", concurrency, 1)

        def call(popped: PoppedMessage) -> object:
            return handler(BlockingMessage(popped))

        with in_threads(call, concurrency) as handle:
            self._call(self._aio.run(handle, concurrency=concurrency))

    def stop(self) -> None:
        """End `run` and iterations after the messages in work; a handler may call it."""
        shared_loop.soon(self._aio.stop)

    def __iter__(self) -> Iterator[Popped]:
        for popped in iterate(aiter(self._aio)):
            yield BlockingMessage(popped)


class SimpleConsumer(Popping[aio_simple.SimpleConsumer]):
    """Pops messages: `receive` some, or iterate; while an iteration has a message, it is renewed in the background."""

    @made_from(aio_simple.SimpleConsumer)
    def __init__(self, aio: aio_simple.SimpleConsumer) -> None:
        super().__init__(aio)


def _plain_popped(popped: Popped | PoppedMessage) -> PoppedMessage:
    """Return the message of the asyncio client."""
    return popped.message if isinstance(popped, BlockingMessage) else popped
