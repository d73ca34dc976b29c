"""Changes of a static topic that stopped half-way, and how to finish them from what brokers have alone.

A tool tells one broker after the other.  If it stops, brokers differ.  RocketMQ's tools then need the file of the plan;
here the newest lists of items say what the plan was, as far as it was begun.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy

from sprocket.remoting.bodies.topic_queue_mapping import UNDECIDED, LogicQueueMappingItem, TopicConfigAndQueueMapping
from sprocket.static_topic.allocation import least_loaded
from sprocket.static_topic.item_checks import Items, MappingError
from sprocket.static_topic.logical_queues import BrokerConfigs, all_queues, checked_extent, detail_of
from sprocket.static_topic.plan import (
    EPOCH_STEP,
    PlanType,
    TopicRemappingDetailWrapper,
    check_plan,
    host,
    new_item,
)


def is_unfinished(topic: str, configs: BrokerConfigs) -> bool:
    """Return whether brokers differ, or one of them does not know a logical offset that is, or shall be, decided."""
    try:
        checked_extent(topic, configs)
        queues = all_queues(configs)
    except MappingError:
        return True
    known = {(number, item.gen): item for number, queue in queues.items() for item in queue.items}
    return any(not queue.items[-1].is_decided for queue in queues.values()) or any(
        not item.is_decided and (int(number), item.gen) in known
        for broker, config in configs.items()
        for number, items in detail_of(broker, config).hosted_queues.items()
        for item in items
    )


def finishing_plan(
    topic: str, configs: BrokerConfigs, *, now_ms: int, random: Callable[[], int]
) -> TopicRemappingDetailWrapper:
    """Return the plan that makes brokers agree again on the newest state that any of them was told.

    A move is completed where a broker was told of it; other queues stay where they are.  New logical queues that no
    broker was told of go to the least loaded brokers; `random` chooses among equal ones.  Every broker of the topic
    must be in `configs`.  Raises MappingError for states that no stopped change explains.
    """
    details = {broker: detail_of(broker, config) for broker, config in configs.items()}
    if not details:
        raise MappingError(f"no broker has topic {topic}")
    for broker, detail in details.items():
        if detail.bname != broker or detail.topic != topic or detail.dirty:
            raise MappingError(f"the mapping of broker {broker} is not its own one of topic {topic}, or it is dirty")
    epoch = max(max(detail.epoch for detail in details.values()) + EPOCH_STEP, now_ms)
    total = max(detail.total_queues for detail in details.values())
    settled = min(detail.total_queues for detail in details.values() if detail.total_queues)
    newest = _newest(configs)
    if missing := [number for number in range(settled) if number not in newest]:
        raise MappingError(f"no broker leads the logical queue {missing[0]} of {settled}: start the broker that has it")
    planned = _with_newest(configs, newest)
    _add_missing(planned, newest, total, random)
    for broker, config in planned.items():
        detail = detail_of(broker, config)
        detail.epoch, detail.total_queues = epoch, total
    moving = [items for items in newest.values() if items[-1].logic_offset == UNDECIDED]
    if lost := next((items for items in moving if len(items) < 2), None):
        raise MappingError(f"queue {lost[-1].queue_id} of broker {lost[-1].bname} has no logical offset to begin at")
    plan = TopicRemappingDetailWrapper(
        topic, PlanType.REMAPPING, epoch, planned,
        sorted({items[-1].bname for items in moving}), sorted({items[-2].bname for items in moving}),
    )  # fmt: skip
    check_plan(topic, plan)
    return plan


def _newest(configs: BrokerConfigs) -> dict[int, list[LogicQueueMappingItem]]:
    """Return for each logical queue the list that was told last, with all offsets that any broker knows."""
    newest: dict[int, list[LogicQueueMappingItem]] = {}
    ranks: dict[int, tuple[int, bool, int]] = {}
    offsets: dict[tuple[int, int], int] = {}
    for broker, config in sorted(configs.items()):
        detail = detail_of(broker, config)
        for text, items in detail.hosted_queues.items():
            number, last = int(text), items[-1]
            for item in items:
                if item.is_decided:
                    offsets.setdefault((number, item.gen), item.logic_offset)
            known = newest.get(number)
            if known is not None and known[-1].gen == last.gen and known[-1].bname != last.bname:
                raise MappingError(
                    f"logical queue {number} has two leaders: brokers {known[-1].bname} and {last.bname}"
                )
            # A leader's own list may have lost old items on purpose.
            rank = last.gen, broker == last.bname, detail.epoch
            if known is None or rank > ranks[number]:
                newest[number], ranks[number] = items, rank
    newest = deepcopy(newest)
    for number, items in newest.items():
        for item in items:
            item.logic_offset = offsets.get((number, item.gen), item.logic_offset)
    return newest


def _with_newest(configs: BrokerConfigs, newest: Mapping[int, Items]) -> dict[str, TopicConfigAndQueueMapping]:
    """Return a copy of what brokers have, in which leaders have the newest lists, and nobody has an older leader."""
    planned = deepcopy(dict(configs))
    for broker, config in planned.items():
        for text, items in detail_of(broker, config).hosted_queues.items():
            now = newest[int(text)]
            decided = {item.gen: item.logic_offset for item in now}
            for each in items:
                each.logic_offset = decided.get(each.gen, each.logic_offset)
            if items[-1].gen < now[-1].gen and broker in (items[-1].bname, now[-2].bname):
                items[:] = deepcopy(list(now))
    for number, latest in newest.items():
        leader = latest[-1].bname
        if leader not in planned:
            raise MappingError(f"broker {leader} leads logical queue {number}, but has no master that is registered")
        config = planned[leader]
        host(config, number, deepcopy(list(latest)))
        config.write_queue_nums = max(config.write_queue_nums, latest[-1].queue_id + 1)
        config.read_queue_nums = max(config.read_queue_nums, config.write_queue_nums)
    return planned


def _add_missing(
    planned: dict[str, TopicConfigAndQueueMapping], newest: Mapping[int, Items], total: int, random: Callable[[], int]
) -> None:
    missing = [number for number in range(total) if number not in newest]
    loads = Counter(items[-1].bname for items in newest.values())
    for number, broker in zip(missing, least_loaded(loads, len(missing), lambda _: random()), strict=True):
        host(planned[broker], number, [new_item(planned[broker], broker, gen=0, logic_offset=0)])


def trimming_plan(topic: str, broker: str, configs: BrokerConfigs, *, now_ms: int) -> TopicRemappingDetailWrapper:
    """Return the plan without the physical queues of `broker`, which leads none any more: it may then be stopped.

    Their messages cannot be read any more.  Raises MappingError if it leads a queue, or if brokers differ.
    """
    extent = checked_extent(topic, configs)
    led = [number for number, queue in all_queues(configs).items() if queue.leader == broker]
    if led:
        raise MappingError(f"broker {broker} leads logical queue {min(led)}: move it first")
    planned = deepcopy(dict(configs))
    epoch = max(extent.epoch + EPOCH_STEP, now_ms)
    for name, config in planned.items():
        detail = detail_of(name, config)
        detail.epoch = epoch
        for items in detail.hosted_queues.values():
            items[:] = [item for item in items if item.bname != broker or item is items[-1]]
    plan = TopicRemappingDetailWrapper(topic, PlanType.CREATE_OR_UPDATE, epoch, planned)
    check_plan(topic, plan)
    return plan
