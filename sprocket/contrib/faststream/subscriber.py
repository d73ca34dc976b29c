"""Subscribers: `@broker.subscriber("Orders", group="billing")`."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec
from faststream.specification.schema.bindings import ChannelBinding, OperationBinding

from sprocket.client.consume.consume_settings import ConsumeSettings
from sprocket.client.consume.subscription import SqlFilter
from sprocket.client.consumer import Consumer
from sprocket.client.errors import BodyUnreadable, ClientError, PermissionDenied
from sprocket.client.message import ReceivedMessage
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.contrib.faststream.broker_config import SprocketBrokerConfig
from sprocket.contrib.faststream.message import (
    Batch,
    Raw,
    SprocketBatchMessage,
    SprocketMessage,
    asks_for_reply,
    decode,
    decode_batch,
    parse,
    parse_batch,
)
from sprocket.contrib.faststream.producer import ResultPublisher

# Pause after a refusal of access control.  The consumer itself goes on asking; this limits the lines in the log.
_DENIED_PAUSE_S = 5.0

Seen = TypeVar("Seen", bound=SprocketMessage | SprocketBatchMessage)


@dataclass(kw_only=True)
class SubscriberConfig(SubscriberUsecaseConfig):
    """Arguments of `subscriber`."""

    _outer_config: SprocketBrokerConfig = field(default_factory=SprocketBrokerConfig)
    topic: str
    group: str
    expression: str | SqlFilter
    consume_from: ConsumeFrom | datetime
    max_workers: int
    settings: ConsumeSettings | None

    @property
    def ack_policy(self) -> AckPolicy:
        """The policy of the subscriber or of its broker; else a message whose handler fails is redelivered."""
        if self._ack_policy is not EMPTY:
            return self._ack_policy
        of_broker = self._outer_config.ack_policy
        return AckPolicy.NACK_ON_ERROR if of_broker is EMPTY else of_broker


@dataclass(kw_only=True)
class SubscriberText(SubscriberSpecificationConfig):
    """What AsyncAPI says of a subscriber."""

    topic: str


class SprocketSubscriberSpecification(SubscriberSpecification[SprocketBrokerConfig, SubscriberText]):
    """AsyncAPI document of a subscriber."""

    @property
    def topic(self) -> str:
        """The topic with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        return [self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payload = resolve_payloads(self.get_payloads())
        return {
            self.name: SubscriberSpec(
                address=self.topic,
                description=self.description,
                operation=Operation(
                    message=Message(title=f"{self.name}:Message", payload=payload), bindings=OperationBinding()
                ),
                bindings=ChannelBinding(),
            )
        }


class GroupSubscriber(SubscriberUsecase[Raw], Generic[Raw, Seen]):
    """Member of a group that reads one topic for its handlers; without handlers, for `get_one` and `async for`.

    `Raw` is what the handlers get at once, and `Seen` is the message of FastStream that holds it.
    """

    _outer_config: SprocketBrokerConfig
    _formats: ClassVar[tuple[Any, Any]]  # parser and decoder

    def __init__(
        self,
        config: SubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Raw],
        max_records: int,
    ) -> None:
        config.parser, config.decoder = self._formats
        super().__init__(config, specification, calls)
        self._topic = config.topic
        self.group = config.group
        self.expression = config.expression
        self._consume_from = config.consume_from
        self._max_workers = config.max_workers
        self._max_records = max_records
        self._settings = config.settings
        self._consumer: Consumer | None = None
        self._workers: list[asyncio.Task[None]] = []

    @abstractmethod
    def raw_of(self, messages: Sequence[ReceivedMessage]) -> Raw:
        """Return what handlers get for `messages`: at least one, and at most as many as it takes at once."""

    @property
    def topic(self) -> str:
        """The topic with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def start(self) -> None:
        """Join the group and call the handlers.  Raises as `Consumer.start`."""
        await super().start()
        if self.calls:
            consumer = await self._opened()
            self._workers = [asyncio.create_task(self._work(consumer)) for _ in range(self._max_workers)]
        self._post_start()

    async def stop(self) -> None:
        """Wait for running handlers, up to the broker's `graceful_timeout`, and leave the group.

        A handler that runs longer is cancelled, and its message is redelivered.
        """
        await super().stop()
        workers, self._workers = self._workers, []
        # A handler that raises StopConsume stops its own worker, which ends by itself.
        others = [worker for worker in workers if worker is not asyncio.current_task()]
        for worker in others:
            worker.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()

    # Seen is a StreamMessage[Raw], which type variables cannot say.
    async def get_one(  # type: ignore[override]
        self,
        *,
        timeout: float = 5.0,  # noqa: ASYNC109 - FastStream's name
    ) -> Seen | None:
        """Return the next message or batch, or None after `timeout` seconds.  It must be acknowledged.

        Raises as `Consumer.receive` and BodyUnreadable.
        """
        self._check_no_calls()
        taken = await (await self._opened()).receive(self._max_records, wait_s=timeout)
        return await self._processed(self.raw_of(taken)) if taken else None

    async def __aiter__(self) -> AsyncIterator[Seen]:  # type: ignore[override]  # as above
        """Yield messages or batches until the subscriber stops.  They must be acknowledged.  Raises as `get_one`."""
        self._check_no_calls()
        consumer = await self._opened()
        while taken := await consumer.receive(self._max_records):
            yield await self._processed(self.raw_of(taken))

    def get_log_context(self, message: StreamMessage[Raw] | None) -> dict[str, str]:
        """Return the fields of a log line."""
        return super().get_log_context(message) | {"topic": self.topic, "group": self.group}

    def _check_no_calls(self) -> None:
        if self.calls:
            raise RuntimeError(f"the subscriber of {self.topic} has handlers, which get its messages; make another one")

    async def _opened(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._outer_config.connection.consumer(
                self.group,
                {self.topic: self.expression},
                consume_from=self._consume_from,
                settings=self._settings,
            )
            await self._consumer.start()
        return self._consumer

    async def _work(self, consumer: Consumer) -> None:
        while not consumer.is_closed:
            try:
                while taken := await consumer.receive(self._max_records):
                    readable = [message for message in taken if await self._is_readable(message)]
                    if readable:
                        await self.consume(self.raw_of(readable))
                return
            except PermissionDenied as error:
                self._log(logging.ERROR, f"group {self.group} may not read {self.topic}: {error}")
                await asyncio.sleep(_DENIED_PAUSE_S)

    async def _is_readable(self, message: ReceivedMessage) -> bool:
        try:
            _ = message.body
        except BodyUnreadable as error:
            # No handler of this version will ever read it.
            self._log(logging.ERROR, f"message {message.message_id} of {self.topic} is given up: {error}")
            await self._give_up(message, str(error))
            return False
        return True

    async def _give_up(self, message: ReceivedMessage, reason: str) -> None:
        try:
            await message.dead_letter(reason)
        except ClientError as error:
            # It comes again after `consume_timeout_s`; the worker goes on with the next one.
            self._log(logging.ERROR, f"message {message.message_id} of {self.topic} is no dead letter yet: {error}")

    async def _processed(self, raw: Raw) -> Seen:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        middlewares = [middleware(raw, context=context) for middleware in self._broker_middlewares]
        result: Any = await process_msg(raw, middlewares=middlewares, parser=parser, decoder=decoder)
        processed: Seen = result
        return processed


class SprocketSubscriber(GroupSubscriber[ReceivedMessage, SprocketMessage]):
    """Subscriber whose handlers get one message at a time."""

    _formats = parse, decode

    def raw_of(self, messages: Sequence[ReceivedMessage]) -> ReceivedMessage:
        """Return the one message."""
        return messages[0]

    def _make_response_publisher(self, message: StreamMessage[ReceivedMessage]) -> Sequence[ResultPublisher]:
        raw = message.raw_message
        return [ResultPublisher(self._outer_config.producer, message.reply_to, raw if asks_for_reply(raw) else None)]


class SprocketBatchSubscriber(GroupSubscriber[Batch, SprocketBatchMessage]):
    """Subscriber whose handlers get a list: up to `max_records` consecutive messages of one queue."""

    _formats = parse_batch, decode_batch

    def raw_of(self, messages: Sequence[ReceivedMessage]) -> Batch:
        """Return all messages."""
        return tuple(messages)

    def _make_response_publisher(self, message: StreamMessage[Batch]) -> Sequence[ResultPublisher]:
        return []
