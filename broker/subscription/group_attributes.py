"""Attributes of groups.

Source: RocketMQ 5.5.1, `SubscriptionGroupAttributes`, `LiteMetadataUtil`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.attributes import Attribute, one_of
from sprocket.remoting.message.lite_groups import (
    DEFAULT_CLIENT_QUOTA,
    LITE_BIND_TOPIC,
    LITE_CLIENT_QUOTA,
    lite_bind_topic,
)

_PRIORITY_FACTOR: Final = "priority.factor"
_ALWAYS: Final = 100
_LITE_SUB_MODEL: Final = "lite.sub.model"
_LITE_MAX_EVENTS: Final = "lite.sub.client.max.event.cnt"
_LITE_RESET_EXCLUSIVE: Final = "lite.sub.reset.offset.exclusive"
_LITE_RESET_UNSUBSCRIBE: Final = "lite.sub.reset.offset.unsubscribe"
_LITE_WILDCARD: Final = "lite.sub.wildcard"
_EXCLUSIVE: Final = "Exclusive"
_MIN_EVENTS: Final = 10


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _is_factor(text: str) -> bool:
    return _is_number(text) and int(text) <= _ALWAYS


def _is_quota(text: str) -> bool:
    return text == "-1" or _is_number(text)


def _is_event_count(text: str) -> bool:
    return _is_number(text) and int(text) >= _MIN_EVENTS


GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    _PRIORITY_FACTOR: Attribute(_is_factor, f"a number from 0 to {_ALWAYS}", True),
    LITE_BIND_TOPIC: Attribute(bool, "the name of a topic of type LITE", True),
    _LITE_SUB_MODEL: one_of("Shared", _EXCLUSIVE, changeable=True),
    LITE_CLIENT_QUOTA: Attribute(_is_quota, "a number, or -1", True),
    _LITE_MAX_EVENTS: Attribute(_is_event_count, f"a number from {_MIN_EVENTS}", True),
    _LITE_RESET_EXCLUSIVE: one_of("true", "false", changeable=True),
    _LITE_RESET_UNSUBSCRIBE: one_of("true", "false", changeable=True),
    _LITE_WILDCARD: one_of("true", changeable=True),
}


def priority_factor(attributes: Mapping[str, str]) -> int:
    """Return how many of 100 pops of a group obey priorities."""
    text = attributes.get(_PRIORITY_FACTOR, "")
    return int(text) if _is_factor(text) else _ALWAYS


@dataclass(frozen=True, slots=True)
class LiteGroup:
    """How a group consumes lite topics of `parent`; `max_events` None: as the broker's configuration says.

    In an exclusive group one client subscribes a lite topic at a time.  A client of a wildcard group has all of them.
    """

    parent: str
    is_exclusive: bool
    is_wildcard: bool
    client_quota: int | None  # None: no limit
    max_events: int | None
    resets_on_eviction: bool
    resets_on_unsubscribe: bool


def lite_group(attributes: Mapping[str, str]) -> LiteGroup | None:
    """Return how a group consumes lite topics; None if it does not."""
    parent = lite_bind_topic(attributes)
    if parent is None:
        return None
    quota, events = attributes.get(LITE_CLIENT_QUOTA, ""), attributes.get(_LITE_MAX_EVENTS, "")
    return LiteGroup(
        parent,
        is_exclusive=attributes.get(_LITE_SUB_MODEL) == _EXCLUSIVE,
        is_wildcard=_LITE_WILDCARD in attributes,
        client_quota=None if quota == "-1" else int(quota) if _is_number(quota) else DEFAULT_CLIENT_QUOTA,
        max_events=int(events) if _is_event_count(events) else None,
        resets_on_eviction=attributes.get(_LITE_RESET_EXCLUSIVE) == "true",
        resets_on_unsubscribe=attributes.get(_LITE_RESET_UNSUBSCRIBE) == "true",
    )
