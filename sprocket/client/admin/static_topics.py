"""Static topics as an operator changes them: what brokers have, and plans that are carried out.

Source: RocketMQ 5.3.3, `MQAdminUtils`.  Different here: a plan whose execution stopped at any point can be carried out
again, because offsets that a broker has already been told are taken from there instead of being decided twice.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from functools import partial

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.admin_requests import broker_names
from sprocket.client.connection.identity import random_number
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.route import ClusterInfo
from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem, TopicConfigAndQueueMapping
from sprocket.static_topic.item_checks import Items, MappingError
from sprocket.static_topic.logical_queues import BrokerConfigs, all_queues, detail_of
from sprocket.static_topic.plan import (
    BLOCK_SEQ_SIZE,
    TopicRemappingDetailWrapper,
    block_seq_round_up,
    check_plan,
    complete,
    creation_plan,
    drain_plan,
    remapping_plan,
)
from sprocket.static_topic.unfinished import finishing_plan, is_unfinished, trimming_plan

OnStep = Callable[[int], None]
"""Called with the number of each step of a move."""


class StaticTopics:
    """Static topics of the clusters that `admin` knows.  Every method raises AdminError and MappingError."""

    def __init__(self, admin: AdminClient, *, wall_ms: Callable[[], int], random: Callable[[], int]) -> None:
        """`wall_ms` is the time of epochs; `random` returns any numbers; they choose among equal brokers."""
        self._admin = admin
        self._wall_ms = wall_ms
        self._random = random

    @classmethod
    def of(cls, admin: AdminClient) -> "StaticTopics":
        """Return the static topics for `admin`, with the system's clock and random numbers."""
        return cls(admin, wall_ms=SystemClock().wall_ms, random=random_number)

    async def targets(self, brokers: Iterable[str], clusters: Iterable[str]) -> list[str]:
        """Return the names of the brokers, and those in the clusters; AdminError for one without a master."""
        info = await self._admin.cluster_info()
        found = set(brokers)
        for cluster in clusters:
            found.update(broker_names(info, cluster))
        masters_of(info, found)
        return sorted(found)

    async def configs(self, topic: str) -> dict[str, TopicConfigAndQueueMapping]:
        """Return what each broker with a master has of a topic, by broker name (`examineTopicConfigAll`)."""
        found = {}
        for name, address in (await self._admin.cluster_info()).masters().items():
            config = await self._admin.topic_config(address, topic)
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
        masters = masters_of(await self._admin.cluster_info(), plan.broker_config_map)
        await self._tell(plan, sorted(plan.broker_config_map), masters, force=force)

    async def remap(
        self, topic: str, plan: TopicRemappingDetailWrapper, *, force: bool = False, block_size: int = BLOCK_SEQ_SIZE,
        exact: bool = False, on_step: OnStep = lambda step: None,
    ) -> None:  # fmt: skip
        """Move queues in the five steps of `MQAdminUtils.remappingStaticTopic`; `block_size` is in logical offsets.

        Between two steps a queue always has at most one leader that takes messages under a known offset.  With `exact`
        it has no leader for a moment: new leaders learn of their queues when the old ones have ended, and their logical
        offsets follow without a gap.  `on_step` is called before each step.
        """
        check_plan(topic, plan)
        plan = deepcopy(plan)
        masters = masters_of(await self._admin.cluster_info(), plan.broker_config_map)
        await self._take_decided(plan, masters)
        map_in, map_out = sorted(plan.broker_to_map_in), sorted(plan.broker_to_map_out)
        if not exact:
            on_step(1)  # The new leaders may be written, without a logical offset.
            await self._tell(plan, map_in, masters, force=force)
        on_step(2)  # The old leaders may not be written any more.
        await self._tell(plan, map_out, masters, force=force)
        on_step(3)  # The logical offsets follow from where the old leaders ended.
        for broker in map_out:
            ends = await self._ends(topic, plan, broker, masters[broker], exact=exact)
            _decide(plan, broker, ends, _follow if exact else partial(block_seq_round_up, block_size=block_size))
        on_step(4)  # The new leaders learn them.
        await self._tell(plan, map_in, masters, force=force)
        # The other brokers learn the epoch; the old leaders the offsets, which RocketMQ's tool does not tell them.
        on_step(5)
        others = plan.broker_config_map.keys() - set(map_in)
        await self._tell(plan, sorted(others), masters, force=force)

    async def finish(self, topic: str, *, exact: bool = False, on_step: OnStep = lambda step: None) -> bool:
        """Finish a change that stopped half-way; return whether there was one.  All brokers must be registered."""
        configs = await self.configs(topic)
        is_static = any(config.mapping_detail is not None for config in configs.values())
        if not is_static or not is_unfinished(topic, configs):
            return False
        plan = finishing_plan(topic, configs, now_ms=self._wall_ms(), random=self._random)
        await self.remap(topic, await self._completed(plan), exact=exact, on_step=on_step)
        return True

    async def drain(
        self, topic: str, broker: str, targets: Collection[str], *, exact: bool = False,
        on_step: OnStep = lambda step: None,
    ) -> int:  # fmt: skip
        """Move the queues that `broker` leads to `targets`; return their number."""
        configs = await self.configs(topic)
        plan = drain_plan(topic, broker, targets, configs, now_ms=self._wall_ms())
        return await self._moved(topic, plan, configs, exact=exact, on_step=on_step)

    async def join(self, topic: str, broker: str, *, exact: bool = False, on_step: OnStep = lambda step: None) -> int:
        """Move an equal share of a topic's queues to `broker`; return their number."""
        configs = await self.configs(topic)
        leaders = {queue.leader for queue in all_queues(configs).values()}
        plan = remapping_plan(topic, {*leaders, broker}, configs, now_ms=self._wall_ms())
        return await self._moved(topic, plan, configs, exact=exact, on_step=on_step)

    async def _moved(
        self, topic: str, plan: TopicRemappingDetailWrapper, configs: BrokerConfigs, *, exact: bool, on_step: OnStep
    ) -> int:
        before = {number: queue.leader for number, queue in all_queues(configs).items()}
        after = {number: queue.leader for number, queue in all_queues(plan.broker_config_map).items()}
        count = sum(leader != after[number] for number, leader in before.items())
        if count:
            await self.remap(topic, await self._completed(plan), exact=exact, on_step=on_step)
        return count

    async def trim(self, topic: str, broker: str) -> None:
        """Remove the physical queues of `broker`, which leads none, from the topic: its messages are not read again."""
        configs = await self.configs(topic)
        plan = await self._completed(trimming_plan(topic, broker, configs, now_ms=self._wall_ms()))
        await self.create(topic, plan)

    async def _ends(
        self, topic: str, plan: TopicRemappingDetailWrapper, broker: str, address: str, *, exact: bool
    ) -> dict[int, int]:
        """Return where the queues ended that `broker` gives away, by queue id."""
        if not exact:
            table = (await self._admin.broker_topic_stats(address, topic)).offset_table
            return {queue.queue_id: extent.max_offset for queue, extent in table.items() if queue.broker_name == broker}
        ends = {}
        for _, items in _given_away(plan, broker):
            number = items[-2].queue_id
            # A message that waits for its flush is behind the end that consumers see, and before that of the queue.
            ends[number] = await self._admin.end_of_queue(address, topic, number, written=True)
        return ends

    async def _tell(
        self, plan: TopicRemappingDetailWrapper, brokers: Iterable[str], masters: dict[str, str], *, force: bool
    ) -> None:
        for broker in brokers:
            await self._admin.create_static_topic(masters[broker], plan.broker_config_map[broker], force=force)

    async def _take_decided(self, plan: TopicRemappingDetailWrapper, masters: dict[str, str]) -> None:
        """Take the offsets that an earlier execution of this plan has told brokers."""
        for broker in (*plan.broker_to_map_in, *plan.broker_to_map_out):
            known = await self._admin.topic_config(masters[broker], plan.topic)
            if known is None or known.mapping_detail is None or known.mapping_detail.epoch != plan.epoch:
                continue
            planned = detail_of(broker, plan.broker_config_map[broker])
            for number, items in planned.hosted_queues.items():
                told = {item.gen: item.logic_offset for item in known.mapping_detail.items(int(number))}
                for item in items:
                    if not item.is_decided:
                        item.logic_offset = told.get(item.gen, item.logic_offset)


def masters_of(info: ClusterInfo, brokers: Iterable[str]) -> dict[str, str]:
    """Return the masters' addresses by broker name (`checkIfMasterAlive`).  Raises AdminError."""
    found, masters = {}, info.masters()
    for broker in sorted(brokers):
        address = masters.get(broker)
        if address is None:
            raise AdminError(f"broker {broker} has no master that is registered; start it, then repeat the command")
        found[broker] = address
    return found


def _given_away(plan: TopicRemappingDetailWrapper, broker: str) -> Iterable[tuple[str, Items]]:
    """Yield the id and the items of each queue that `broker` gives away, whose next offset the plan does not have."""
    for number, items in detail_of(broker, plan.broker_config_map[broker]).hosted_queues.items():
        if len(items) >= 2 and not items[-1].is_decided and items[-2].bname == broker:
            yield number, items


def _follow(offset: int) -> int:
    return offset


def _decide(
    plan: TopicRemappingDetailWrapper, broker: str, ends: Mapping[int, int], begin: Callable[[int], int]
) -> None:
    """Set the logical offsets of the queues that `broker` gives away; `begin` returns the one after an end."""
    for number, items in _given_away(plan, broker):
        leader = plan.broker_config_map.get(items[-1].bname)
        hosted = None if leader is None else detail_of(items[-1].bname, leader).hosted_queues.get(number)
        if hosted is None or hosted[-1].gen != items[-1].gen:
            raise MappingError(
                f"broker {items[-1].bname} shall lead logical queue {number}, but the plan does not say so"
            )
        if not hosted[-1].is_decided:
            hosted[-1].logic_offset = _begin(items[-2], ends, begin)
        items[-1].logic_offset = hosted[-1].logic_offset


def _begin(old: LogicQueueMappingItem, ends: Mapping[int, int], begin: Callable[[int], int]) -> int:
    end = ends.get(old.queue_id)
    if end is None or end < old.start_offset:
        shown = "unknown" if end is None else end
        raise MappingError(f"the maximum offset of queue {old.queue_id} on broker {old.bname} is {shown}")
    # Logical offsets rise from item to item, also after a queue that had no message.
    return max(begin(old.logical_open(end)), old.max_logical_offset + 1)
