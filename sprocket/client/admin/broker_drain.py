"""A broker that leaves a cluster, or joins it: queues of static topics move, and other topics are read to their end.

Every step can be repeated: what was done before a stop is seen from what brokers have.
RocketMQ has no such command.  Its operators combine wipeWritePerm, remappingStaticTopic and consumerProgress.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.admin_requests import none_if
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.admin.static_topics import StaticTopics
from sprocket.client.connection.wakeup import pause
from sprocket.client.schedules import Schedules
from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.stats import ConsumeStats, OffsetWrapper
from sprocket.remoting.bodies.topic import PERM_READ, PERM_WRITE
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER, LogicQueueMappingItem
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import GetConsumeStatsRequestHeader
from sprocket.remoting.headers.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from sprocket.remoting.message.topic_names import FORWARD_GROUP, FORWARD_TOPIC
from sprocket.static_topic.item_checks import next_item
from sprocket.static_topic.logical_queues import LogicalQueue, all_queues

Say = Callable[[str], None]
"""Called with each line of progress."""
_LOOK_S: Final = 1.0
_BOTH: Final = str(PERM_READ | PERM_WRITE)


@dataclass(frozen=True)
class Site:
    """A broker in its cluster: its master's address, and the other masters by name."""

    cluster: str
    broker: str
    address: str
    others: Mapping[str, str]


@dataclass(frozen=True)
class Remaining:
    """What a broker still has: messages that a group has yet to read, by group and topic; and messages that wait."""

    lags: Mapping[tuple[str, str], int]
    delayed: int

    @property
    def is_nothing(self) -> bool:
        return not self.lags and not self.delayed

    def text(self) -> str:
        """Return what is left, the largest lags first."""
        largest = sorted(self.lags.items(), key=lambda entry: -entry[1])
        parts = [f"group {group} has {count} to read in {topic}" for (group, topic), count in largest[:3]]
        if len(largest) > len(parts):
            parts.append(f"{len(largest) - len(parts)} more groups and topics")
        if self.delayed:
            parts.append(f"{self.delayed} delayed messages wait")
        return "; ".join(parts) or "nothing"


class BrokerDrain:
    """Drain and join of brokers.  Every method raises AdminError and MappingError; a repeated call goes on."""

    def __init__(self, admin: AdminClient, topics: StaticTopics, say: Say) -> None:
        self._admin = admin
        self._topics = topics
        self._say = say

    async def site(self, broker: str) -> Site:
        """Return a broker and its neighbours.  Raises AdminError if it is not there, or without a master."""
        info = await self._admin.cluster_info()
        cluster = next((name for name, names in info.cluster_addr_table.items() if broker in names), None)
        names = info.cluster_addr_table.get(cluster or "", ())
        masters = {name: address for name, address in info.masters().items() if name in names}
        if cluster is None or broker not in masters:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise AdminError(f"broker {broker} has no master that is registered; known brokers are: {known}")
        return Site(cluster, broker, masters.pop(broker), masters)

    async def move_away(self, site: Site, *, exact: bool) -> int:
        """Move the logical queues that the broker leads to the others of its cluster; return their number."""
        names, count = await self._static_topics(site), 0
        if names and not site.others:
            raise AdminError(f"no other broker of cluster {site.cluster} can take the queues of {site.broker}")
        for position, topic in enumerate(names, 1):
            await self._finish(topic, exact=exact)
            moved = await self._topics.drain(topic, site.broker, site.others, exact=exact, on_step=self._step(topic))
            count += moved
            if moved:
                self._say(f"[{position}/{len(names)}] {topic}: {_counted(moved, 'queue')} moved from {site.broker}")
        return count

    async def move_schedules(self, site: Site) -> None:
        """Move the broker's schedules to other masters of their topics, where they go on."""
        try:
            moved, stayed = await Schedules(self._admin).move_away(site.broker, site.address)
        except AdminError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # RocketMQ's broker has none
                raise
            return
        if moved or stayed:
            stay = f", {stayed} stay because no other broker takes their topics" if stayed else ""
            self._say(f"{_counted(moved, 'schedule')} moved from {site.broker}{stay}")

    async def take_share(self, site: Site, *, exact: bool, topics: Collection[str] = ()) -> int:
        """Move an equal share of each static topic, or of `topics`, to the broker; return the number of queues."""
        names, count = [name for name in await self._static_topics(site) if not topics or name in topics], 0
        if unknown := sorted(set(topics).difference(names)):
            raise AdminError(f"topic {unknown[0]} is no static topic of cluster {site.cluster}")
        for position, topic in enumerate(names, 1):
            await self._finish(topic, exact=exact)
            moved = await self._topics.join(topic, site.broker, exact=exact, on_step=self._step(topic))
            count += moved
            if moved:
                self._say(f"[{position}/{len(names)}] {topic}: {_counted(moved, 'queue')} moved to {site.broker}")
        return count

    async def _static_topics(self, site: Site) -> list[str]:
        found: set[str] = set()
        for address in (site.address, *site.others.values()):
            found.update(await self._admin.static_topic_names(address))
        return sorted(found)

    async def _finish(self, topic: str, *, exact: bool) -> None:
        if await self._topics.finish(topic, exact=exact, on_step=self._step(topic)):
            self._say(f"{topic}: an earlier change, which had stopped half-way, is finished")

    def _step(self, topic: str) -> Callable[[int], None]:
        return lambda step: self._say(f"{topic}: step {step} of 5")

    # Permission

    async def set_writable(self, site: Site, *, is_writable: bool) -> bool:
        """Let name servers show the broker's topics with write permission or without; return whether that changed."""
        now = (await self._admin.broker_config(site.address)).get("brokerPermission", _BOTH)
        wanted = int(now) | PERM_WRITE if is_writable else int(now) & ~PERM_WRITE
        if wanted == int(now):
            return False
        await self._admin.update_broker_config(site.address, {"brokerPermission": str(wanted)})
        return True

    # Reading to the end

    async def remaining(self, site: Site, skipped_groups: Collection[str] = ()) -> Remaining:
        """Return what groups have yet to read on the broker, without those in `skipped_groups`."""
        static = await self._admin.static_topic_names(site.address)
        lags: Counter[tuple[str, str]] = Counter()
        for by_group in (await GroupAdmin(self._admin).broker_consume_stats(site.address)).consume_stats_list:
            for group, tables in by_group.items():
                for table in tables:
                    for queue, offsets in by_queue(table.offset_table).items():
                        if queue.topic not in static:
                            lags[group, queue.topic] += _unread(offsets)
        for topic in static:
            lags.update(await self._static_lags(site.broker, topic))
        figures = await self._admin.broker_runtime_info(site.address)
        counted = {key: count for key, count in lags.items() if count and key[0] not in skipped_groups}
        return Remaining(counted, _delayed(figures) + await self._late(site.address))

    async def _late(self, address: str) -> int:
        """Return how many late messages of static topics the broker has yet to send to their present leaders."""
        header = GetConsumeStatsRequestHeader(consumer_group=FORWARD_GROUP, topic=FORWARD_TOPIC)
        stats = await self._admin.ask_body(address, RequestCode.GET_CONSUME_STATS, ConsumeStats[str], header)
        return sum(_unread(offsets) for offsets in stats.offset_table.values())

    async def _static_lags(self, broker: str, topic: str) -> dict[tuple[str, str], int]:
        """Return how many messages of a static topic each of its groups has yet to read on a broker."""
        items = list(_items_on(broker, await self._queues(topic)))
        if not items:
            return {}
        ends = (await self._admin.topic_stats(topic)).offset_table
        lags: Counter[tuple[str, str]] = Counter()
        for group in await self._admin.groups_of_topic(topic):
            progress = (await self._admin.consume_stats(group, topic)).offset_table
            for queue, item, later in items:
                extent = ends.get(MessageQueue(topic, broker, item.queue_id))
                at = progress.get(MessageQueue(topic, LOGICAL_BROKER, queue.id))
                offset = 0 if at is None else at.consumer_offset  # a group that has read none of the queue
                if extent is not None and (later is None or offset < later.logic_offset):
                    begin = max(offset, item.logical_open(extent.min_offset))
                    lags[group, topic] += max(0, item.logical_open(extent.max_offset) - begin)
        return lags

    async def _queues(self, topic: str) -> Mapping[int, LogicalQueue]:
        return all_queues(await self._topics.configs(topic))

    async def until_read(
        self, site: Site, *, skipped_groups: Collection[str], timeout_s: float | None, settle_s: float
    ) -> Remaining:
        """Wait until groups have read everything, but at least `settle_s`; return what is left after `timeout_s`.

        A producer whose route is older than the permission may still send, for one interval of its refreshes.
        """
        time = asyncio.get_running_loop().time
        began, shown = time(), ""
        while True:
            left = await self.remaining(site, skipped_groups)
            waited_s = time() - began
            is_read = left.is_nothing and waited_s >= settle_s
            if is_read or (timeout_s is not None and waited_s >= timeout_s):
                return left
            text = f"{site.broker}: {left.text()}" if not left.is_nothing else f"{site.broker}: everything is read"
            if text != shown:
                self._say(text)
                shown = text
            await pause(_LOOK_S)

    # Forgetting

    async def forget(self, site: Site) -> int:
        """Remove the broker's physical queues from static topics, once it leads none; return the number of topics.

        A group that has read them to their end gets its offset at the next broker of the queue, because the one on this
        broker cannot be asked for once it is stopped.
        """
        count = 0
        for topic in await self._static_topics(site):
            queues = await self._queues(topic)
            places = [(item, later) for _, item, later in _items_on(site.broker, queues) if later is not None]
            if not places:
                continue
            for group in await self._admin.groups_of_topic(topic):
                for item, later in places:
                    await self._hand_on(site, group, topic, item, later)
            await self._topics.trim(topic, site.broker)
            self._say(f"{topic}: the queues on {site.broker} are removed")
            count += 1
        return count

    async def _hand_on(
        self, site: Site, group: str, topic: str, item: LogicQueueMappingItem, later: LogicQueueMappingItem
    ) -> None:
        """Let a group that has an offset in `item`, and none in the item after it, begin there."""
        address = site.address if later.bname == site.broker else site.others.get(later.bname)
        if address is None:
            raise AdminError(
                f"broker {later.bname} has no master that is registered; start it, then repeat the command"
            )
        if await self._has_offset(site.address, group, topic, item.queue_id) and not await self._has_offset(
            address, group, topic, later.queue_id
        ):
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=group, topic=topic, queue_id=later.queue_id, commit_offset=later.start_offset, lo=False
            )
            await self._admin.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _has_offset(self, address: str, group: str, topic: str, queue_id: int) -> bool:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False, lo=False
        )
        answer = self._admin.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        return await none_if(ResponseCode.QUERY_NOT_FOUND, answer) is not None


def _items_on(
    broker: str, queues: Mapping[int, LogicalQueue]
) -> Iterable[tuple[LogicalQueue, LogicQueueMappingItem, LogicQueueMappingItem | None]]:
    """Yield each item on a broker with its queue and the item after it; None for that of a leader."""
    for queue in queues.values():
        for item in queue.items:
            if item.bname == broker:
                yield queue, item, next_item(queue.items, item)


def _unread(offsets: OffsetWrapper) -> int:
    return max(0, offsets.broker_offset - offsets.consumer_offset) if offsets.consumer_offset >= 0 else 0


def _delayed(figures: Mapping[str, str]) -> int:
    """Return the number of messages that wait for their time, by the figures of a broker."""
    names = ("timerCongestNum", "timerOffsetBehind", "lateMessagesWaiting")
    waiting = sum(int(figures[name]) for name in names if name in figures)
    for name, text in figures.items():
        if name.startswith("scheduleMessageOffset_"):
            delivered, _, end = text.partition(",")
            waiting += max(0, int(end or 0) - int(delivered))
    return waiting


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
