"""The blocking form of `sprocket.connect`."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from sprocket.client import arguments, sync
from sprocket.client import connect as aio
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.consume.consume_settings import ConsumeSettings, MessageModel
from sprocket.client.consume.listener import ConsumerListener
from sprocket.client.consume.start_offset import ConsumeFrom
from sprocket.client.consume.subscription import ALL, SqlFilter, Topics
from sprocket.client.message import SendResult
from sprocket.client.orderly_consumer import OrderlySettings
from sprocket.client.send.send_request import SendSettings
from sprocket.client.simple_consumer import PopSettings
from sprocket.client.typed.consumer import TypedConsumer as AioTypedConsumer
from sprocket.client.typed.consumer import Undecodable
from sprocket.client.typed.serializers import Serializer
from sprocket.client.typed.topic import Topic as AioTopic
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.tls.settings import TlsSettings

T = TypeVar("T")


def connect(
    namesrv: str | Sequence[str] = "",
    *,
    credentials: Credentials | None = None,
    tls: TlsSettings | None = None,
    client: ClientSettings | None = None,
) -> "Connection":
    """Return a connection as `sprocket.connect`, to be used with `with`, or with `start` and `close`."""
    return Connection(aio.connect(namesrv, credentials=credentials, tls=tls, client=client))


class TypedConsumer(Generic[T]):
    """Values of one topic for one group, as `sprocket.TypedConsumer`; made by `Topic.consume`."""

    def __init__(self, aio_consumer: AioTypedConsumer[T]) -> None:
        self._aio = aio_consumer

    def __enter__(self) -> "TypedConsumer[T]":
        shared_loop.call(self._aio.start())
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: object) -> None:
        shared_loop.call(self._aio.__aexit__(exc_type, exc, None))

    def __iter__(self) -> Iterator[T]:
        ended = object()

        async def following() -> T | object:
            return await anext(self._aio, ended)

        while (value := shared_loop.call(following())) is not ended:
            yield value  # type: ignore[misc]

    def run(self, handler: Callable[[T], object], *, concurrency: int = 20) -> None:
        """Hand every value to `handler` in one of `concurrency` threads, until `stop`."""
        arguments.function("handler", handler)
        with ThreadPoolExecutor(concurrency, thread_name_prefix="sprocket-handler") as threads:

            async def handle(value: T) -> None:
                await asyncio.get_running_loop().run_in_executor(threads, handler, value)

            shared_loop.call(self._aio.run(handle, concurrency=concurrency))

    def stop(self) -> None:
        """End `run` and iterations after the values in work."""
        shared_loop.soon(self._aio.consumer.stop)


class Topic(Generic[T]):
    """Topic whose messages are values of one type, as `sprocket.Topic`; made by `Connection.topic`."""

    def __init__(self, aio_topic: AioTopic[T]) -> None:
        self._aio = aio_topic

    def send(
        self,
        value: T,
        *,
        key: str = "",
        tags: str = "",
        delay: timedelta | float | None = None,
        unique_key: str = "",
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send `value` and wait until a broker has it."""
        return shared_loop.call(
            self._aio.send(
                value, key=key, tags=tags, delay=delay, unique_key=unique_key, sharding_key=sharding_key,
                timeout_s=timeout_s,
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
        settings: ConsumeSettings | None = None,
    ) -> TypedConsumer[T]:
        """Return a consumer of the values for `group`."""
        return TypedConsumer(self._aio.consume(group, expression, consume_from=consume_from, settings=settings))


class Connection(sync._Blocking[aio.Connection]):
    """Producers, consumers and the administration of one cluster; any number of threads may use it::

    with sync.connect("127.0.0.1:9876") as mq:
        mq.producer().send(Message("Flights", b"JFK-LAX"))
        for message in mq.consumer("readers", "Flights"):
            message.ack()
    """

    @property
    def admin(self) -> sync.Admin:
        """Requests of an operator: ``mq.admin(lambda aio: aio.topic_list())``."""
        return sync.Admin._part(self._aio.admin)

    def producer(self, group: str = aio.DEFAULT_GROUP, *, settings: SendSettings | None = None) -> sync.Producer:
        """Return the producer of `group`, which needs no `with`."""
        return sync.Producer._part(self._aio.producer(group, settings=settings))

    def consumer(
        self,
        group: str,
        topics: Topics = (),
        *,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        max_in_flight: int | None = None,
        listener: ConsumerListener | None = None,
        settings: ConsumeSettings | None = None,
    ) -> sync.Consumer:
        """Return a consumer, which opens at its first use and closes with this connection, or at `close`."""
        return sync.Consumer._part(
            self._aio.consumer(
                group, topics, model=model, consume_from=consume_from, max_in_flight=max_in_flight, listener=listener,
                settings=settings,
            )
        )  # fmt: skip

    def orderly_consumer(
        self,
        group: str,
        topics: Topics = (),
        *,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        settings: OrderlySettings | None = None,
    ) -> sync.OrderlyConsumer:
        """Return a consumer that handles each queue in order."""
        return sync.OrderlyConsumer._part(
            self._aio.orderly_consumer(group, topics, consume_from=consume_from, settings=settings)
        )

    def simple_consumer(
        self,
        group: str,
        topics: Topics,
        *,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        ordered: bool = False,
        settings: PopSettings | None = None,
    ) -> sync.SimpleConsumer:
        """Return a consumer that pops single messages."""
        return sync.SimpleConsumer._part(
            self._aio.simple_consumer(group, topics, consume_from=consume_from, ordered=ordered, settings=settings)
        )

    def topic(
        self,
        name: str,
        type: type[T],
        *,
        serializer: Serializer[T] | None = None,
        undecodable: Undecodable = Undecodable.DEAD_LETTER,
    ) -> Topic[T]:
        """Return a topic whose messages are values of `type`."""
        return Topic(self._aio.topic(name, type, serializer=serializer, undecodable=undecodable))
