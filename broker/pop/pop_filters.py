"""Filters of pops, and the subscriptions that they imply, because pops need no heartbeat.

Source: RocketMQ 5.3.3, `PopMessageProcessor.processRequest`, `FilterAPI`, `ConsumerManager.compensateSubscribeData`.
"""

from functools import lru_cache
from typing import Final

from broker.filter.sql_filter import SQL92, SqlFilters
from broker.filter.subscription_filter import ALL, is_tag_type, tag_filter
from broker.filter.tokens import InvalidFilter
from broker.longpolling.held_pulls import PullFilter
from broker.plan.table import Refused
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import ResponseCode

# Filters and subscriptions of recent expressions are cached, so their size is bounded.
MAX_EXPRESSION_CHARS: Final = 32 * 1024


def pop_filter(sql: SqlFilters, expression: str, expression_type: str | None) -> PullFilter | Refused | None:
    """Return the filter of a pop, None for everything; a refusal of an invalid expression."""
    if len(expression) > MAX_EXPRESSION_CHARS:
        return _refused(f"the expression has {len(expression)} characters, allowed are {MAX_EXPRESSION_CHARS}")
    try:
        if is_tag_type(expression_type):
            return _tags(expression)
        if expression_type != SQL92:
            raise InvalidFilter(f"{expression_type!r:.40} is no type of filter")
        return sql.compiled(expression).record_filter()
    except InvalidFilter as error:
        return _refused(error.remark)


def subscriptions(
    topic: str, retry: str, expression: str, expression_type: str | None
) -> tuple[SubscriptionData, SubscriptionData]:
    """Return the subscriptions that a pop implies: to the topic, and to its retry topic."""
    return _subscription(topic, expression, expression_type), _subscription(retry, ALL, expression_type)


def _refused(why: str) -> Refused:
    return Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {why}")


@lru_cache(maxsize=1024)
def _tags(expression: str) -> PullFilter | None:
    if not expression.replace("||", ""):
        raise InvalidFilter("no tag between the separators")
    return tag_filter(expression)


@lru_cache(maxsize=1024)
def _subscription(topic: str, expression: str, expression_type: str | None) -> SubscriptionData:
    if not is_tag_type(expression_type):
        return SubscriptionData(topic, expression, expression_type=expression_type)
    tags = [] if expression == ALL else [tag.strip() for tag in expression.split("||") if tag.strip()]
    return SubscriptionData(topic, expression, tags_set=tags, code_set=[java_hash_code(tag) for tag in tags])
