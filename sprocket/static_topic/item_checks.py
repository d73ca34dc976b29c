"""The items of one logical queue: what makes a list valid, what a new list may change, and which item has an offset.

Source: RocketMQ 5.3.3, `TopicQueueMappingUtils`.  RocketMQ's broker runs with Java's assertions off, so that it accepts
some lists which `check_kept` refuses.
"""

from collections.abc import Sequence
from itertools import pairwise

from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.topic_queue_mapping import UNDECIDED, LogicQueueMappingItem

Items = Sequence[LogicQueueMappingItem]
"""The items of one logical queue, the oldest first."""


class MappingError(SprocketError):
    """A mapping of a static topic breaks a rule; the text says which."""


def check_items(items: Items) -> None:
    """Raise MappingError if these items cannot be one logical queue (`checkLogicQueueMappingItemOffset`)."""
    later: LogicQueueMappingItem | None = None
    for item in reversed(items):
        if item.start_offset < 0 or item.gen < 0 or item.queue_id < 0:
            raise MappingError(f"gen, queueId and startOffset must not be negative: {_shown(item)}")
        if item.end_offset != UNDECIDED and item.end_offset < item.start_offset:
            raise MappingError(f"the endOffset {item.end_offset} is below the startOffset {item.start_offset}")
        if later is not None:
            _check_order(item, later)
        later = item


def _check_order(item: LogicQueueMappingItem, later: LogicQueueMappingItem) -> None:
    if item.logic_offset < 0:
        raise MappingError(f"only the last item may have no logicOffset: {_shown(item)}")
    if item.gen >= later.gen:
        raise MappingError(f"gen must rise from item to item: {item.gen}, then {later.gen}")
    if later.logic_offset == UNDECIDED:
        return
    if item.logic_offset >= later.logic_offset:
        raise MappingError(f"logicOffset must rise from item to item: {item.logic_offset}, then {later.logic_offset}")
    if item.max_logical_offset >= later.logic_offset:
        raise MappingError(
            f"an item ends at the logical offset {item.max_logical_offset}, and the next begins at {later.logic_offset}"
        )


def check_kept(old: Items, new: Items, *, epoch_equal: bool) -> None:
    """Raise MappingError if a new list changes what an item says (`makeSureLogicQueueMappingItemImmutable`).

    Items may be missing in either list: a queue that returns to a broker has lost old ones there, and the cleaning
    removes the oldest.  A logicOffset may be set once.  With the same epoch, the leader must stay.
    """
    if not old:
        return
    if not new:
        raise MappingError("the new list of items is empty")
    known = {item.gen: item for item in old}
    for item in new:
        before = known.get(item.gen)
        if before is not None:
            _check_same(before, item)
    if epoch_equal and _place(old[-1]) != _place(new[-1]):
        raise MappingError(
            f"the leader differs, but the epoch is the same: {_shown(old[-1])}, not {_shown(new[-1])}; send a new epoch"
        )


def _check_same(before: LogicQueueMappingItem, item: LogicQueueMappingItem) -> None:
    if _place(before) != _place(item):
        raise MappingError(f"an item cannot change: {_shown(before)} to {_shown(item)}")
    if before.logic_offset not in (UNDECIDED, item.logic_offset):
        raise MappingError(
            f"a logicOffset is set once: {before.logic_offset} cannot become {item.logic_offset} in {_shown(item)}"
        )


def _place(item: LogicQueueMappingItem) -> tuple[int, str, int, int]:
    return item.gen, item.bname, item.queue_id, item.start_offset


def _shown(item: LogicQueueMappingItem) -> str:
    return f"gen {item.gen} in queue {item.queue_id} of {item.bname} from offset {item.start_offset}"


def find_item(items: Items, logical: int, *, decided: bool = True) -> LogicQueueMappingItem | None:
    """Return the item that covers a logical offset (`findLogicQueueMappingItem`); below all of them, the oldest.

    With `decided`, items without a logicOffset do not count.  None if no item is left.
    """
    counted = [item for item in items if not decided or item.is_decided]
    for item in reversed(counted):
        if logical >= item.logic_offset:
            return item
    return counted[0] if counted else None


def next_item(items: Items, current: LogicQueueMappingItem, *, decided: bool = True) -> LogicQueueMappingItem | None:
    """Return the item after this one (`findNext`); with `decided`, none if its logicOffset is not known yet."""
    for item, later in pairwise(items):
        if item.gen == current.gen and not (decided and not item.is_decided):
            return None if decided and not later.is_decided else later
    return None
