"""Decorators that brokers and routers share."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Unpack, cast, overload

from fast_depends.dependencies import Dependant
from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.parser import CodecProto
from faststream._internal.types import CustomCallable
from faststream.middlewares import AckPolicy

from sprocket.client import arguments
from sprocket.client.consume.consume_settings import ConsumeSettings
from sprocket.client.consume.subscription import ALL, SqlFilter, subscription
from sprocket.client.errors import IllegalArgument
from sprocket.client.message import ReceivedMessage
from sprocket.client.rebalance.start_offset import ConsumeFrom, checked_start
from sprocket.contrib.faststream.broker_config import SprocketBrokerConfig
from sprocket.contrib.faststream.message import Batch
from sprocket.contrib.faststream.publish_command import Placing
from sprocket.contrib.faststream.publisher import (
    PublisherConfig,
    PublisherText,
    SprocketBatchPublisher,
    SprocketPublisher,
    SprocketPublisherSpecification,
)
from sprocket.contrib.faststream.subscriber import (
    SprocketBatchSubscriber,
    SprocketSubscriber,
    SprocketSubscriberSpecification,
    SubscriberConfig,
    SubscriberText,
)


class CommonSubscriberOptions(TypedDict, total=False):
    """Arguments of every `subscriber` that do not decide its type."""

    expression: str | SqlFilter
    consume_from: ConsumeFrom | datetime
    max_workers: int
    max_records: int
    ack_policy: AckPolicy
    no_reply: bool
    settings: ConsumeSettings | None
    parser: CustomCallable | None
    decoder: CustomCallable | None
    codec: CodecProto | None
    persistent: bool
    title: str | None
    description: str | None
    include_in_schema: bool


class SubscriberOptions(CommonSubscriberOptions, total=False):
    """Arguments of a broker's `subscriber` that do not decide its type."""

    dependencies: Sequence[Dependant]


class PublisherOptions(TypedDict, total=False):
    """Arguments of `publisher` that do not decide its type."""

    tags: str
    keys: Iterable[str] | str
    sharding_key: str | None
    delay: timedelta | float | None
    headers: dict[str, Any] | None
    persistent: bool
    title: str | None
    description: str | None
    schema: Any | None
    include_in_schema: bool


class SprocketRegistrator(Registrator[ReceivedMessage | Batch, SprocketBrokerConfig]):
    """Subscribers and publishers of a broker or router."""

    # Every broker of FastStream has arguments of its own.
    @overload  # type: ignore[override]
    def subscriber(
        self, topic: str, *, group: str, batch: Literal[False] = False, **options: Unpack[SubscriberOptions]
    ) -> SprocketSubscriber: ...

    @overload
    def subscriber(
        self, topic: str, *, group: str, batch: Literal[True], **options: Unpack[SubscriberOptions]
    ) -> SprocketBatchSubscriber: ...

    @overload
    def subscriber(
        self, topic: str, *, group: str, batch: bool, **options: Unpack[SubscriberOptions]
    ) -> SprocketSubscriber | SprocketBatchSubscriber: ...

    def subscriber(
        self,
        topic: str,
        *,
        group: str,
        batch: bool = False,
        expression: str | SqlFilter = ALL,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        max_workers: int = 1,
        max_records: int = 32,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        settings: ConsumeSettings | None = None,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> SprocketSubscriber | SprocketBatchSubscriber:
        """Return a decorator of handlers: messages of `topic` for one member of `group`.

        With `batch` a handler gets a list of up to `max_records` consecutive messages of one queue.  It does not wait
        until there are so many.

        `expression` is ``*``, tags with ``||`` between them, or a SqlFilter.  Up to `max_workers` handlers run at a
        time.  With one, messages of a queue are handled in order until one is rejected.  Without `ack_policy` a message
        whose handler raises is redelivered.  `no_reply` sends no results to requesters.  The rest is as with every
        broker of FastStream.  Raises IllegalArgument, IllegalMessage.
        """
        arguments.check_topic(topic)
        arguments.check_group(group)
        subscription(topic, expression, 0)
        arguments.whole("max_workers", max_workers, 1)
        arguments.whole("max_records", max_records, 1)
        arguments.optional("settings", settings, ConsumeSettings)
        outer = cast("SprocketBrokerConfig", self.config)
        config = SubscriberConfig(
            _outer_config=outer,
            _ack_policy=ack_policy,
            no_reply=no_reply,
            topic=topic,
            group=group,
            expression=expression,
            consume_from=checked_start(consume_from),
            max_workers=max_workers,
            settings=settings,
        )
        text = SubscriberText(topic=topic, title_=title, description_=description, include_in_schema=include_in_schema)
        subscriber = _made(config, text, max_records if batch else None)
        super().subscriber(cast("SubscriberUsecase[ReceivedMessage | Batch]", subscriber), persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser, decoder_=decoder or self._decoder, codec_=codec, dependencies_=dependencies
        )

    @overload  # type: ignore[override]  # as above
    def publisher(
        self, topic: str, *, batch: Literal[False] = False, **options: Unpack[PublisherOptions]
    ) -> SprocketPublisher: ...

    @overload
    def publisher(
        self, topic: str, *, batch: Literal[True], **options: Unpack[PublisherOptions]
    ) -> SprocketBatchPublisher: ...

    @overload
    def publisher(
        self, topic: str, *, batch: bool, **options: Unpack[PublisherOptions]
    ) -> SprocketPublisher | SprocketBatchPublisher: ...

    def publisher(
        self,
        topic: str,
        *,
        batch: bool = False,
        tags: str = "",
        keys: Iterable[str] | str = (),
        sharding_key: str | None = None,
        delay: timedelta | float | None = None,
        headers: dict[str, Any] | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
    ) -> SprocketPublisher | SprocketBatchPublisher:
        """Return a publisher of `topic`; as a decorator it sends the results of a handler.

        With `batch` it sends several messages as one request, and a list that a handler returns is such a batch.  A
        batch has no sharding key and no delay.

        `tags`, `keys`, `sharding_key` and `delay` are those of every message that it sends, unless the handler returns
        a `SprocketResponse` with its own.  Raises IllegalMessage, IllegalArgument.
        """
        arguments.check_topic(topic)
        if batch and (sharding_key is not None or delay is not None):
            raise IllegalArgument("a batch has no sharding_key and no delay; leave out `batch`, or both of them")
        outer = cast("SprocketBrokerConfig", self.config)
        config = PublisherConfig(
            _outer_config=outer,
            topic=topic,
            placing=Placing(tags=tags, keys=keys, sharding_key=sharding_key, delay=delay),
            headers=headers or {},
        )
        text = PublisherText(
            topic=topic, title_=title, description_=description, schema_=schema, include_in_schema=include_in_schema
        )
        kind = SprocketBatchPublisher if batch else SprocketPublisher
        publisher: SprocketPublisher | SprocketBatchPublisher = kind(
            config, SprocketPublisherSpecification(outer, text)
        )
        super().publisher(publisher, persistent=persistent)
        return publisher


def _made(
    config: SubscriberConfig, text: SubscriberText, max_records: int | None
) -> SprocketSubscriber | SprocketBatchSubscriber:
    """Return the subscriber of batches of up to `max_records`, or with None of single messages."""
    calls = CallsCollection[Any]()
    kind = SprocketSubscriber if max_records is None else SprocketBatchSubscriber
    return kind(config, SprocketSubscriberSpecification(config._outer_config, text, calls), calls, max_records or 1)
