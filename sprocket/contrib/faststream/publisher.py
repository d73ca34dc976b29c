"""Publishers: `@broker.publisher("Invoices")`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.types import PublisherMiddleware
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec
from faststream.specification.schema.bindings import ChannelBinding, OperationBinding

from sprocket.client.send_result import SendResult
from sprocket.contrib.faststream.broker_config import SprocketBrokerConfig
from sprocket.contrib.faststream.message import SprocketMessage
from sprocket.contrib.faststream.publish_command import Placing, SprocketPublishCommand, check_any


@dataclass(kw_only=True)
class PublisherConfig(PublisherUsecaseConfig):
    """Arguments of `publisher`."""

    _outer_config: SprocketBrokerConfig = field(default_factory=SprocketBrokerConfig)
    topic: str
    placing: Placing
    headers: dict[str, Any]


@dataclass(kw_only=True)
class PublisherText(PublisherSpecificationConfig):
    """What AsyncAPI says of a publisher."""

    topic: str


class SprocketPublisherSpecification(PublisherSpecification[SprocketBrokerConfig, PublisherText]):
    """AsyncAPI document of a publisher."""

    @property
    def topic(self) -> str:
        """The topic with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(
                    message=Message(title=f"{self.name}:Message", payload=payload), bindings=OperationBinding()
                ),
                bindings=ChannelBinding(),
            )
        }


class TopicPublisher(PublisherUsecase):
    """What publishers of single messages and of batches share."""

    _outer_config: SprocketBrokerConfig

    def __init__(self, config: PublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self._placing = config.placing
        self._headers = config.headers

    @property
    def topic(self) -> str:
        """The topic with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def request(
        self,
        message: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: float = 3.0,  # noqa: ASYNC109 - FastStream's name
    ) -> SprocketMessage:
        """Send `message` and wait up to `timeout` seconds for its reply.  Raises as `SprocketBroker.request`."""
        command = self._command(PublishType.REQUEST, (message,), headers, correlation_id)
        command.timeout_s = timeout
        reply: SprocketMessage = await self._basic_request(command, producer=self._outer_config.producer)
        return reply

    def _placed(self, cmd: PublishCommand, *, batch: bool) -> SprocketPublishCommand:
        """Return the command of a handler's result; what the result says of its place wins over the arguments."""
        command = SprocketPublishCommand.from_cmd(cmd, batch=batch)
        command.send_to(self.topic)
        command.add_headers(self._headers, override=False)
        command.placing = command.placing.over(self._placing)
        return command

    def _command(
        self, kind: PublishType, messages: Sequence[Any], headers: dict[str, Any] | None, correlation_id: str | None
    ) -> SprocketPublishCommand:
        return SprocketPublishCommand(
            *messages,
            publish_type=kind,
            topic=self.topic,
            placing=self._placing,
            headers=self._headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
        )


class SprocketPublisher(TopicPublisher):
    """Publisher of one topic; as a decorator it sends the results of a handler."""

    async def publish(
        self, message: Any, *, headers: dict[str, Any] | None = None, correlation_id: str | None = None
    ) -> SendResult:
        """Send `message` to the topic.  Raises as `SprocketBroker.publish`."""
        command = self._command(PublishType.PUBLISH, (message,), headers, correlation_id)
        sent: SendResult = await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return sent

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Send the result of a handler."""
        await self._basic_publish(
            self._placed(cmd, batch=False), producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares
        )


class SprocketBatchPublisher(TopicPublisher):
    """Publisher of batches to one topic; as a decorator it sends the list that a handler returns as one batch."""

    async def publish(
        self, *messages: Any, headers: dict[str, Any] | None = None, correlation_id: str | None = None
    ) -> SendResult:
        """Send `messages` to one queue of the topic.  Raises as `SprocketBroker.publish_batch`."""
        check_any(messages)
        command = self._command(PublishType.PUBLISH, messages, headers, correlation_id)
        sent: SendResult = await self._basic_publish_batch(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return sent

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Send the result of a handler; for an empty list or None, one empty message, as the brokers of FastStream."""
        command = self._placed(cmd, batch=True)
        if not command.batch_bodies:
            command.batch_bodies = (b"",)
        await self._basic_publish_batch(
            command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares
        )
