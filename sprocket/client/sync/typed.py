"""Blocking typed topics."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from sprocket.client import arguments
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.consume.consume_settings import ConsumeSettings
from sprocket.client.consume.subscription import ALL, SqlFilter
from sprocket.client.message import Message, ReceivedMessage
from sprocket.client.rebalance.listener import ConsumerListener
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.send_result import SendResult
from sprocket.client.sync.blocking import Blocking, in_loop, in_threads, iterate
from sprocket.client.sync.consumers import Consumer, Received
from sprocket.client.sync.message import BlockingMessage
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.typed.consumer import TypedConsumer as AioTypedConsumer
from sprocket.client.typed.table import Table as AioTable
from sprocket.client.typed.topic import Topic as AioTopic

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

T = TypeVar("T")
Duration = timedelta | float


class TypedMessage(Generic[T]):
    """A value and the message that brought it, as `sprocket.TypedMessage`."""

    __slots__ = ("message", "value")

    def __init__(self, value: T, message: Received) -> None:
        self.value = value
        self.message = message

    def ack(self) -> None:
        """Count the message as consumed."""
        self.message.ack()

    def nack(self, delay: Duration | None = None) -> None:
        """Reject the message: it is redelivered after `delay`."""
        self.message.nack(delay)

    def process(self, *, delay: Duration | None = None) -> "AbstractContextManager[BlockingMessage[ReceivedMessage]]":
        """Return the context of `ReceivedMessage.process`."""
        return self.message.process(delay=delay)

    def __repr__(self) -> str:
        return f"TypedMessage({self.value!r}, {self.message!r})"


class TypedConsumer(Generic[T]):
    """Values of one topic for one group, as `sprocket.TypedConsumer`; made by `Topic.consume`."""

    def __init__(self, aio_consumer: AioTypedConsumer[T]) -> None:
        self._aio = aio_consumer
        self.consumer = Consumer._part(aio_consumer.consumer)  # for `seek`, `pause` and the like

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shared_loop.call(self._aio.__aexit__(exc_type, exc, traceback))

    def start(self) -> None:
        """Open the consumer.  Raises as `Consumer.start`."""
        shared_loop.call(self._aio.start())

    def close(self) -> None:
        """Close the consumer; a value in work is redelivered."""
        shared_loop.call(self._aio.close())

    def __iter__(self) -> Iterator[T]:
        return iterate(self._aio)

    def messages(self) -> Iterator[TypedMessage[T]]:
        """Yield values with their messages, which the caller acknowledges."""
        for typed in iterate(self._aio.messages()):
            yield TypedMessage(typed.value, BlockingMessage(typed.message))

    def run(self, handler: Callable[[T], object], *, concurrency: int = 20, by_key: bool = False) -> None:
        """Hand every value to `handler` in one of `concurrency` threads, until `stop`."""
        arguments.handler("handler", handler, "a value")
        arguments.whole("concurrency", concurrency, 1)
        with in_threads(handler, concurrency) as handle:
            shared_loop.call(self._aio.run(handle, concurrency=concurrency, by_key=by_key))

    def stop(self) -> None:
        """End `run` and iterations after the values in work; a handler may call it."""
        shared_loop.soon(self._aio.stop)


class Topic(Generic[T]):
    """Topic whose messages are values of one type, as `sprocket.Topic`; made by `Connection.topic`."""

    def __init__(self, aio_topic: AioTopic[T]) -> None:
        self._aio = aio_topic

    @property
    def name(self) -> str:
        """Name of the topic."""
        return self._aio.name

    def message(
        self,
        value: T,
        *,
        key: str = "",
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | int | None = None,
        priority: int | None = None,
        unique_key: str = "",
    ) -> Message:
        """Return the message of `value`, for the methods of a `Producer`."""
        return self._aio.message(
            value, key=key, tags=tags, properties=properties, delay=delay, deliver_at=deliver_at, priority=priority,
            unique_key=unique_key,
        )  # fmt: skip

    def send(
        self,
        value: T,
        *,
        key: str = "",
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | int | None = None,
        priority: int | None = None,
        unique_key: str = "",
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send `value` and wait until a broker has it."""
        return shared_loop.call(
            self._aio.send(
                value, key=key, tags=tags, properties=properties, delay=delay, deliver_at=deliver_at,
                priority=priority, unique_key=unique_key, sharding_key=sharding_key, timeout_s=timeout_s,
            )
        )  # fmt: skip

    def send_all(self, values: Iterable[T]) -> SendResult:
        """Send `values` as one batch."""
        return shared_loop.call(self._aio.send_all(list(values)))

    def consume(
        self,
        group: str,
        expression: str | SqlFilter = ALL,
        *,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        max_in_flight: int | None = None,
        listener: ConsumerListener | None = None,
        settings: ConsumeSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> TypedConsumer[T]:
        """Return a consumer of the values for `group`."""
        return TypedConsumer(
            self._aio.consume(
                group, expression, consume_from=consume_from, max_in_flight=max_in_flight, listener=listener,
                settings=settings, trace=trace,
            )
        )  # fmt: skip


class Table(Blocking[AioTable[T]], Mapping[str, T], Generic[T]):
    """Last value of each key of a compacted topic, as `sprocket.Table`; made by `Connection.table`."""

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._aio.topic

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __getitem__(self, key: str) -> T:
        return self._aio[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys of now: the table may change meanwhile."""
        return iter(self._call(in_loop(lambda: list(self._aio))))

    def __len__(self) -> int:
        return len(self._aio)

    def __contains__(self, key: object) -> bool:
        return key in self._aio

    def at_least(self, result: SendResult, *, timeout_s: float | None = None) -> None:
        """Wait until the table has the message of `result`, or a later one of its key."""
        self._call(self._aio.at_least(result, timeout_s=timeout_s))

    def watch(self) -> Iterator[tuple[str, T | None]]:
        """Yield each key whose value changes from now on, with its last value; None if it was deleted."""
        return iterate(self._aio.watch())

    def put(self, key: str, value: T, *, timeout_s: float | None = None) -> SendResult:
        """Send `value` as the last one of `key`, which holds no blank."""
        return self._call(self._aio.put(key, value, timeout_s=timeout_s))

    def delete(self, key: str, *, timeout_s: float | None = None) -> SendResult:
        """Send the deletion of `key`, whether the table has it or not."""
        return self._call(self._aio.delete(key, timeout_s=timeout_s))
