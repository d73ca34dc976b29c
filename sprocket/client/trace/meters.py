"""Metrics of OpenTelemetry for sends and deliveries.

Importing this module needs opentelemetry-api.  The application chooses where the metrics go: it sets a meter provider.
Source of names and attributes: OpenTelemetry, "Semantic conventions for messaging client metrics".
"""

from typing import Final

from opentelemetry import metrics

_MAX_TAKEN: Final = 100_000


class Meters:
    """Metrics of one client of `group`; durations are in s."""

    def __init__(self, group: str) -> None:
        meter = metrics.get_meter("sprocket")
        self._group = group
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that a broker has accepted."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that the application got."
        )
        self._operation = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Time from a send to its result."
        )
        self._process = meter.create_histogram(
            "messaging.process.duration", "s", "Time from a message's delivery to its acknowledgement or rejection."
        )
        # Monotonic time of the delivery, by identity of the message.  The oldest is forgotten first.
        self._taken: dict[int, float] = {}

    def _attributes(self, operation: str, topic: str, error: str = "") -> dict[str, str]:
        attributes = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": operation,
            "messaging.destination.name": topic,
        }
        if operation != "send":
            attributes["messaging.consumer.group.name"] = self._group
        return attributes | {"error.type": error} if error else attributes

    def sent(self, topic: str, messages: int, seconds: float) -> None:
        """Record a request with `messages` that a broker has accepted."""
        attributes = self._attributes("send", topic)
        self._sent.add(messages, attributes)
        self._operation.record(seconds, attributes)

    def not_sent(self, topic: str, seconds: float, error: BaseException) -> None:
        """Record a send that failed."""
        self._operation.record(seconds, self._attributes("send", topic, type(error).__name__))

    def taken(self, topic: str, message: int, now_s: float) -> None:
        """Record that the application gets the message of the identity `message`."""
        self._consumed.add(1, self._attributes("receive", topic))
        if len(self._taken) >= _MAX_TAKEN:
            del self._taken[next(iter(self._taken))]
        self._taken[message] = now_s

    def finished(self, topic: str, message: int, now_s: float, *, is_success: bool) -> None:
        """Record that the application has acknowledged or rejected a message."""
        since_s = self._taken.pop(message, None)
        if since_s is not None:
            self._process.record(now_s - since_s, self._attributes("process", topic, "" if is_success else "rejected"))
