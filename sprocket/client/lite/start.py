"""Where a subscriber of a lite topic begins.

Source: RocketMQ 5.5.1, `OffsetOption`, `LiteSubscriptionRegistryImpl.resetOffset`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from sprocket.client import arguments
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.remoting.bodies.lite import OffsetOption, OffsetOptionType

_POLICY_FIRST: Final = 1
_POLICY_END: Final = 2


@dataclass(frozen=True)
class Tail:
    """Start of a subscriber: `messages` before the position of its group, to read them once more.

    It has no effect for a group that has not read the lite topic yet.  Raises IllegalArgument for a negative number.
    """

    messages: int

    def __post_init__(self) -> None:
        arguments.whole("messages", self.messages, 0)


LiteStart: TypeAlias = ConsumeFrom | datetime | Tail | int


def offset_option(start: LiteStart | None) -> OffsetOption | None:
    """Return the form on the wire; None for None, which leaves the group where it is.  Raises IllegalArgument."""
    if start is None:
        return None
    if start is ConsumeFrom.FIRST:
        return OffsetOption(OffsetOptionType.POLICY, _POLICY_FIRST)
    if start is ConsumeFrom.LAST:
        return OffsetOption(OffsetOptionType.POLICY, _POLICY_END)
    if isinstance(start, datetime):
        return OffsetOption(OffsetOptionType.TIMESTAMP, arguments.moment_ms("start", start))
    if isinstance(start, Tail):
        return OffsetOption(OffsetOptionType.TAIL_N, start.messages)
    return OffsetOption(OffsetOptionType.OFFSET, arguments.whole("start", start, 0))
