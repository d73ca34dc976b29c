"""Attributes of groups.

Source: RocketMQ 5.5.1, `SubscriptionGroupAttributes`.  Those of lite topics are refused as unknown.
"""

from collections.abc import Mapping
from typing import Final

from broker.attributes import Attribute

_PRIORITY_FACTOR: Final = "priority.factor"
_ALWAYS: Final = 100


def _is_factor(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _ALWAYS


GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    _PRIORITY_FACTOR: Attribute(_is_factor, f"a number from 0 to {_ALWAYS}", True),
}


def priority_factor(attributes: Mapping[str, str]) -> int:
    """Return how many of 100 pops of a group obey priorities."""
    text = attributes.get(_PRIORITY_FACTOR, "")
    return int(text) if _is_factor(text) else _ALWAYS
