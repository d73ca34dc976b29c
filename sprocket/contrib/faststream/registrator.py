"""Decorators that brokers and routers share."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from fast_depends.dependencies import Dependant
from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.parser import CodecProto
from faststream._internal.types import CustomCallable
from faststream.middlewares import AckPolicy

from sprocket.client import arguments
from sprocket.client.consume.consume_settings import ConsumeSettings
from sprocket.client.consume.start_offset import ConsumeFrom, checked_start
from sprocket.client.consume.subscription import ALL, SqlFilter, subscription
from sprocket.client.message import ReceivedMessage
from sprocket.contrib.faststream.broker_config import SprocketBrokerConfig
from sprocket.contrib.faststream.publish_command import Placing
from sprocket.contrib.faststream.publisher import (
    PublisherConfig,
    PublisherText,
    SprocketPublisher,
    SprocketPublisherSpecification,
)
from sprocket.contrib.faststream.subscriber import (
    SprocketSubscriber,
    SprocketSubscriberSpecification,
    SubscriberConfig,
    SubscriberText,
)


class SprocketRegistrator(Registrator[ReceivedMessage, SprocketBrokerConfig]):
    """Subscribers and publishers of a broker or router."""

    def subscriber(  # type: ignore[override]  # every broker of FastStream has arguments of its own
        self,
        topic: str,
        *,
        group: str,
        expression: str | SqlFilter = ALL,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        max_workers: int = 1,
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
    ) -> SprocketSubscriber:
        """Return a decorator of handlers: messages of `topic` for one member of `group`.

        `expression` is ``*``, tags with ``||`` between them, or a SqlFilter.  Up to `max_workers` handlers run at a
        time.  With one, messages of a queue are handled in order until one is rejected.  Without `ack_policy` a message
        whose handler raises is redelivered.  `no_reply` sends no results to requesters.  The rest is as with every
        broker of FastStream.  Raises IllegalArgument, IllegalMessage.
        """
        arguments.check_topic(topic)
        arguments.check_group(group)
        subscription(topic, expression, 0)
        arguments.whole("max_workers", max_workers, 1)
        arguments.optional("settings", settings, ConsumeSettings)
        outer = cast("SprocketBrokerConfig", self.config)
        calls = CallsCollection[ReceivedMessage]()
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
        subscriber = SprocketSubscriber(config, SprocketSubscriberSpecification(outer, text, calls), calls)
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser, decoder_=decoder or self._decoder, codec_=codec, dependencies_=dependencies
        )

    def publisher(  # type: ignore[override]  # as above
        self,
        topic: str,
        *,
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
    ) -> SprocketPublisher:
        """Return a publisher of `topic`; as a decorator it sends the results of a handler.

        `tags`, `keys`, `sharding_key` and `delay` are those of every message that it sends, unless the handler returns
        a `SprocketResponse` with its own.  Raises IllegalMessage.
        """
        arguments.check_topic(topic)
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
        publisher = SprocketPublisher(config, SprocketPublisherSpecification(outer, text))
        super().publisher(publisher, persistent=persistent)
        return publisher
