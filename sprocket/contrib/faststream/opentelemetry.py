"""Spans and metrics of OpenTelemetry for brokers of FastStream, by FastStream's own middleware::

    broker = SprocketBroker("127.0.0.1:9876", middlewares=[SprocketTelemetryMiddleware()])

The context travels in the properties ``traceparent`` and ``baggage``, so clients with `TraceSettings(spans=True)` and
other languages continue the trace.
Source of names and attributes: OpenTelemetry, "Semantic conventions for messaging spans", and for RocketMQ.
"""

from typing import Any, Final

from sprocket.common.extras import missing_package

try:
    from faststream.opentelemetry import TelemetryMiddleware, TelemetrySettingsProvider
    from faststream.opentelemetry.consts import MESSAGING_DESTINATION_PUBLISH_NAME
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.semconv.trace import SpanAttributes
    from opentelemetry.trace import TracerProvider
except ModuleNotFoundError as error:
    what = "sprocket.contrib.faststream.opentelemetry"
    raise ImportError(missing_package(error, what) or str(error), name=error.name) from error

from faststream.message import StreamMessage

from sprocket.client.message import ReceivedMessage
from sprocket.contrib.faststream.message import Batch
from sprocket.contrib.faststream.publish_command import SprocketPublishCommand


class SprocketTelemetryMiddleware(TelemetryMiddleware[SprocketPublishCommand]):
    """Middleware of a `SprocketBroker`: spans for publish and process, their durations, and counts of messages.

    Without providers those of the process are used, which the application sets.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        meter: Meter | None = None,
        include_messages_counters: bool = True,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: _ATTRIBUTES,
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            meter=meter,
            include_messages_counters=include_messages_counters,
        )


class MessageAttributes(TelemetrySettingsProvider[ReceivedMessage | Batch, SprocketPublishCommand]):
    """Attributes of spans, of single messages and of batches.  Tag and keys are those of single messages."""

    messaging_system = "rocketmq"

    def get_consume_attrs_from_message(self, msg: StreamMessage[ReceivedMessage | Batch]) -> dict[str, Any]:
        """Return the attributes of a process span."""
        raw = msg.raw_message
        messages = raw if isinstance(raw, tuple) else (raw,)
        attributes: dict[str, Any] = {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_MESSAGE_ID: msg.message_id,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: msg.correlation_id,
            SpanAttributes.MESSAGING_MESSAGE_PAYLOAD_SIZE_BYTES: sum(len(message.body) for message in messages),
            MESSAGING_DESTINATION_PUBLISH_NAME: messages[0].topic,
        }
        if isinstance(raw, tuple):
            return attributes | {SpanAttributes.MESSAGING_BATCH_MESSAGE_COUNT: len(raw)}
        return attributes | _tag_and_keys(raw.tags, raw.keys)

    def get_consume_destination_name(self, msg: StreamMessage[ReceivedMessage | Batch]) -> str:
        """Return the topic of a received message."""
        raw = msg.raw_message
        return raw[0].topic if isinstance(raw, tuple) else raw.topic

    def get_publish_attrs_from_cmd(self, cmd: SprocketPublishCommand) -> dict[str, Any]:
        """Return the attributes of a publish span."""
        keys = cmd.placing.keys
        return {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_DESTINATION_NAME: cmd.destination,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: cmd.correlation_id or "",
        } | _tag_and_keys(cmd.placing.tags, keys.split() if isinstance(keys, str) else list(keys))

    def get_publish_destination_name(self, cmd: SprocketPublishCommand) -> str:
        """Return the topic of a message to send; empty for a reply, which goes to its requester."""
        return cmd.destination


def _tag_and_keys(tag: str, keys: list[str]) -> dict[str, Any]:
    found = {SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_TAG: tag, SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_KEYS: keys}
    return {name: value for name, value in found.items() if value}


_ATTRIBUTES: Final = MessageAttributes()
