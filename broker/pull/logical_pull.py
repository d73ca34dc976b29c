"""Pulls of the logical queues of static topics: which physical queue serves one, and what its response then says.

Source: RocketMQ 5.3.3, `PullMessageProcessor.rewriteRequestForStaticTopic`, `rewriteResponseForStaticTopic`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from broker.longpolling.held_pulls import AnswerPull
from broker.pull.planner import COMMIT_OFFSET, SUSPEND
from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.static_topic.item_checks import find_item, next_item

_SUCCESS: Final = ResponseCode.SUCCESS
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND
_RETRY: Final = ResponseCode.PULL_RETRY_IMMEDIATELY
_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED


class Offsets(NamedTuple):
    """What the response to a pull says: the next offset, and the ends of the queue."""

    code: int
    next_begin: int
    min: int
    max: int


class LogicalOffsets(NamedTuple):
    """As `Offsets`, for the logical queue; the consumer adds `delta` to the offsets of the messages."""

    code: int
    next_begin: int
    min: int
    max: int
    delta: int


@dataclass(frozen=True, slots=True)
class LogicalPull:
    """Pull of a logical queue.

    `items` are those of the queue; `current` covers the offset, and `header` asks its physical queue.  `answer_held`
    gets the consumer's request once it was held long enough.
    """

    items: Sequence[LogicQueueMappingItem]
    current: LogicQueueMappingItem
    header: PullMessageRequestHeader
    answer_held: AnswerPull

    @property
    def is_at_leader(self) -> bool:
        """Whether new messages go to the physical queue that is read."""
        return self.current.gen == self.items[-1].gen

    def shown(self, found: Offsets) -> LogicalOffsets:
        """Return what the consumer gets for the response of the physical queue."""
        return logical_offsets(self.items, self.current, self.header.queue_offset, found)


def physical_header(
    header: PullMessageRequestHeader, items: Sequence[LogicQueueMappingItem], current: LogicQueueMappingItem, own: str
) -> PullMessageRequestHeader:
    """Return the header that asks the physical queue of `current`; broker `own` serves the pull.

    Another broker neither holds the pull nor commits an offset.  Here, the committed offset counts if it is one of the
    same physical queue.  (RocketMQ commits the logical offset for the physical queue.)
    """
    sys_flag, commit_offset = header.sys_flag, header.commit_offset
    if current.bname != own:
        sys_flag &= ~(SUSPEND | COMMIT_OFFSET)
    elif find_item(items, commit_offset) is current:
        commit_offset = max(0, current.physical(commit_offset))
    else:
        sys_flag &= ~COMMIT_OFFSET
    max_msg_nums = header.max_msg_nums
    if current.is_ended:
        max_msg_nums = max(0, min(max_msg_nums, current.end_offset - current.physical(header.queue_offset)))
    return msgspec.structs.replace(
        header, queue_id=current.queue_id, queue_offset=current.physical(header.queue_offset), sys_flag=sys_flag,
        commit_offset=commit_offset, max_msg_nums=max_msg_nums, lo=False, broker_name=current.bname,
    )  # fmt: skip


def logical_offsets(
    items: Sequence[LogicQueueMappingItem], current: LogicQueueMappingItem, requested: int, found: Offsets
) -> LogicalOffsets:
    """Translate what the physical queue of `current` answered to a pull from its offset `requested` on.

    Past the end of an older item, the consumer goes on at the start of the next one.  Below the oldest item its offset
    is moved; below another one, whose log was deleted in the meantime, it goes on at what is left.
    """
    code, next_begin, low, high = found
    item = current
    if code != _SUCCESS:
        if requested < low:
            next_begin = low
            code = _MOVED if find_item(items, 0) is current else _RETRY
        elif current.gen != items[-1].gen and requested >= high:
            later = next_item(items, current)
            if later is None:
                code = _NOT_FOUND  # the next item's logical offset is not known yet
            else:
                item, code = later, _RETRY
                next_begin = low = high = later.start_offset
    if item.is_ended:
        next_begin = min(next_begin, item.end_offset)
    return LogicalOffsets(
        int(code),
        item.logical_open(next_begin),
        item.logical_open(low),
        max(item.logical_open(high), items[-1].max_logical_offset),
        item.offset_delta,
    )
