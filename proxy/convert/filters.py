"""Filter expressions of gRPC clients as subscriptions; pure.

A file of its own: receives, pulls and telemetry read them.  Source: RocketMQ 5.3.3, `FilterAPI.build`.
"""

from proxy.status import Refusal
from sprocket.client.consume.subscription import SqlFilter, subscription
from sprocket.client.errors import IllegalArgument
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import SubscriptionData


def subscription_of(topic: str, expression: wire.FilterExpression) -> SubscriptionData:
    """Return the subscription to `topic`.  Raises Refusal."""
    text: str = expression.expression
    try:
        return subscription(topic, SqlFilter(text) if expression.type == wire.SQL else text, 0)
    except IllegalArgument as error:
        raise Refusal(wire.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
