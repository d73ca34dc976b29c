"""Figures of static topics: what brokers say of physical queues, as figures of logical queues.

Source: RocketMQ 5.3.3, `MQAdminUtils.convertPhysicalTopicStats`, `convertPhysicalConsumeStats`.  Different here: the
consumer's offset is translated, too.  RocketMQ shows it as it is on the broker, beside a logical maximum.
"""

from collections.abc import Collection, Mapping, Sequence

from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.stats import OffsetWrapper, TopicOffset
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER, LogicQueueMappingItem, TopicQueueMappingDetail
from sprocket.static_topic.logical_queues import leading_queues


def logical_extents(
    topic: str, details: Collection[TopicQueueMappingDetail], physical: Mapping[MessageQueue, TopicOffset]
) -> dict[MessageQueue, TopicOffset]:
    """Return the extent of each logical queue whose oldest and newest physical queue are in `physical`.

    Raises MappingError for details that cannot be.
    """
    found = {}
    for queue in leading_queues(details).values():
        decided = [item for item in queue.items if item.is_decided]
        if not decided:
            continue
        oldest, newest = decided[0], decided[-1]
        first, last = physical.get(_physical(topic, oldest)), physical.get(_physical(topic, newest))
        if first is not None and last is not None:
            found[MessageQueue(topic, LOGICAL_BROKER, queue.id)] = TopicOffset(
                min_offset=max(oldest.logical(first.min_offset), 0),
                max_offset=max(newest.logical_open(last.max_offset), 0),
                last_update_timestamp=last.last_update_timestamp,
            )
    return found


def logical_progress(
    topic: str, details: Collection[TopicQueueMappingDetail], physical: Mapping[MessageQueue, OffsetWrapper]
) -> dict[MessageQueue, OffsetWrapper]:
    """Return the progress of a group in each logical queue that it has consumed.

    Its offset is that on the newest physical queue where it has one.  Raises MappingError for details that cannot be.
    """
    found = {}
    for queue in leading_queues(details).values():
        progress = _progress(topic, queue.items, physical)
        if progress is not None:
            found[MessageQueue(topic, LOGICAL_BROKER, queue.id)] = progress
    return found


def _progress(
    topic: str, items: Sequence[LogicQueueMappingItem], physical: Mapping[MessageQueue, OffsetWrapper]
) -> OffsetWrapper | None:
    pairs = [
        (item, offsets)
        for item in reversed(items)
        if item.is_decided and (offsets := physical.get(_physical(topic, item))) is not None
    ]
    consumed = next(((item, offsets) for item, offsets in pairs if offsets.consumer_offset >= 0), None)
    if consumed is None:
        return None
    newest, last = pairs[0]
    item, offsets = consumed
    return OffsetWrapper(
        broker_offset=newest.logical_open(last.broker_offset),
        consumer_offset=item.logical_open(offsets.consumer_offset),
        pull_offset=item.logical_open(max(offsets.pull_offset, offsets.consumer_offset)),
        last_timestamp=offsets.last_timestamp,
    )


def _physical(topic: str, item: LogicQueueMappingItem) -> MessageQueue:
    return MessageQueue(topic, item.bname, item.queue_id)
