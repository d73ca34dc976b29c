"""What a consumer wants of its topics.

Source: RocketMQ 5.3.3, `FilterAPI.buildSubscriptionData`, `SubscriptionData`, `MixAll.getRetryTopic`.
"""

from collections.abc import Iterable, Mapping

from remoting.bodies.client import SubscriptionData
from remoting.java_hash import java_hash_code
from sprocket.client.errors import IllegalMessage
from sprocket.client.send_request import RETRY_PREFIX, check_group, check_topic

ALL = "*"


def retry_topic(group: str) -> str:
    """The topic through which messages of `group` come again."""
    return RETRY_PREFIX + group


def subscription(topic: str, expression: str, version_ms: int) -> SubscriptionData:
    """The subscription to `topic`; `expression` is ``*`` or tags with ``||`` between them.

    Raises IllegalMessage for an expression without a tag.
    """
    if expression.strip() in ("", ALL):
        return SubscriptionData(topic, ALL, sub_version=version_ms)
    tags = [tag.strip() for tag in expression.split("||") if tag.strip()]
    if not tags:
        raise IllegalMessage(f"topic {topic}: the expression {expression!r} names no tag; write '*' or 'A || B'")
    return SubscriptionData(
        topic, expression, tags_set=tags, code_set=[java_hash_code(tag) for tag in tags], sub_version=version_ms
    )


def subscriptions(
    group: str, topics: Mapping[str, str] | Iterable[str], version_ms: int, *, with_retry: bool
) -> dict[str, SubscriptionData]:
    """All subscriptions of a member of `group`, its retry topic among them unless it is broadcasting.

    Raises IllegalMessage.
    """
    check_group(group)
    expressions = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, ALL)
    table = {}
    for topic, expression in expressions.items():
        check_topic(topic)
        table[topic] = subscription(topic, expression, version_ms)
    if with_retry:
        table[retry_topic(group)] = subscription(retry_topic(group), ALL, version_ms)
    return table
