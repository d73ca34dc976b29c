"""Filter expressions of gRPC clients as subscriptions; pure.

A file of its own: receives, pulls and telemetry read them.  Source: RocketMQ 5.3.3, `FilterAPI.build`.
"""

from typing import Final

from proxy.status import Refusal
from sprocket.client.consume.subscription import SqlFilter, subscription
from sprocket.client.errors import IllegalArgument
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import SubscriptionData

# An expression becomes a field of a request, and each of its tags a text with a hash.
_MAX_CHARS: Final = 64 * 1024


def subscription_of(topic: str, expression: wire.FilterExpression) -> SubscriptionData:
    """Return the subscription to `topic`.  Raises Refusal."""
    text: str = expression.expression
    if len(text) > _MAX_CHARS:
        what = f"the filter expression has {len(text)} characters, at most {_MAX_CHARS}"
        raise Refusal(wire.ILLEGAL_FILTER_EXPRESSION, what)
    try:
        return subscription(topic, SqlFilter(text) if expression.type == wire.SQL else text, 0)
    except IllegalArgument as error:
        raise Refusal(wire.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
