"""Static topics as an operator changes them: what brokers have, and plans that are carried out.

Source: RocketMQ 5.3.3, `MQAdminUtils`.  Different here: a plan whose execution stopped at any point can be carried out
again, because offsets that a broker has already been told are taken from there instead of being decided twice.
"""

from collections.abc import Callable, Collection, Iterable
from copy import deepcopy

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import MASTER_ID, ClusterInfo
from sprocket.remoting.bodies.stats import TopicStatsTable
from sprocket.remoting.bodies.topic_queue_mapping import TopicConfigAndQueueMapping
from sprocket.static_topic.item_checks import Items, MappingError
from sprocket.static_topic.logical_queues import detail_of
from sprocket.static_topic.plan import (
    BLOCK_SEQ_SIZE,
    TopicRemappingDetailWrapper,
    block_seq_round_up,
    check_plan,
    complete,
    creation_plan,
    remapping_plan,
)


class StaticTopics:
    """Static topics of the clusters that `admin` knows.  Every method raises AdminError and MappingError."""

    def __init__(self, admin: AdminClient, *, wall_ms: Callable[[], int], random: Callable[[], int]) -> None:
        """`wall_ms` is the time of epochs; `random` returns any numbers; they choose among equal brokers."""
        self._admin = admin
        self._wall_ms = wall_ms
        self._random = random

    async def targets(self, brokers: Iterable[str], clusters: Iterable[str]) -> list[str]:
        """Return the names of the brokers, and those in the clusters; AdminError for one without a master."""
        info = await self._admin.cluster_info()
        found = set(brokers)
        for cluster in clusters:
            if cluster not in info.cluster_addr_table:
                known = ", ".join(sorted(info.cluster_addr_table)) or "none"
                raise AdminError(f"cluster {cluster} is not known; known are: {known}")
            found.update(info.cluster_addr_table[cluster])
        _masters(info, found)
        return sorted(found)

    async def configs(self, topic: str) -> dict[str, TopicConfigAndQueueMapping]:
        """Return what each broker with a master has of a topic, by broker name (`examineTopicConfigAll`)."""
        found = {}
        for name, members in sorted((await self._admin.cluster_info()).broker_addr_table.items()):
            address = members.broker_addrs.get(MASTER_ID)
            config = None if address is None else await self._admin.topic_config(address, topic)
            if config is not None:
                found[name] = config
        return found

    async def creation(
        self, topic: str, queue_count: int, targets: Iterable[str], configs: dict[str, TopicConfigAndQueueMapping]
    ) -> TopicRemappingDetailWrapper:
        """Return the plan for a topic that has `configs` now; brokers with queues of it are targets, too."""
        hosting = {name for name, config in configs.items() if detail_of(name, config).hosted_queues}
        plan = creation_plan(
            topic, queue_count, hosting.union(targets), configs, now_ms=self._wall_ms(), random=self._random
        )
        return await self._completed(plan)

    async def remapping(
        self, topic: str, targets: Collection[str], configs: dict[str, TopicConfigAndQueueMapping]
    ) -> TopicRemappingDetailWrapper:
        """Return the plan that moves the queues of a topic that has `configs` now to `targets`."""
        return await self._completed(remapping_plan(topic, targets, configs, now_ms=self._wall_ms()))

    async def _completed(self, plan: TopicRemappingDetailWrapper) -> TopicRemappingDetailWrapper:
        complete(plan, (await self._admin.cluster_info()).cluster_addr_table.values())
        return plan

    async def create(self, topic: str, plan: TopicRemappingDetailWrapper, *, force: bool = False) -> None:
        """Tell every broker of the plan (`updateTopicConfigMappingAll`); nothing is sent if one has no master.

        `force` overwrites what a broker has.  A plan that moves queues is refused: nobody would decide their offsets.
        """
        check_plan(topic, plan)
        if plan.broker_to_map_in:
            raise MappingError("the plan moves queues: carry it out with remappingStaticTopic")
        masters = _masters(await self._admin.cluster_info(), plan.broker_config_map)
        await self._tell(plan, sorted(plan.broker_config_map), masters, force=force)

    async def remap(
        self,
        topic: str,
        plan: TopicRemappingDetailWrapper,
        *,
        force: bool = False,
        block_size: int = BLOCK_SEQ_SIZE,
    ) -> None:
        """Move queues in the five steps of `MQAdminUtils.remappingStaticTopic`; `block_size` is in logical offsets.

        Between two steps a queue always has at most one leader that takes messages under a known offset.
        """
        check_plan(topic, plan)
        plan = deepcopy(plan)
        masters = _masters(await self._admin.cluster_info(), plan.broker_config_map)
        await self._take_decided(plan, masters)
        map_in, map_out = sorted(plan.broker_to_map_in), sorted(plan.broker_to_map_out)
        # 1: the new leaders may be written, without a logical offset.
        await self._tell(plan, map_in, masters, force=force)
        # 2: the old leaders may not be written any more.
        await self._tell(plan, map_out, masters, force=force)
        # 3: the logical offsets follow from where the old leaders ended.
        for broker in map_out:
            _decide(plan, broker, await self._admin.broker_topic_stats(masters[broker], topic), block_size)
        # 4: the new leaders learn them.
        await self._tell(plan, map_in, masters, force=force)
        # 5: the other brokers learn the epoch.
        others = plan.broker_config_map.keys() - {*map_in, *map_out}
        await self._tell(plan, sorted(others), masters, force=force)

    async def _tell(
        self, plan: TopicRemappingDetailWrapper, brokers: Iterable[str], masters: dict[str, str], *, force: bool
    ) -> None:
        for broker in brokers:
            await self._admin.create_static_topic(masters[broker], plan.broker_config_map[broker], force=force)

    async def _take_decided(self, plan: TopicRemappingDetailWrapper, masters: dict[str, str]) -> None:
        """Take the offsets that an earlier execution of this plan has told new leaders."""
        for broker in plan.broker_to_map_in:
            known = await self._admin.topic_config(masters[broker], plan.topic)
            if known is None or known.mapping_detail is None or known.mapping_detail.epoch != plan.epoch:
                continue
            planned = detail_of(broker, plan.broker_config_map[broker])
            for number, items in planned.hosted_queues.items():
                told = {item.gen: item.logic_offset for item in known.mapping_detail.items(int(number))}
                for item in items:
                    if not item.is_decided:
                        item.logic_offset = told.get(item.gen, item.logic_offset)


def _masters(info: ClusterInfo, brokers: Iterable[str]) -> dict[str, str]:
    """Return the masters' addresses by broker name (`checkIfMasterAlive`).  Raises AdminError."""
    found = {}
    for broker in sorted(brokers):
        members = info.broker_addr_table.get(broker)
        address = None if members is None else members.broker_addrs.get(MASTER_ID)
        if address is None:
            raise AdminError(f"broker {broker} has no master that is registered; start it, then repeat the command")
        found[broker] = address
    return found


def _decide(plan: TopicRemappingDetailWrapper, broker: str, stats: TopicStatsTable, block_size: int) -> None:
    """Set the logical offsets of the queues that `broker` gives away, whose extents are in `stats`."""
    for number, items in detail_of(broker, plan.broker_config_map[broker]).hosted_queues.items():
        if len(items) < 2 or items[-1].is_decided or items[-2].bname != broker:
            continue
        leader = plan.broker_config_map.get(items[-1].bname)
        hosted = None if leader is None else detail_of(items[-1].bname, leader).hosted_queues.get(number)
        if hosted is None or hosted[-1].gen != items[-1].gen:
            raise MappingError(
                f"broker {items[-1].bname} shall lead logical queue {number}, but the plan does not say so"
            )
        if not hosted[-1].is_decided:
            hosted[-1].logic_offset = _begin(plan.topic, items, stats, block_size)
        items[-1].logic_offset = hosted[-1].logic_offset


def _begin(topic: str, items: Items, stats: TopicStatsTable, block_size: int) -> int:
    old = items[-2]
    extent = stats.offset_table.get(MessageQueue(topic, old.bname, old.queue_id))
    if extent is None or extent.max_offset < old.start_offset:
        shown = "unknown" if extent is None else extent.max_offset
        raise MappingError(f"the maximum offset of queue {old.queue_id} on broker {old.bname} is {shown}")
    return block_seq_round_up(old.logical_open(extent.max_offset), block_size)
