"""Metrics of Prometheus for brokers of FastStream, by FastStream's own middleware::

    registry = prometheus_client.CollectorRegistry()
    broker = SprocketBroker("127.0.0.1:9876", middlewares=[SprocketPrometheusMiddleware(registry=registry)])

Names and labels are those of FastStream's other brokers, with the label ``broker="rocketmq"``.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from sprocket.common.extras import missing_package

try:
    from faststream.prometheus import ConsumeAttrs, MetricsSettingsProvider, PrometheusMiddleware
    from prometheus_client import CollectorRegistry
except ModuleNotFoundError as error:
    what = "sprocket.contrib.faststream.prometheus"
    raise ImportError(missing_package(error, what) or str(error), name=error.name) from error

from faststream._internal.constants import EMPTY
from faststream.message import StreamMessage

from sprocket.client.message import ReceivedMessage
from sprocket.contrib.faststream.message import Batch
from sprocket.contrib.faststream.publish_command import SprocketPublishCommand


class SprocketPrometheusMiddleware(PrometheusMiddleware[ReceivedMessage | Batch, SprocketPublishCommand]):
    """Middleware of a `SprocketBroker`: counts, sizes, durations and errors of messages, in `registry`."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: dict[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        """The arguments are those of FastStream's other middlewares for Prometheus.

        `app_name` (`metrics_prefix` by default) is the label ``app_name``.  Buckets are in bytes.  A custom label that
        is a function gets the received `ReceivedMessage`, a tuple of them for a batch, and None for a message to send.
        """
        super().__init__(
            settings_provider_factory=lambda _: _MESSAGES,
            registry=registry,
            app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=custom_labels,
        )


class MessageFigures(MetricsSettingsProvider[ReceivedMessage | Batch, SprocketPublishCommand]):
    """Topic, size and number of what a handler gets: one message or a batch."""

    messaging_system = "rocketmq"

    def get_consume_attrs_from_message(self, msg: StreamMessage[ReceivedMessage | Batch]) -> ConsumeAttrs:
        """Return topic, bytes of all bodies, and number of messages."""
        raw = msg.raw_message
        messages = raw if isinstance(raw, tuple) else (raw,)
        return {
            "destination_name": messages[0].topic,
            "message_size": sum(len(message.body) for message in messages),
            "messages_count": len(messages),
        }

    def get_publish_destination_name_from_cmd(self, cmd: SprocketPublishCommand) -> str:
        """Return the topic of a message to send."""
        return cmd.destination


_MESSAGES: Final = MessageFigures()
