"""Static topics: how logical queues, numbered over a whole cluster, map to the physical queues of brokers.

A logical queue is a list of items, the oldest first.  Each item is a physical queue on one broker, and says at which
logical offset that queue begins.  The last item is the leader: only there are messages written.  Every broker of the
cluster stores a `TopicQueueMappingDetail` of the topic, also one without queues; the route shows its short form,
`TopicQueueMappingInfo`.

Source: RocketMQ 5.3.3, `LogicQueueMappingItem`, `TopicQueueMappingInfo`, `TopicQueueMappingDetail`,
`TopicConfigAndQueueMapping`, `TopicQueueMappingSerializeWrapper`; docs/cn/statictopic.
"""

import msgspec

from sprocket.remoting.bodies.topic import DataVersion, TopicConfig

SCOPE_GLOBAL = "__global__"
LOGICAL_BROKER = "__syslo__global__"
"""The broker name of a logical queue in clients (`MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX` and the scope)."""
NO_BROKER = "__syslo__none__"
"""The broker name of a logical queue that no broker leads (`MixAll.LOGICAL_QUEUE_MOCK_BROKER_NAME_NOT_EXIST`)."""
UNDECIDED = -1
"""A logic offset that is not known yet, and an end that is not reached."""


class LogicQueueMappingItem(msgspec.Struct, rename="camel"):
    """One physical queue of a logical queue; offsets count messages."""

    gen: int
    queue_id: int
    bname: str
    logic_offset: int  # the logical offset of `start_offset`; UNDECIDED while a remapping goes on
    start_offset: int = 0
    end_offset: int = UNDECIDED  # exclusive, once decided
    time_of_start: int = -1  # ms; reserved
    time_of_end: int = -1  # ms; reserved

    @property
    def is_decided(self) -> bool:
        """Whether the logical offset of the first message is known."""
        return self.logic_offset >= 0

    @property
    def is_ended(self) -> bool:
        """Whether the end is known; an empty item counts as open (`checkIfEndOffsetDecided`)."""
        return self.end_offset > self.start_offset

    @property
    def offset_delta(self) -> int:
        """What a logical offset has more than the physical one."""
        return self.logic_offset - self.start_offset

    @property
    def max_logical_offset(self) -> int:
        """The logical offset of the decided end; without one, that of the start."""
        return self.logic_offset + max(0, self.end_offset - self.start_offset)

    def logical(self, physical: int) -> int:
        """Return the logical offset, within the item; -1 while it is undecided (`computeStaticQueueOffsetLoosely`)."""
        if not self.is_decided:
            return UNDECIDED
        offset = max(physical, self.start_offset)
        if self.end_offset >= self.start_offset:
            offset = min(offset, self.end_offset)
        return offset + self.offset_delta

    def logical_open(self, physical: int) -> int:
        """Return the logical offset, without a bound at the end (`computeStaticQueueOffsetStrictly`)."""
        return max(physical, self.start_offset) + self.offset_delta

    def physical(self, logical: int) -> int:
        """Return the physical offset, which may be outside the item (`computePhysicalQueueOffset`)."""
        return logical - self.offset_delta


class TopicQueueMappingInfo(msgspec.Struct, rename="camel"):
    """Mapping of a static topic's logical queues to brokers, as far as a route shows it."""

    topic: str | None = None
    scope: str | None = SCOPE_GLOBAL
    total_queues: int = 0
    bname: str | None = None
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[str, int] | None = None


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """What one broker stores of a static topic; keys of `hosted_queues` are the ids of logical queues, as text."""

    hosted_queues: dict[str, list[LogicQueueMappingItem]] = {}

    def items(self, logical_id: int) -> list[LogicQueueMappingItem]:
        """Return the items of a logical queue, the oldest first; none if this broker never hosted it."""
        return self.hosted_queues.get(str(logical_id), [])

    def info(self) -> TopicQueueMappingInfo:
        """Return what is registered: the logical queues that this broker leads (`cloneAsMappingInfo`)."""
        leads = {
            logical: items[-1].queue_id
            for logical, items in self.hosted_queues.items()
            if items and items[-1].bname == self.bname
        }
        return TopicQueueMappingInfo(self.topic, self.scope, self.total_queues, self.bname, self.epoch, False, leads)


class TopicConfigAndQueueMapping(TopicConfig):
    """Answer to GET_TOPIC_CONFIG: a topic, and the mapping if it is static."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicQueueMappingTable(msgspec.Struct, rename="camel"):
    """Content of topicQueueMapping.json."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
