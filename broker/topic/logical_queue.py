"""Logical queues of static topics, as the broker that leads them sees them.

Source: RocketMQ 5.3.3, `TopicQueueMappingContext`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.plan.table import Refused
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
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


def led_queue_ids(detail: TopicQueueMappingDetail) -> list[int]:
    """Return the ids of the logical queues that this broker leads."""
    return [int(logical) for logical in detail.info().curr_id_map or ()]
