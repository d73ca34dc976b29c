"""Groups that consume lite topics, as their attributes say, and what their clients may do; pure.

Source: RocketMQ 5.5.0, `SubscriptionGroupAttributes`, `SubscriptionGroupConfig.getLiteSubClientQuota`,
`ClientProcessor.validateLiteMode`, `validateLiteBindTopic`, `validateLiteSubscriptionQuota`.
"""

from typing import Final

from proxy.convert.client_types import is_lite
from proxy.convert.resources import full_name
from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.message.lite_groups import (
    CLIENT_QUOTA_BUFFER,
    DEFAULT_CLIENT_QUOTA,
    LITE_CLIENT_QUOTA,
    lite_bind_topic,
)

_INT_MAX: Final = (1 << 31) - 1
_MAX_DIGITS: Final = 10


def lite_client_quota(group: SubscriptionGroupConfig) -> int:
    """Return how many lite topics a client of a group may subscribe.

    Unlike RocketMQ, which passes on the -1 of no limit: clients take it for a limit below 1.
    """
    text = group.attributes.get(LITE_CLIENT_QUOTA, "")
    if text == "-1":
        return _INT_MAX
    if not (text.isascii() and text.isdigit()):
        return DEFAULT_CLIENT_QUOTA
    return min(int(text), _INT_MAX) if len(text) <= _MAX_DIGITS else _INT_MAX


def check_lite_mode(reported: wire.Settings, group: SubscriptionGroupConfig | None) -> None:
    """Raise Refusal for a consumer of lite topics in another group, or another consumer in a group of lite topics.

    `group` is None if no broker knows it.
    """
    name = full_name(reported.subscription.group)
    if is_lite(reported):
        for entry in reported.subscription.subscriptions:
            check_bind_topic(name, group, full_name(entry.topic))
        if group is None or lite_bind_topic(group.attributes) is None:
            raise _not_lite(name, group)
    elif group is not None and lite_bind_topic(group.attributes) is not None:
        raise Refusal(wire.ILLEGAL_CONSUMER_GROUP, f"lite group must use LITE mode: {name}")


def check_bind_topic(name: str, group: SubscriptionGroupConfig | None, topic: str) -> SubscriptionGroupConfig:
    """Return the group `name` if it consumes lite topics of `topic`.  Raises Refusal."""
    if group is None:
        raise _not_lite(name, group)
    expected = lite_bind_topic(group.attributes)
    if expected is None:
        raise _not_lite(name, group)
    if expected != topic:
        what = f"lite group {name} is expected to bind topic {expected}, but actual is {topic}"
        raise Refusal(wire.ILLEGAL_TOPIC, what)
    return group


def check_quota(group: SubscriptionGroupConfig, count: int) -> None:
    """Raise Refusal if `count` lite topics of one client are too many."""
    quota = lite_client_quota(group)
    if count > quota + CLIENT_QUOTA_BUFFER:
        raise Refusal(wire.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, f"lite subscription quota exceeded: {quota}")


def _not_lite(name: str, group: SubscriptionGroupConfig | None) -> Refusal:
    if group is None:
        return Refusal(wire.ILLEGAL_CONSUMER_GROUP, f"group not found: {name}")
    return Refusal(wire.ILLEGAL_CONSUMER_GROUP, f"regular group cannot use LITE mode: {name}")
