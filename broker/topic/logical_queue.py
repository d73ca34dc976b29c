"""Logical queues of static topics, as the broker that leads them sees them.

Source: RocketMQ 5.3.3, `TopicQueueMappingContext`.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.plan.table import Refused
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
)
from sprocket.remoting.codes import ResponseCode

StaticTopics = Mapping[str, TopicQueueMappingDetail]
"""The mapping of each static topic, as `TopicQueueMappings.by_name`."""
NO_STATIC_TOPICS: Final[StaticTopics] = MappingProxyType({})


def led_items(detail: TopicQueueMappingDetail, queue_id: int) -> list[LogicQueueMappingItem] | Refused:
    """Return the items of a logical queue, the oldest first, if this broker leads it.  The last one is its own."""
    items = detail.items(queue_id)
    if items and items[-1].bname == detail.bname:
        return items
    remark = f"{detail.topic}-{queue_id} is not led by broker {detail.bname}, ask a name server which broker leads it"
    return Refused(ResponseCode.NOT_LEADER_FOR_QUEUE, remark, Reason.QUEUE_NOT_EXIST)


class OwnItem(NamedTuple):
    """A physical queue of this broker as an item of a logical queue; `items` are all that the broker knows."""

    logical_id: int
    items: Sequence[LogicQueueMappingItem]
    item: LogicQueueMappingItem

    @property
    def earlier(self) -> list[LogicQueueMappingItem]:
        """The items before this one, the oldest first."""
        return [other for other in self.items if other.gen < self.item.gen]


def own_item(detail: TopicQueueMappingDetail, queue_id: int) -> OwnItem | None:
    """Return the item that a physical queue of this broker is; None if it belongs to no logical queue."""
    for logical, items in detail.hosted_queues.items():
        for item in items:
            if (item.bname, item.queue_id) == (detail.bname, queue_id):
                return OwnItem(int(logical), items, item)
    return None


def led_queue_ids(detail: TopicQueueMappingDetail) -> list[int]:
    """Return the ids of the logical queues that this broker leads."""
    return [int(logical) for logical in detail.info().curr_id_map or ()]


def leaders_of(infos: Iterable[TopicQueueMappingInfo]) -> dict[str, str]:
    """Return the broker that leads each logical queue; of several, that with the highest epoch."""
    leaders: dict[str, str] = {}
    for info in sorted(infos, key=lambda info: info.epoch):
        leaders |= dict.fromkeys(info.curr_id_map or (), info.bname or "")
    return leaders
