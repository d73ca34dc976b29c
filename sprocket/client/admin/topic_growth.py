"""Growth of a topic: more queues, without messages of one sharding key overtaking each other.

A key chooses its queue by its hash and the number of queues, so with more queues it may choose another one.  Then
messages in the new queue must not be read before those in the old one.  While the topic's attribute ``sharding.queues``
is set, brokers refuse sends whose key chose from another number of queues, and with 0 all sends with a key.  Growth
sets it to 0, waits until groups have read what was sent before, adds the queues, and sets it to the new number.
A stopped run goes on from what brokers have.

RocketMQ's updateTopic adds queues at once, and keys overtake.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from sprocket.client.admin.admin_client import ORDER_TOPIC_NAMESPACE, AdminClient, AdminError
from sprocket.client.admin.static_topics import StaticTopics, masters_of
from sprocket.client.answers import route_of
from sprocket.client.connection.topic_route import topic_route
from sprocket.client.connection.wakeup import pause
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.stats import OffsetWrapper
from sprocket.remoting.bodies.topic import PERM_WRITE, SHARDING_QUEUES, TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER, TopicConfigAndQueueMapping
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader
from sprocket.static_topic.logical_queues import all_queues

_LOOK_S: Final = 0.2
_CLOCK: Final = SystemClock()

Say = Callable[[str], None]


class GrowthEnded(AdminError):
    """The topic has not grown, because groups did not read to the end in time; producers go on as before."""


@dataclass(frozen=True)
class Limits:
    """When growth begins, and when it gives up: messages that groups lag at most, and seconds.

    `settle_s` is the time after which no producer has an older route.
    """

    max_lag: int = 1000
    lag_s: float = 600.0
    pause_s: float = 30.0
    settle_s: float = 60.0


@dataclass(frozen=True)
class Growing:
    """A topic on its brokers: their masters' addresses, and what they have of it, by name."""

    topic: str
    addresses: Mapping[str, str]
    configs: Mapping[str, TopicConfigAndQueueMapping]

    @property
    def is_static(self) -> bool:
        return any(config.mapping_detail is not None for config in self.configs.values())

    def has(self, queues: int) -> bool:
        """Whether it has so many queues: a static topic in all, another one on each broker."""
        if self.is_static:
            return all(each.mapping_detail and each.mapping_detail.total_queues == queues for each in self._all)
        return all(each.write_queue_nums == each.read_queue_nums == queues for each in self._all)

    @property
    def writable(self) -> set[str]:
        """Brokers that producers send to."""
        return {name for name, config in self.configs.items() if config.perm & PERM_WRITE}

    @property
    def largest(self) -> int:
        """The number of queues that the new one must not be below."""
        if self.is_static:
            return max((each.mapping_detail.total_queues for each in self._all if each.mapping_detail), default=0)
        return max(max(each.write_queue_nums, each.read_queue_nums) for each in self._all)

    @property
    def counts(self) -> list[str | None]:
        """The value of the attribute on each broker."""
        return [each.attributes.get(SHARDING_QUEUES) for each in self._all]

    @property
    def may_be_half_grown(self) -> bool:
        """Whether some brokers may have new queues already, of a run that stopped: the pause must not just end."""
        return any(self.counts) and len({each.write_queue_nums for each in self._all}) > 1

    @property
    def _all(self) -> Sequence[TopicConfigAndQueueMapping]:
        return list(self.configs.values())


class TopicGrowth:
    """Growth of topics.  Raises AdminError and MappingError; a repeated call goes on."""

    def __init__(
        self, admin: AdminClient, static: StaticTopics, say: Say, *, monotonic: Callable[[], float] = _CLOCK.monotonic,
        pause: Callable[[float], Awaitable[None]] = pause,
    ) -> None:  # fmt: skip
        """`monotonic` returns seconds, and `pause` waits for some."""
        self._admin = admin
        self._static = static
        self._say = say
        self._monotonic = monotonic
        self._pause = pause

    async def grow(self, topic: str, queues: int, limits: Limits, skipped_groups: Collection[str] = ()) -> None:
        """Give a topic `queues` queues: a static one in all, another one on each of its brokers."""
        if await self._static.finish(topic):
            self._say(f"{topic}: an earlier change, which had stopped half-way, is finished")
        growing = await self._look(topic)
        if growing.largest > queues:
            raise AdminError(f"topic {topic} has {growing.largest} queues: it can only grow, not have {queues}")
        if growing.has(queues) and not any(growing.counts):
            self._say(f"{topic}: it has {queues} queues")
            return
        if not growing.has(queues):
            try:
                await self._until_lag_is_small(growing, limits, skipped_groups)
                self._say(f"{topic}: messages with a sharding key wait")
                await self._set(growing, "0")
                await self._until_read(growing, limits, skipped_groups)
            except (Exception, asyncio.CancelledError):
                if growing.may_be_half_grown:
                    self._say(f"{topic}: messages with a sharding key wait until the command is repeated")
                else:
                    await self._give_up(growing)
                raise
            self._say(f"{topic}: queues are added")
            await self._add(growing, queues)
            growing = await self._look(topic)
        await self._set_order_conf(growing, queues)
        total = str(await self._shown_everywhere(growing, queues))
        if set(growing.counts) != {total}:
            self._say(f"{topic}: keys choose from {total} queues")
            await self._set(growing, total)
        self._say(f"{topic}: messages with a sharding key are taken; for {limits.settle_s:g} s old routes are refused")
        await self._pause(limits.settle_s)
        # Without a broker, keys choose from fewer queues; until it is back, the check keeps their order.
        await self._shown_everywhere(growing, queues)
        await self._set(growing, None)
        self._say(f"{topic}: it has {queues} queues")

    async def _look(self, topic: str) -> Growing:
        configs = await self._static.configs(topic)
        if not configs:
            raise AdminError(f"no broker has topic {topic}")
        addresses = masters_of(await self._admin.cluster_info(), configs)
        lost = set((await self._admin.topic_route(topic)).topic_queue_mapping_by_broker or {}) - configs.keys()
        if lost:
            raise AdminError(f"broker {min(lost)} has topic {topic}, but no master; start it, then repeat the command")
        return Growing(topic, addresses, configs)

    # Attribute

    async def _set(self, growing: Growing, count: str | None) -> None:
        """Set the attribute on every broker; None removes it."""
        for name, address in growing.addresses.items():
            now = await self._admin.topic_config(address, growing.topic)
            if now is None:
                raise AdminError(f"broker {name} has topic {growing.topic} no more")
            known = now.attributes.get(SHARDING_QUEUES)
            if known == count:
                continue
            change = {f"-{SHARDING_QUEUES}": ""} if count is None else {f"+{SHARDING_QUEUES}": count}
            config = TopicConfig(
                growing.topic, now.read_queue_nums, now.write_queue_nums, now.perm, now.topic_filter_type,
                now.topic_sys_flag, now.order, change,
            )  # fmt: skip
            await self._admin.create_topic(address, config)

    async def _give_up(self, growing: Growing) -> None:
        """Let producers go on as before, as far as brokers can be reached."""
        try:
            await self._set(growing, None)
            self._say(f"{growing.topic}: messages with a sharding key are taken as before")
        except AdminError as error:
            self._say(f"{growing.topic}: messages with a sharding key wait until the command is repeated: {error}")

    # Reading to the end

    async def _until_lag_is_small(self, growing: Growing, limits: Limits, skipped: Collection[str]) -> None:
        """Wait until the pause would be short; messages flow meanwhile."""
        await self._wait(
            growing, limits.max_lag, limits.lag_s, skipped,
            "its groups lag too much for a short pause; let them catch up, or leave them out with --skip-group",
        )  # fmt: skip

    async def _until_read(self, growing: Growing, limits: Limits, skipped: Collection[str]) -> None:
        await self._wait(
            growing, 0, limits.pause_s, skipped, "its groups did not read to the end in time; see --max-pause"
        )

    async def _wait(
        self, growing: Growing, max_lag: int, limit_s: float, skipped: Collection[str], failure: str
    ) -> None:
        """Wait until each group has at most `max_lag` messages to read before the present ends of the queues."""
        deadline = self._monotonic() + limit_s
        ends, shown = await self._ends(growing), ""
        while True:
            lags = await self._lags(growing, ends, skipped)
            behind = {group: lag for group, lag in lags.items() if lag > max_lag}
            if not behind:
                return
            text = ", ".join(f"group {group} has {lag} to read" for group, lag in sorted(behind.items()))
            if self._monotonic() >= deadline:
                raise GrowthEnded(f"topic {growing.topic} does not grow: {failure}: {text}")
            if text != shown:
                self._say(f"{growing.topic}: {text}")
                shown = text
            await self._pause(_LOOK_S)
            if max_lag:
                ends = await self._ends(growing)

    async def _ends(self, growing: Growing) -> dict[MessageQueue, int]:
        """Return the end of each queue as clients number them, with messages that wait for their flush."""
        topic, ends, end_of_queue = growing.topic, {}, self._admin.end_of_queue
        if growing.is_static:
            for number, queue in all_queues(growing.configs).items():
                last = queue.items[-1]
                end = await end_of_queue(growing.addresses[last.bname], topic, last.queue_id, written=True)
                ends[MessageQueue(topic, LOGICAL_BROKER, number)] = last.logical_open(end)
            return ends
        for name, config in growing.configs.items():
            for number in range(max(config.write_queue_nums, config.read_queue_nums)):
                address = growing.addresses[name]
                ends[MessageQueue(topic, name, number)] = await end_of_queue(address, topic, number, written=True)
        return ends

    async def _lags(
        self, growing: Growing, ends: Mapping[MessageQueue, int], skipped: Collection[str]
    ) -> dict[str, int]:
        lags = {}
        for group in await self._admin.groups_of_topic(growing.topic):
            if group not in skipped:
                at = (await self._admin.consume_stats(group, growing.topic)).offset_table
                lags[group] = sum(_behind(at.get(queue), end) for queue, end in ends.items())
        return lags

    # Queues

    async def _add(self, growing: Growing, queues: int) -> None:
        topic = growing.topic
        if growing.is_static:
            configs = await self._static.configs(topic)
            hosting = {queue.leader for queue in all_queues(configs).values()}
            await self._static.create(topic, await self._static.creation(topic, queues, hosting, configs))
            return
        for name, address in growing.addresses.items():
            config = replace(growing.configs[name], read_queue_nums=queues, write_queue_nums=queues, attributes={})
            await self._admin.create_topic(address, config)

    async def _set_order_conf(self, growing: Growing, queues: int) -> None:
        """Change the order configuration of a plain topic, if it has one: keys choose from the queues that it names."""
        topic = growing.topic
        if growing.is_static or not await self._admin.kv_config(ORDER_TOPIC_NAMESPACE, topic):
            return
        await self._admin.set_order_conf(topic, dict.fromkeys(growing.addresses, queues), whole=False)

    async def _shown_everywhere(self, growing: Growing, queues: int) -> int:
        """Wait until every name server shows the new queues; return the number that keys choose from."""
        while True:
            header = GetRouteInfoRequestHeader(topic=growing.topic, accept_standard_json_only=True)
            answers = await self._admin.ask_name_servers(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            routes: list[int | None] = []
            for answer in answers.values():
                if isinstance(answer, AdminError):
                    raise answer
                data = route_of(answer.body, growing.topic, AdminError)
                publish = topic_route(growing.topic, data).publish
                count = Counter(queue.broker_name for queue in publish)
                names = {LOGICAL_BROKER} if growing.is_static else growing.writable
                routes.append(len(publish) if all(count[name] == queues for name in names) else None)
            if routes and routes[0] is not None and set(routes) == {routes[0]}:
                return routes[0]
            await self._pause(_LOOK_S)


def _behind(offsets: OffsetWrapper | None, end: int) -> int:
    return max(0, end - (0 if offsets is None else max(0, offsets.consumer_offset)))
