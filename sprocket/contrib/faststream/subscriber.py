"""Subscribers: `@broker.subscriber("Orders", group="billing")`."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

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
from sprocket.client.consume.start_offset import ConsumeFrom
from sprocket.client.consume.subscription import SqlFilter
from sprocket.client.consumer import Consumer
from sprocket.client.errors import BodyUnreadable, PermissionDenied
from sprocket.client.message import ReceivedMessage
from sprocket.contrib.faststream.broker_config import SprocketBrokerConfig
from sprocket.contrib.faststream.message import SprocketMessage, asks_for_reply, decode, parse
from sprocket.contrib.faststream.producer import ResultPublisher

# Pause after a refusal of access control.  The consumer itself goes on asking; this limits the lines in the log.
_DENIED_PAUSE_S = 5.0


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


class SprocketSubscriber(SubscriberUsecase[ReceivedMessage]):
    """Member of a group that reads one topic for its handlers; without handlers, for `get_one` and `async for`."""

    _outer_config: SprocketBrokerConfig

    def __init__(
        self,
        config: SubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[ReceivedMessage],
    ) -> None:
        config.parser = parse
        config.decoder = decode
        super().__init__(config, specification, calls)
        self._topic = config.topic
        self.group = config.group
        self.expression = config.expression
        self._consume_from = config.consume_from
        self._max_workers = config.max_workers
        self._settings = config.settings
        self._consumer: Consumer | None = None
        self._workers: list[asyncio.Task[None]] = []

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

    async def get_one(self, *, timeout: float = 5.0) -> SprocketMessage | None:  # noqa: ASYNC109 - FastStream's name
        """Return the next message, or None after `timeout` seconds.  It must be acknowledged.

        Raises as `Consumer.receive` and BodyUnreadable.
        """
        self._check_no_calls()
        taken = await (await self._opened()).receive(wait_s=timeout)
        return await self._processed(taken[0]) if taken else None

    async def __aiter__(self) -> AsyncIterator[SprocketMessage]:
        """Yield messages until the subscriber stops.  They must be acknowledged.  Raises as `get_one`."""
        self._check_no_calls()
        async for message in await self._opened():
            yield await self._processed(message)

    def get_log_context(self, message: StreamMessage[ReceivedMessage] | None) -> dict[str, str]:
        """Return the fields of a log line."""
        return super().get_log_context(message) | {"topic": self.topic, "group": self.group}

    def _make_response_publisher(self, message: StreamMessage[ReceivedMessage]) -> Sequence[ResultPublisher]:
        raw = message.raw_message
        return [ResultPublisher(self._outer_config.producer, message.reply_to, raw if asks_for_reply(raw) else None)]

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
                async for message in consumer:
                    if await self._is_readable(message):
                        await self.consume(message)
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
            await message.dead_letter(str(error))
            return False
        return True

    async def _processed(self, message: ReceivedMessage) -> SprocketMessage:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        middlewares = [middleware(message, context=context) for middleware in self._broker_middlewares]
        result: Any = await process_msg(message, middlewares=middlewares, parser=parser, decoder=decoder)
        processed: SprocketMessage = result
        return processed
