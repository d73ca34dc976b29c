"""Plans for a static topic: to create it, to give it more queues, to move queues to other brokers.

A plan is what every broker shall store.  Source: RocketMQ 5.3.3, `TopicQueueMappingUtils.createTopicConfigMapping`,
`remappingStaticTopic`, `blockSeqRoundUp`; `MQAdminUtils.completeNoTargetBrokers`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from enum import StrEnum
from typing import Final

import msgspec

from sprocket.common import limits
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import (
    UNDECIDED,
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from sprocket.static_topic.allocation import least_loaded, moves
from sprocket.static_topic.item_checks import MappingError
from sprocket.static_topic.logical_queues import (
    BrokerConfigs,
    Extent,
    LogicalQueue,
    all_queues,
    check_leaders,
    checked_extent,
    detail_of,
)

BLOCK_SEQ_SIZE: Final = 10_000
"""Logical offsets of a block; a new leader begins with a block of its own (`DEFAULT_BLOCK_SEQ_SIZE`)."""
EPOCH_STEP: Final = 1000
"""What an epoch has more than the one before, at least (`createTopicConfigMapping`)."""


class PlanType(StrEnum):
    """What a plan is for."""

    CREATE_OR_UPDATE = "CREATE_OR_UPDATE"
    REMAPPING = "REMAPPING"


class TopicRemappingDetailWrapper(msgspec.Struct, rename="camel"):
    """A plan, as files of RocketMQ's mqadmin have it: what each broker shall store, by broker name.

    A broker of `broker_to_map_in` gets logical queues, one of `broker_to_map_out` gives some away.
    """

    topic: str
    type: PlanType
    epoch: int
    broker_config_map: dict[str, TopicConfigAndQueueMapping]
    broker_to_map_in: list[str] = []
    broker_to_map_out: list[str] = []


def block_seq_round_up(offset: int, block_size: int = BLOCK_SEQ_SIZE) -> int:
    """Return where a new leader begins after `offset`: the next block, or the one after from half a block on.

    The rest of a block is for messages that the old leader may still be writing.
    """
    blocks, rest = divmod(offset, block_size)
    return (blocks + (1 if rest < block_size // 2 else 2)) * block_size


def current_plan(topic: str, configs: BrokerConfigs, now_ms: int) -> TopicRemappingDetailWrapper:
    """Return what brokers have now, as a plan.  Raises MappingError if they differ."""
    epoch = checked_extent(topic, configs).epoch if configs else now_ms
    return TopicRemappingDetailWrapper(topic, PlanType.CREATE_OR_UPDATE, epoch, deepcopy(dict(configs)))


def creation_plan(
    topic: str,
    queue_count: int,
    targets: Collection[str],
    configs: BrokerConfigs,
    *,
    now_ms: int,
    random: Callable[[], int],
) -> TopicRemappingDetailWrapper:
    """Return the plan for a topic with `queue_count` logical queues; the new ones go to the least loaded of `targets`.

    `configs` has what brokers have of the topic now; `random` returns any numbers; they choose among equal brokers.
    Raises MappingError if brokers differ, if a target is missing, or if the number of queues does not grow.
    """
    _check_targets(targets)
    if not 0 < queue_count <= limits.MAX_TOPIC_QUEUES:
        raise MappingError(f"{queue_count} queues: allowed are 1 to {limits.MAX_TOPIC_QUEUES}")
    known, extent = _known(topic, configs, now_ms) if configs else ({}, Extent(now_ms, 0))
    for broker, config in sorted(configs.items()):
        if detail_of(broker, config).hosted_queues and broker not in targets:
            raise MappingError(f"broker {broker} has queues of the topic: it must be among the target brokers")
    if queue_count <= len(known):
        raise MappingError(
            f"topic {topic} has {len(known)} queues: their number can only grow, not become {queue_count}"
        )
    planned = _with_offsets(configs, known)
    loads = Counter(dict.fromkeys(sorted(targets), 0))
    loads.update(queue.leader for queue in known.values())
    new = range(len(known), queue_count)
    for number, broker in zip(new, least_loaded(loads, len(new), lambda _: random()), strict=True):
        config = planned.setdefault(broker, empty_config(topic, broker))
        host(config, number, [new_item(config, broker, gen=0, logic_offset=0)])
    return _plan(topic, PlanType.CREATE_OR_UPDATE, planned, extent, queue_count, now_ms, [])


def remapping_plan(
    topic: str, targets: Collection[str], configs: BrokerConfigs, *, now_ms: int
) -> TopicRemappingDetailWrapper:
    """Return the plan for equal shares of the logical queues on `targets`, with as few moves as possible.

    Raises MappingError if brokers differ, or if an earlier remapping has not decided its offsets.
    """
    _check_targets(targets)
    known, extent = _known(topic, configs, now_ms)
    moved = moves({number: queue.leader for number, queue in known.items()}, sorted(targets))
    plan = _moving_plan(topic, moved, configs, known, extent, now_ms)
    check_leaders(all_queues(plan.broker_config_map).values(), targets)
    return plan


def drain_plan(
    topic: str, broker: str, targets: Collection[str], configs: BrokerConfigs, *, now_ms: int
) -> TopicRemappingDetailWrapper:
    """Return the plan that moves the logical queues of `broker` to the least loaded of `targets`; no others move.

    Raises MappingError if brokers differ, or if an earlier remapping has not decided its offsets.
    """
    _check_targets(targets)
    if broker in targets:
        raise MappingError(f"broker {broker} cannot take the queues that leave it")
    known, extent = _known(topic, configs, now_ms)
    leaving = [number for number, queue in sorted(known.items()) if queue.leader == broker]
    loads = Counter(dict.fromkeys(sorted(targets), 0))
    loads.update(queue.leader for queue in known.values() if queue.leader in targets)
    order = sorted(targets)
    moved = dict(zip(leaving, least_loaded(loads, len(leaving), order.index), strict=True))
    return _moving_plan(topic, moved, configs, known, extent, now_ms)


def _moving_plan(
    topic: str,
    moved: Mapping[int, str],
    configs: BrokerConfigs,
    known: Mapping[int, LogicalQueue],
    extent: Extent,
    now_ms: int,
) -> TopicRemappingDetailWrapper:
    """Return the plan that moves each logical queue of `moved` to its broker."""
    planned = _with_offsets(configs, known)
    for number, broker in moved.items():
        old = planned[known[number].leader]
        config = planned.setdefault(broker, empty_config(topic, broker))
        items = list(deepcopy(known[number].items))
        items.append(new_item(config, broker, gen=items[-1].gen + 1, logic_offset=UNDECIDED))
        host(config, number, items)
        detail_of(known[number].leader, old).hosted_queues[str(number)] = deepcopy(items)
    plan = _plan(topic, PlanType.REMAPPING, planned, extent, extent.total_queues, now_ms, sorted(set(moved.values())))
    plan.broker_to_map_out = sorted({known[number].leader for number in moved})
    return plan


def complete(plan: TopicRemappingDetailWrapper, clusters: Iterable[Collection[str]]) -> None:
    """Add the other brokers of the plan's clusters, which store the mapping, too (`completeNoTargetBrokers`)."""
    total = max(detail_of(*entry).total_queues for entry in plan.broker_config_map.items())
    others = {name for names in clusters if not plan.broker_config_map.keys().isdisjoint(names) for name in names}
    for broker in sorted(others - plan.broker_config_map.keys()):
        plan.broker_config_map[broker] = empty_config(plan.topic, broker, plan.epoch, total)


def check_plan(topic: str, plan: TopicRemappingDetailWrapper) -> None:
    """Raise MappingError if a plan from a file is not one for `topic`, or breaks a rule."""
    if plan.topic != topic:
        raise MappingError(f"the plan is for topic {plan.topic}, not for {topic}")
    extent = checked_extent(topic, plan.broker_config_map)
    if extent.epoch != plan.epoch:
        raise MappingError(f"the epoch of the plan is {plan.epoch}, that of its brokers is {extent.epoch}")
    all_queues(plan.broker_config_map)
    listed = {*plan.broker_to_map_in, *plan.broker_to_map_out}
    if unknown := sorted(listed - plan.broker_config_map.keys()):
        raise MappingError(f"the plan moves queues of broker {unknown[0]}, but does not say what it shall store")
    if both := sorted(set(plan.broker_to_map_in).intersection(plan.broker_to_map_out)):
        raise MappingError(f"broker {both[0]} gets and gives queues: a plan may do only one of them")


def _known(topic: str, configs: BrokerConfigs, now_ms: int) -> tuple[Mapping[int, LogicalQueue], Extent]:
    extent = checked_extent(topic, configs)
    queues = all_queues(configs)
    for queue in queues.values():
        if not queue.items[-1].is_decided:
            raise MappingError(
                f"logical queue {queue.id} has no offset yet: an earlier remapping has stopped; "
                f"repeat it with -mf and its file {topic}-{extent.epoch}.after"
            )
    return queues, extent


def _with_offsets(configs: BrokerConfigs, known: Mapping[int, LogicalQueue]) -> dict[str, TopicConfigAndQueueMapping]:
    """Return a copy of what brokers have, in which lists of former leaders have the offsets that were decided later.

    RocketMQ leaves them undecided.  When it later moves another queue from such a broker, it decides them again, and
    overwrites the list of the present leader.
    """
    planned = deepcopy(dict(configs))
    for broker, config in planned.items():
        for number, items in detail_of(broker, config).hosted_queues.items():
            if (queue := known.get(int(number))) is not None:
                decided = {item.gen: item.logic_offset for item in queue.items}
                for item in items:
                    item.logic_offset = decided.get(item.gen, item.logic_offset)
    return planned


def _plan(
    topic: str,
    plan_type: PlanType,
    planned: dict[str, TopicConfigAndQueueMapping],
    old: Extent,
    queue_count: int,
    now_ms: int,
    map_in: list[str],
) -> TopicRemappingDetailWrapper:
    epoch = max(old.epoch + EPOCH_STEP, now_ms)
    for broker, config in planned.items():
        detail = detail_of(broker, config)
        detail.epoch, detail.total_queues = epoch, queue_count
    checked_extent(topic, planned)
    all_queues(planned)
    return TopicRemappingDetailWrapper(topic, plan_type, epoch, planned, map_in)


def _check_targets(targets: Collection[str]) -> None:
    if not targets:
        raise MappingError("no target broker is given")


def empty_config(topic: str, broker: str, epoch: int = 0, total_queues: int = 0) -> TopicConfigAndQueueMapping:
    """Return what a broker without queues of the topic stores."""
    detail = TopicQueueMappingDetail(topic=topic, total_queues=total_queues, bname=broker, epoch=epoch)
    of_topic = TopicConfig(topic, 0, 0)
    return TopicConfigAndQueueMapping(**msgspec.structs.asdict(of_topic), mapping_detail=detail)


def new_item(config: TopicConfigAndQueueMapping, broker: str, *, gen: int, logic_offset: int) -> LogicQueueMappingItem:
    """Return an item on a physical queue that the broker gets for it."""
    item = LogicQueueMappingItem(gen, config.write_queue_nums, broker, logic_offset)
    config.write_queue_nums += 1
    config.read_queue_nums = max(config.read_queue_nums + 1, config.write_queue_nums)
    return item


def host(config: TopicConfigAndQueueMapping, number: int, items: list[LogicQueueMappingItem]) -> None:
    """Set the items of a logical queue in what a broker stores."""
    detail_of("", config).hosted_queues[str(number)] = items
