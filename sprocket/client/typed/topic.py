"""Typed topics: values of one type in place of bodies."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from sprocket.client import arguments
from sprocket.client.consume.consume_settings import ConsumeSettings
from sprocket.client.consume.subscription import ALL, SqlFilter
from sprocket.client.consumer import Consumer
from sprocket.client.errors import IllegalMessage
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.rebalance.listener import ConsumerListener
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send_result import SendResult
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.typed.consumer import TypedConsumer, Undecodable
from sprocket.client.typed.serializers import Serializer

T = TypeVar("T")


class Clients(Protocol):
    """Maker of the producers and consumers of a topic: a `Connection`."""

    def producer(self, group: str, *, settings: SendSettings | None, trace: TraceSettings | None) -> Producer: ...

    def consumer(
        self,
        group: str,
        topics: Mapping[str, str | SqlFilter],
        *,
        consume_from: ConsumeFrom | datetime,
        max_in_flight: int | None,
        listener: ConsumerListener | None,
        settings: ConsumeSettings | None,
        trace: TraceSettings | None,
    ) -> Consumer: ...


class Topic(Generic[T]):
    """Topic whose messages are values of one type; made by `Connection.topic`::

    orders = mq.topic("Orders", Order)
    await orders.send(Order(7, "shoes"), key="order-7")
    async for order in orders.consume("billing"):
        ...
    """

    def __init__(
        self,
        connection: Clients,
        name: str,
        serializer: Serializer[T],
        undecodable: Undecodable,
        group: str,
        *,
        settings: SendSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> None:
        arguments.check_topic(name)
        arguments.choice("undecodable", undecodable, Undecodable, "pass one of Undecodable")
        self.name = name
        self._connection = connection
        self._serializer = serializer
        self._undecodable = undecodable
        self._group = group
        self._settings = arguments.optional("settings", settings, SendSettings)
        self._trace = arguments.optional("trace", trace, TraceSettings)

    def _producer(self) -> Producer:
        return self._connection.producer(self._group, settings=self._settings, trace=self._trace)

    def message(
        self,
        value: T,
        *,
        key: str = "",
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        delay: timedelta | float | None = None,
        deliver_at: datetime | int | None = None,
        priority: int | None = None,
        unique_key: str = "",
    ) -> Message:
        """Return the message of `value`, for the methods of a `Producer`; arguments as those of `Message`.

        Raises IllegalMessage for a value that cannot be encoded.
        """
        try:
            body = self._serializer.encode(value)
        except Exception as error:
            raise IllegalMessage(f"topic {self.name}: {value!r} cannot be encoded: {error}") from error
        return Message(
            self.name, body, tags=tags, keys=key, properties=properties, delay=delay, deliver_at=deliver_at,
            priority=priority, unique_key=unique_key,
        )  # fmt: skip

    async def send(
        self,
        value: T,
        *,
        key: str = "",
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        delay: timedelta | float | None = None,
        deliver_at: datetime | int | None = None,
        priority: int | None = None,
        unique_key: str = "",
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send `value` and wait until a broker has it; `key` finds the message, `sharding_key` keeps an order.

        Raises as `Producer.send`, and IllegalMessage for a value that cannot be encoded.
        """
        message = self.message(
            value, key=key, tags=tags, properties=properties, delay=delay, deliver_at=deliver_at, priority=priority,
            unique_key=unique_key,
        )  # fmt: skip
        return await self._producer().send(message, sharding_key=sharding_key, timeout_s=timeout_s)

    async def send_all(self, values: Iterable[T]) -> SendResult:
        """Send `values` as one batch: to one queue, all or none.  Raises as `Producer.send_batch`."""
        return await self._producer().send_batch([self.message(value) for value in values])

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
        """Return a consumer of the values for `group`; it opens at its first use and closes with the connection."""
        consumer = self._connection.consumer(
            group, {self.name: expression}, consume_from=consume_from, max_in_flight=max_in_flight, listener=listener,
            settings=settings, trace=trace,
        )  # fmt: skip
        return TypedConsumer(consumer, self._serializer, self._undecodable)
