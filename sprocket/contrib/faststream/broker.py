"""Broker and router of FastStream."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

from fast_depends import Provider, dependency_provider
from fast_depends.dependencies import Dependant
from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import LoggerProto
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.router import BrokerRouter
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec, Tag, TagDict

from sprocket.client.connect import Connection, connect
from sprocket.client.connection.client_instance import ClientSettings, settings_of
from sprocket.client.errors import ClientError
from sprocket.client.message import ReceivedMessage
from sprocket.client.send_result import SendResult
from sprocket.contrib.faststream.broker_config import SprocketBrokerConfig
from sprocket.contrib.faststream.message import Batch, SprocketMessage
from sprocket.contrib.faststream.producer import SprocketProducer
from sprocket.contrib.faststream.publish_command import Placing, SprocketPublishCommand, check_any
from sprocket.contrib.faststream.registrator import SprocketRegistrator


class SprocketBroker(SprocketRegistrator, BrokerUsecase[ReceivedMessage | Batch, Connection, SprocketBrokerConfig]):
    """Broker of FastStream over a Sprocket or RocketMQ cluster.

    Its subscribers and sends share one `Connection`, opened by `start` or `async with` and closed by `stop`.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] = "",
        *,
        client: ClientSettings | None = None,
        graceful_timeout: float | None = 15.0,
        ack_policy: AckPolicy = EMPTY,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[SprocketRegistrator] = (),
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
    ) -> None:
        """`namesrv` and `client` are those of `Consumer`; the rest is as with every broker of FastStream.

        `stop` waits up to `graceful_timeout` seconds for handlers.  Raises IllegalArgument.
        """
        self._client = settings_of(namesrv, client)
        addresses = self._client.namesrv
        super().__init__(
            routers=routers,
            config=SprocketBrokerConfig(
                producer=SprocketProducer(parser, decoder, codec),
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                logger=make_logger_state(logger=logger, log_level=log_level, default_storage_cls=_LogLines),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                description=description,
                url=[addresses] if isinstance(addresses, str) else list(addresses),
                protocol="rocketmq",
                protocol_version=None,
                tags=tags,
                security=None,
            ),
        )

    async def _connect(self) -> Connection:
        connection = connect(client=self._client)
        await connection.start()
        config = self.config.broker_config
        config.open_connection = connection
        _sprocket_producer(config).connect(connection.producer(), config.fd_config._serializer)
        return connection

    async def start(self) -> None:
        """Connect and start the subscribers.  Raises as `Connection.start` and `Consumer.start`."""
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop the subscribers and close the connection.  The broker can be started again."""
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            config = self.config.broker_config
            connection, self._connection, config.open_connection = self._connection, None, None
            if connection is not None:
                await connection.close()
                _sprocket_producer(config).disconnect()

    async def ping(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - FastStream's name
        """Return whether a name server answers within `timeout` seconds."""
        if self._connection is None:
            return False
        try:
            async with asyncio.timeout(timeout):
                await self._connection.admin.topic_list()
        except (ClientError, TimeoutError):
            return False
        return True

    async def publish(
        self,
        message: Any,
        topic: str,
        *,
        tags: str = "",
        keys: Iterable[str] | str = (),
        sharding_key: str | None = None,
        delay: timedelta | float | None = None,
        deliver_at: datetime | int | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
    ) -> SendResult:
        """Send `message` to `topic` and wait until a broker has it.

        `tags` to `deliver_at` are those of `Message` and `Producer.send`.  `headers` are its properties, as text.  The
        result of the handler that gets the message is sent to the topic `reply_to`, if given.  Raises IncorrectState
        before `start`, and as `Producer.send`.
        """
        command = SprocketPublishCommand(
            message,
            publish_type=PublishType.PUBLISH,
            topic=topic,
            placing=Placing(tags=tags, keys=keys, sharding_key=sharding_key, delay=delay, deliver_at=deliver_at),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
        )
        sent: SendResult = await self._basic_publish(command, producer=self.config.producer)
        return sent

    async def publish_batch(  # type: ignore[override]  # every broker of FastStream has arguments of its own
        self,
        *messages: Any,
        topic: str,
        tags: str = "",
        keys: Iterable[str] | str = (),
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
    ) -> SendResult:
        """Send `messages` to one queue of `topic` as one request: all of them are stored, or none.

        The other arguments are those of `publish`, for every message.  A message may be a `SprocketResponse` with tags,
        keys, headers or a correlation id of its own.  Raises IncorrectState before `start`, and as
        `Producer.send_batch`: IllegalMessage for no message, for a delay or a sharding key, and for too many bytes.
        """
        check_any(messages)
        command = SprocketPublishCommand(
            *messages,
            publish_type=PublishType.PUBLISH,
            topic=topic,
            placing=Placing(tags=tags, keys=keys),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
        )
        sent: SendResult = await self._basic_publish_batch(command, producer=self.config.producer)
        return sent

    async def request(  # type: ignore[override]  # as above
        self,
        message: Any,
        topic: str,
        *,
        timeout: float = 3.0,  # noqa: ASYNC109 - FastStream's name
        tags: str = "",
        keys: Iterable[str] | str = (),
        sharding_key: str | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
    ) -> SprocketMessage:
        """Send `message` to `topic` and return the result of its handler, which must come within `timeout` seconds.

        Raises IncorrectState before `start`, and as `Producer.request`.
        """
        command = SprocketPublishCommand(
            message,
            publish_type=PublishType.REQUEST,
            topic=topic,
            placing=Placing(tags=tags, keys=keys, sharding_key=sharding_key),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            timeout_s=timeout,
        )
        reply: SprocketMessage = await self._basic_request(command, producer=self.config.producer)
        return reply


class SprocketRouter(SprocketRegistrator, BrokerRouter[ReceivedMessage | Batch, SprocketBrokerConfig]):
    """Subscribers and publishers to include in a broker: `broker.include_router(router)`.

    `prefix` stands before the names of its topics.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[SprocketRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        ack_policy: AckPolicy = EMPTY,
        include_in_schema: bool | None = None,
    ) -> None:
        config = SprocketBrokerConfig(
            prefix=prefix,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            ack_policy=ack_policy,
            include_in_schema=include_in_schema,
        )
        super().__init__(config=config, handlers=(), routers=routers)


class _LogLines(DefaultLoggerStorage):
    """Form of the log lines of a broker without a `logger` of its own."""

    _level = logging.INFO

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Do nothing: the columns have no widths that depend on subscribers."""

    def set_level(self, level: int) -> None:
        self._level = level

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        known = self._get_logger_ref()
        if known is not None:
            return known
        made = get_broker_logger(
            name="sprocket",
            default_context={"topic": "", "group": ""},
            message_id_ln=32,
            fmt="%(asctime)s %(levelname)-8s - %(topic)s | %(group)s | %(message_id)-32s - %(message)s",
            context=context,
            log_level=self._level,
        )
        self._logger_ref.add(made)
        return made


def _sprocket_producer(config: SprocketBrokerConfig) -> SprocketProducer:
    producer = config.producer
    assert isinstance(producer, SprocketProducer)  # the broker made it
    return producer
