"""Filters of pops, and the subscriptions that they imply, because pops need no heartbeat.

Source: RocketMQ 5.3.3, `PopMessageProcessor.processRequest`, `FilterAPI`, `ConsumerManager.compensateSubscribeData`.
"""

from functools import lru_cache
from typing import Final

from broker.config.live_config import LiveConfig
from broker.filter.sql_filter import SQL92, compiled
from broker.filter.subscription_filter import ALL, TAG, is_tag_type, tag_filter
from broker.filter.tokens import InvalidExpression
from broker.longpolling.held_pulls import PullFilter
from broker.subscription.assumed_subscriptions import AssumedSubscriptions
from broker.topic.retry_topics import retry_topic
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.pop import PopMessageRequestHeader

# Filters and subscriptions of recent expressions are cached, so their size is bounded.
MAX_EXPRESSION_CHARS: Final = 32 * 1024


class PopFilters:
    """Filters of one broker's pops."""

    def __init__(self, config: LiveConfig, assumed: AssumedSubscriptions) -> None:
        self._config = config
        self._assumed = assumed

    def of(self, header: PopMessageRequestHeader) -> PullFilter | None:
        """Return the filter of a pop, None for everything; note what the group subscribes to.

        Raises RequestError for an invalid expression.
        """
        expression, expression_type = stated(header.exp, header.exp_type)
        matches = self.parsed(expression, expression_type)
        self._assumed.note(
            header.consumer_group,
            *self.subscriptions(header.topic, header.consumer_group, expression, expression_type),
        )
        return matches

    def parsed(self, expression: str, expression_type: str | None) -> PullFilter | None:
        """Return the filter that `of` returns.  Raises RequestError for an invalid expression."""
        if len(expression) > MAX_EXPRESSION_CHARS:
            why = f"the expression has {len(expression)} characters, allowed are {MAX_EXPRESSION_CHARS}"
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, _failed(why))
        try:
            return _filter(expression, expression_type)
        except InvalidExpression as error:
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, _failed(error.remark)) from None

    def subscriptions(
        self, topic: str, group: str, expression: str, expression_type: str | None
    ) -> tuple[SubscriptionData, SubscriptionData]:
        """Return the subscriptions that a pop implies: to the topic, and to its retry topic."""
        retry = retry_topic(topic, group, self._config.broker.enable_retry_topic_v2)
        return _subscription(topic, expression, expression_type), _subscription(retry, ALL, expression_type)


def stated(expression: str | None, expression_type: str | None) -> tuple[str, str | None]:
    """Return the expression of a pop and its type; a pop without an expression wants everything."""
    return (expression, expression_type) if expression else (ALL, TAG)


def _failed(why: str) -> str:
    return f"parse the consumer's subscription failed: {why}"


@lru_cache(maxsize=1024)
def _filter(expression: str, expression_type: str | None) -> PullFilter | None:
    if is_tag_type(expression_type):
        if not expression.replace("||", ""):
            raise InvalidExpression(1, "no tag between the separators")
        return tag_filter(expression)
    if expression_type != SQL92:
        raise InvalidExpression(1, f"{expression_type!r:.40} is no type of filter")
    sql = compiled(expression)
    return sql.record_filter()


@lru_cache(maxsize=1024)
def _subscription(topic: str, expression: str, expression_type: str | None) -> SubscriptionData:
    if not is_tag_type(expression_type):
        return SubscriptionData(topic, expression, expression_type=expression_type)
    tags = [] if expression == ALL else [tag.strip() for tag in expression.split("||") if tag.strip()]
    return SubscriptionData(topic, expression, tags_set=tags, code_set=[java_hash_code(tag) for tag in tags])
