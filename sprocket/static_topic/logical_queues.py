"""The logical queues of a static topic over all brokers: each with the broker that leads it, and all its items.

Source: RocketMQ 5.3.3, `TopicQueueMappingOne`, `TopicQueueMappingUtils.checkAndBuildMappingItems` and its checks.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sprocket.common import limits
from sprocket.remoting.bodies.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from sprocket.static_topic.item_checks import MappingError, check_items

_MAX_DIGITS: Final = len(str(limits.MAX_TOPIC_QUEUES))


@dataclass(frozen=True)
class LogicalQueue:
    """One logical queue: its id, the broker that leads it, and its items from the leader's detail, the oldest first."""

    topic: str
    id: int
    leader: str
    items: Sequence[LogicQueueMappingItem]


class Extent(NamedTuple):
    """What the details of all brokers agree on."""

    epoch: int
    total_queues: int


BrokerConfigs = Mapping[str, TopicConfigAndQueueMapping]
"""What each broker has of a topic, by broker name."""


def detail_of(broker: str, config: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    """Return the mapping of a broker.  Raises MappingError for a topic that is not static there."""
    if config.mapping_detail is None:
        raise MappingError(f"topic {config.topic_name} is not static on broker {broker}: choose another name")
    return config.mapping_detail


def checked_extent(topic: str, configs: BrokerConfigs) -> Extent:
    """Return epoch and number of queues; raise MappingError if brokers differ (`checkNameEpochNumConsistence`)."""
    first: TopicQueueMappingDetail | None = None
    for broker, config in sorted(configs.items()):
        detail = detail_of(broker, config)
        if detail.bname != broker:
            raise MappingError(f"the mapping of broker {broker} names broker {detail.bname}")
        if detail.dirty:
            raise MappingError(f"the mapping of broker {broker} is dirty")
        if config.topic_name != topic or detail.topic != topic:
            found = config.topic_name if config.topic_name != topic else detail.topic
            raise MappingError(f"the mapping of broker {broker} is of topic {found}, not of {topic}")
        if first is None:
            first = detail
        for name, one, other in (
            ("scope", first.scope, detail.scope),
            ("epoch", first.epoch, detail.epoch),
            ("totalQueues", first.total_queues, detail.total_queues),
        ):
            if one != other:
                raise MappingError(
                    f"{name} differs: {one} on broker {first.bname}, {other} on broker {broker}; an earlier change may "
                    f"have stopped half-way: repeat it with -mf and its file {topic}-EPOCH.after"
                )
    if first is None:
        raise MappingError(f"no broker has topic {topic}")
    if not 0 <= first.total_queues <= limits.MAX_TOPIC_QUEUES:
        raise MappingError(f"totalQueues is {first.total_queues}, allowed are 0 to {limits.MAX_TOPIC_QUEUES}")
    return Extent(first.epoch, first.total_queues)


def leading_queues(details: Iterable[TopicQueueMappingDetail]) -> dict[int, LogicalQueue]:
    """Return the logical queues by id; of two leaders of one queue, that with the highest epoch.

    Raises MappingError for items that cannot be a queue, and for a physical queue that occurs twice.
    """
    queues: dict[int, LogicalQueue] = {}
    for detail in sorted(details, key=lambda detail: -detail.epoch):
        for queue in _led_by(detail):
            queues.setdefault(queue.id, queue)
    _check_no_reuse(queues.values())
    return queues


def all_queues(configs: BrokerConfigs) -> dict[int, LogicalQueue]:
    """Return the logical queues by id, which have one leader each and are complete.

    Raises MappingError as `leading_queues`, for a queue without a leader or with two, and for brokers whose numbers
    of physical queues do not fit (`checkPhysicalQueueConsistence`).
    """
    details = [detail_of(broker, config) for broker, config in configs.items()]
    queues = leading_queues(details)
    leaders: dict[int, str] = {}
    for detail in details:
        for queue in _led_by(detail):
            if queue.id in leaders:
                raise MappingError(
                    f"logical queue {queue.id} has two leaders: brokers {leaders[queue.id]} and {queue.leader}"
                )
            leaders[queue.id] = queue.leader
    total = max((detail.total_queues for detail in details), default=0)
    if missing := [number for number in range(total) if number not in queues]:
        raise MappingError(f"no broker leads the logical queue {missing[0]} of {total}")
    if len(queues) != total:
        raise MappingError(f"logical queue {max(queues)} is led, but there are only {total} queues")
    for broker, config in configs.items():
        _check_physical(broker, config, configs)
    return queues


def check_leaders(queues: Iterable[LogicalQueue], targets: Collection[str]) -> None:
    """Raise MappingError for a leader outside the target brokers (`checkLeaderInTargetBrokers`)."""
    for queue in queues:
        if queue.leader not in targets:
            raise MappingError(f"broker {queue.leader} leads logical queue {queue.id}, but is no target broker")


def _led_by(detail: TopicQueueMappingDetail) -> Iterable[LogicalQueue]:
    for text, items in detail.hosted_queues.items():
        if not text.isdecimal() or len(text) > _MAX_DIGITS or not items:
            raise MappingError(f"broker {detail.bname} has no valid items for logical queue {text!r}")
        check_items(items)
        if items[-1].bname == detail.bname:
            yield LogicalQueue(detail.topic or "", int(text), items[-1].bname, items)


def _check_no_reuse(queues: Iterable[LogicalQueue]) -> None:
    """Raise MappingError if a physical queue occurs twice (`checkIfReusePhysicalQueue`)."""
    users: dict[tuple[str, int], int] = {}
    for queue in queues:
        for item in queue.items:
            user = users.setdefault((item.bname, item.queue_id), queue.id)
            if user != queue.id or sum(_is_same(item, other) for other in queue.items) > 1:
                raise MappingError(
                    f"logical queues {user} and {queue.id} share queue {item.queue_id} of broker {item.bname}"
                )


def _is_same(item: LogicQueueMappingItem, other: LogicQueueMappingItem) -> bool:
    return item.bname == other.bname and item.queue_id == other.queue_id


def _check_physical(broker: str, config: TopicConfigAndQueueMapping, configs: BrokerConfigs) -> None:
    if config.read_queue_nums < config.write_queue_nums:
        raise MappingError(
            f"broker {broker} reads fewer queues ({config.read_queue_nums}) than it writes ({config.write_queue_nums})"
        )
    for items in detail_of(broker, config).hosted_queues.values():
        for item in items:
            if item.start_offset != 0:
                raise MappingError(f"queue {item.queue_id} of broker {item.bname} does not start at offset 0")
            if item.bname not in configs:
                raise MappingError(
                    f"an item of broker {broker} is on broker {item.bname}, which does not have the topic"
                )
            if item.queue_id >= (count := configs[item.bname].write_queue_nums):
                raise MappingError(f"broker {item.bname} has {count} queues of the topic, no queue {item.queue_id}")
