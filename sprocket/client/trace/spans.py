"""Spans of OpenTelemetry for send, receive and process; the context travels in the property ``traceparent``.

Importing this module needs opentelemetry-api.  Which spans are kept and where they go is the application's choice: it
sets a tracer provider, as for all its other spans.
Source of names and attributes: OpenTelemetry, "Semantic conventions for messaging spans", and for RocketMQ; W3C, "Trace
Context".
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from sprocket.remoting.message import properties as names

_MAX_OPEN: Final = 100_000
TRACEPARENT: Final = "traceparent"


class Carried(Protocol):
    """A message with the context of its sender."""

    @property
    def topic(self) -> str: ...

    @property
    def message_id(self) -> str: ...

    @property
    def properties(self) -> dict[str, str]: ...


class Spans:
    """Spans of one client of `group`."""

    def __init__(self, group: str) -> None:
        self._tracer = trace.get_tracer("sprocket")
        self._group = group
        # Spans of messages that the application has, by identity of the message.
        self._open: dict[int, Span] = {}

    def _attributes(self, operation: str, topic: str, message_id: str) -> dict[str, str]:
        return {
            "messaging.system": "rocketmq",
            "messaging.operation.type": operation,
            "messaging.destination.name": topic,
            "messaging.message.id": message_id,
        }

    def sending(self, topic: str, message_id: str) -> tuple[Span, str]:
        """Begin the span of a send; return it and the properties that carry its context."""
        attributes = self._attributes("send", topic, message_id) | {"messaging.rocketmq.client_group": self._group}
        span = self._tracer.start_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        return span, names.encode(carrier)

    @staticmethod
    def sent(span: Span, error: BaseException | None) -> None:
        """End the span of a send."""
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()

    def taken(self, message: Carried) -> None:
        """Record that the application gets a message, and begin the span of its processing."""
        if len(self._open) >= _MAX_OPEN:
            self._open.pop(next(iter(self._open))).end()
        parent = propagate.extract(_carrier(message.properties))
        attributes = self._attributes("receive", message.topic, message.message_id)
        attributes["messaging.consumer.group.name"] = self._group
        received = self._tracer.start_span(
            f"receive {message.topic}", context=parent, kind=SpanKind.CONSUMER, attributes=attributes
        )
        received.end()
        self._open[id(message)] = self._tracer.start_span(
            f"process {message.topic}",
            context=trace.set_span_in_context(received, parent),
            kind=SpanKind.CONSUMER,
            attributes=attributes | {"messaging.operation.type": "process"},
        )

    def finished(self, message: Carried, *, is_success: bool) -> None:
        """End the span of a message's processing."""
        span = self._open.pop(id(message), None)
        if span is not None:
            if not is_success:
                span.set_status(Status(StatusCode.ERROR, "rejected"))
            span.end()

    def around(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a handler whose own spans are children of its message's; of the first one's for a list."""

        async def traced(argument: Any) -> None:
            message = argument[0] if isinstance(argument, list) else argument
            span = self._open.get(id(message))
            token = None if span is None else context.attach(trace.set_span_in_context(span))
            try:
                outcome = handler(argument)
                if inspect.isawaitable(outcome):
                    await outcome
            finally:
                if token is not None:
                    context.detach(token)

        return traced


def _carrier(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: properties[name] for name in (TRACEPARENT, "tracestate", "baggage") if name in properties}
