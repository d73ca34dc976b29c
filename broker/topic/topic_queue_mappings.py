"""Table of this broker's mappings of static topics, stored in ``config/topicQueueMapping.json``.

Source: RocketMQ 5.3.3, `TopicQueueMappingManager`.
"""

import logging
from collections import Counter
from collections.abc import Callable

import msgspec

from broker.config.versioned_table import EntryTable
from broker.plan.version import PlanVersion
from sprocket.common import limits
from sprocket.common.clock import Clock
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingDetail, TopicQueueMappingTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.static_topic.item_checks import MappingError, check_items, check_kept

logger = logging.getLogger(__name__)


class TopicQueueMappings(EntryTable[TopicQueueMappingDetail, TopicQueueMappingTable]):
    """Table of mappings: topic -> `TopicQueueMappingDetail`; a topic with an entry is static.

    A change is in memory at once; wait for `save` until it is in the file.  A change that cannot be written is undone.
    """

    def __init__(self, file: ConfigFile, clock: Clock, plan_version: PlanVersion) -> None:
        super().__init__(file, clock, TopicQueueMappingTable, plan_version)
        # Called with each topic whose mapping was set, once requests obey it.
        self.on_put: list[Callable[[str], None]] = []

    def decode(self, content: bytes) -> None:
        """Add the mappings of the file.  Raises ProtocolError."""
        table = loads(content, TopicQueueMappingTable)
        self._install(table)
        logger.info("event=topic_queue_mappings_loaded count=%d", len(table.topic_queue_mapping_info_map))

    def put(self, topic: str, detail: TopicQueueMappingDetail) -> None:
        """Set the mapping of a topic.  `merged` says which mapping may follow the present one."""
        self._set({topic: detail})
        for listener in self.on_put:
            listener(topic)

    def delete(self, topic: str) -> bool:
        """Remove a mapping; return whether there was one."""
        if topic not in self.by_name:
            return False
        self._set({topic: None})
        return True


def check_detail(detail: TopicQueueMappingDetail, topic: str, broker_name: str, write_queue_nums: int) -> None:
    """Raise MappingError if a broker with so many queues of the topic cannot have this mapping.

    Stricter than RocketMQ's broker, which leaves most of it to its tool (`checkPhysicalQueueConsistence`,
    `checkIfReusePhysicalQueue`).
    """
    if detail.topic != topic:
        raise MappingError(f"the mapping is that of topic {detail.topic}, not of {topic}")
    if detail.bname != broker_name:
        raise MappingError(f"the mapping is for broker {detail.bname}, not for {broker_name}")
    if detail.dirty:
        raise MappingError("the mapping is dirty")
    if not 0 <= detail.total_queues <= limits.MAX_TOPIC_QUEUES:
        raise MappingError(f"totalQueues = {detail.total_queues}: allowed are 0 to {limits.MAX_TOPIC_QUEUES}")
    for logical, items in detail.hosted_queues.items():
        if not (logical.isascii() and logical.isdigit() and len(logical) < 6 and str(int(logical)) == logical):
            raise MappingError(f"{logical[:20]!r} is not the id of a logical queue")
        if int(logical) >= detail.total_queues:
            raise MappingError(f"there is no logical queue {logical}: totalQueues = {detail.total_queues}")
        if not items:
            raise MappingError(f"the logical queue {logical} has no items")
        check_items(items)
    own = [item.queue_id for items in detail.hosted_queues.values() for item in items if item.bname == broker_name]
    if own and max(own) >= write_queue_nums:
        raise MappingError(f"queue {max(own)} is mapped, but writeQueueNums = {write_queue_nums}")
    queue_id, uses = next(iter(Counter(own).most_common(1)), (0, 0))
    if uses > 1:
        raise MappingError(f"queue {queue_id} is mapped {uses} times")


def merged(
    old: TopicQueueMappingDetail | None, new: TopicQueueMappingDetail, *, force: bool
) -> TopicQueueMappingDetail:
    """Return the mapping after `old`, once `new` was sent (`TopicQueueMappingManager.updateTopicQueueMapping`).

    Logical queues that only `old` has stay; with a new epoch that is allowed, because a broker keeps lists that it no
    longer leads.  With `force`, nothing else of `old` counts.  Raises MappingError for a change that is not allowed.
    """
    if old is None:
        return new
    if not force:
        _check_change(old, new)
    return msgspec.structs.replace(new, hosted_queues=old.hosted_queues | new.hosted_queues)


def _check_change(old: TopicQueueMappingDetail, new: TopicQueueMappingDetail) -> None:
    if new.epoch < old.epoch:
        raise MappingError(f"the epoch {new.epoch} is older than the present one, {old.epoch}; read the mapping again")
    if new.scope != old.scope:
        raise MappingError(f"the scope {new.scope} is not the present one, {old.scope}")
    epoch_equal = new.epoch == old.epoch
    for logical, items in old.hosted_queues.items():
        after = new.hosted_queues.get(logical)
        if after is not None:
            check_kept(items, after, epoch_equal=epoch_equal)
        elif epoch_equal:
            raise MappingError(f"the logical queue {logical} is missing, but the epoch is the same; send a new epoch")
