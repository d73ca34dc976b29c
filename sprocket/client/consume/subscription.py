"""Subscriptions of a consumer.

Source: RocketMQ 5.3.3, `FilterAPI.buildSubscriptionData`, `FilterAPI.build`, `MessageSelector`,
`SubscriptionData`, `MixAll.getRetryTopic`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sprocket.client import arguments
from sprocket.client.arguments import check_group, check_topic
from sprocket.client.errors import IllegalMessage
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.topic_names import retry_topic

ALL = "*"
_SQL92: Final = "SQL92"


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Filter of messages by their properties, in SQL92: ``SqlFilter("a > 5 AND region IN ('eu', 'us')")``.

    Brokers need enablePropertyFilter.
    """

    expression: str

    def __post_init__(self) -> None:
        """Raises IllegalArgument."""
        arguments.text("expression", self.expression)


# One topic, a list of topics, or an expression for each topic: ``*``, tags with ``||`` between them, or a SqlFilter.
Topics = str | Iterable[str] | Mapping[str, str | SqlFilter]


def is_sql(data: SubscriptionData) -> bool:
    """Return whether a subscription is by properties, not by tags."""
    return data.expression_type == _SQL92


def subscription(topic: str, expression: str | SqlFilter, version_ms: int) -> SubscriptionData:
    """Return the subscription to `topic`; `expression` is ``*``, tags with ``||`` between them, or a SqlFilter.

    Raises IllegalMessage for an expression without a tag, for one that no message can match, and for an empty filter.
    """
    if isinstance(expression, SqlFilter):
        if not expression.expression.strip():
            raise IllegalMessage(f"topic {topic}: the SQL92 filter is empty; write '*' to receive everything")
        return SubscriptionData(topic, expression.expression, sub_version=version_ms, expression_type=_SQL92)
    arguments.text(f"the expression of topic {topic}", expression, "pass '*', 'A || B' or a SqlFilter", IllegalMessage)
    if expression.strip() in ("", ALL):
        return SubscriptionData(topic, ALL, sub_version=version_ms)
    tags = [tag.strip() for tag in expression.split("||") if tag.strip()]
    if not tags:
        raise IllegalMessage(f"topic {topic}: the expression {expression!r} names no tag; write '*' or 'A || B'")
    if any("|" in tag for tag in tags):
        raise IllegalMessage(f"topic {topic}: '|' separates nothing in {expression!r}; write || between tags")
    return SubscriptionData(
        topic, expression, tags_set=tags, code_set=[java_hash_code(tag) for tag in tags], sub_version=version_ms
    )


def subscriptions(group: str, topics: Topics, version_ms: int, *, with_retry: bool) -> dict[str, SubscriptionData]:
    """Return all subscriptions of a member of `group`, with its retry topic unless it is broadcasting.

    Raises IllegalMessage.
    """
    check_group(group)
    expressions: Mapping[str, str | SqlFilter]
    expressions = topics if isinstance(topics, Mapping) else dict.fromkeys(arguments.names_of("topics", topics), ALL)
    table = {}
    for topic, expression in expressions.items():
        check_topic(topic)
        table[topic] = subscription(topic, expression, version_ms)
    if with_retry:
        table[retry_topic(group)] = subscription(retry_topic(group), ALL, version_ms)
    return table
