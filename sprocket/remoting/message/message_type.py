"""Type of a message, which its properties decide, and its priority.

Source: RocketMQ 5.5.1, `TopicMessageType.parseFromMessageProperty`, `Message.getPriority`.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from sprocket.remoting.message import properties as names

_DELAYS: Final = (names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS)
# The properties that decide.  The first one must be "true", and the others may have any value.
DECIDING: Final = (names.TRANSACTION_PREPARED, *_DELAYS, names.SHARDING_KEY, names.PRIORITY, names.LITE_TOPIC)
_JAVA_INT: Final = re.compile(r"[+-]?[0-9]{1,10}")
MAX_PRIORITY: Final = (1 << 31) - 1


class MessageType(StrEnum):
    """Type of a message; the first in this order that its properties name."""

    TRANSACTION = "TRANSACTION"
    DELAY = "DELAY"
    FIFO = "FIFO"
    PRIORITY = "PRIORITY"
    LITE = "LITE"
    NORMAL = "NORMAL"


def type_of(value_of: Callable[[str], str | None]) -> MessageType:
    """Return the type of a message; `value_of` returns the value of a property, None or nothing without one."""
    if (value_of(names.TRANSACTION_PREPARED) or "").lower() == "true":
        return MessageType.TRANSACTION
    if any(map(value_of, _DELAYS)):
        return MessageType.DELAY
    if value_of(names.SHARDING_KEY):
        return MessageType.FIFO
    if value_of(names.PRIORITY):
        return MessageType.PRIORITY
    return MessageType.LITE if value_of(names.LITE_TOPIC) else MessageType.NORMAL


def priority_of(text: str | None) -> int | None:
    """Return the priority that a property states, 0 or more; None for any other text."""
    if text is None or not _JAVA_INT.fullmatch(text):
        return None
    priority = int(text)
    return priority if 0 <= priority <= MAX_PRIORITY else None
