"""What a transport does at the cluster: topics, groups, offsets and sends.

Everything here runs in the loop of the connection.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.group_admin import TO_END, GroupAdmin
from sprocket.client.connect import Connection
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.common.clock import Clock
from sprocket.contrib.kombu.bindings import QueueBindings, publish_topic
from sprocket.contrib.kombu.names import group_of, topic_of
from sprocket.contrib.kombu.payload import Payload, encoded
from sprocket.contrib.topics import Topics
from sprocket.remoting.bodies.group import SubscriptionGroupConfig


@dataclass(frozen=True, slots=True)
class Naming:
    """Options of a transport: a prefix of all topics and groups, queues of a new topic, the cluster that has them."""

    prefix: str = ""
    topic_queue_nums: int = 8
    cluster: str | None = None


class Cluster:
    """The cluster of one connection of kombu."""

    def __init__(self, connection: Connection, naming: Naming, clock: Clock) -> None:
        self._mq = connection
        self._naming = naming
        self._clock = clock
        self._topics = Topics(connection.admin, clock, queue_nums=naming.topic_queue_nums, cluster=naming.cluster)
        self._with_priority: set[str] = set()
        # Group and topic of the queues that have an offset.
        self._begun: set[tuple[str, str]] = set()

    async def start(self) -> None:
        """Connect.  Raises AdminError if no name server answers, or the cluster has no broker."""
        await self._mq.start()
        await self._topics.masters()

    async def close(self) -> None:
        await self._mq.close()

    @property
    def _admin(self) -> AdminClient:
        return self._mq.admin

    # Topics

    async def _ensure_topic(self, topic: str, max_priority: int | None = None) -> None:
        if max_priority is not None:
            self._with_priority.add(topic)
        await self._topics.ensure(topic, max_priority)

    # Messages

    async def send(self, payload: Payload, exchange: str, routing_key: str) -> None:
        """Send to an exchange.  Raises as `Producer.send`, and AdminError."""
        known: Collection[str] = ()
        if not exchange and routing_key:
            own = publish_topic(routing_key, "", (), self._naming.prefix)
            known = {own} if await self._topics.exists(own) else ()
        topic = publish_topic(exchange, routing_key, known, self._naming.prefix)
        await self._ensure_topic(topic)
        has_priority = topic in self._with_priority
        message = encoded(topic, payload, routing_key, self._clock.wall_ms(), has_priority=has_priority)
        await self._mq.producer().send(message)

    def consumer(self, bindings: QueueBindings, settings: PopSettings) -> SimpleConsumer:
        """Return a new member of the queue's group, which begins with the oldest message if the group is new."""
        prefix = self._naming.prefix
        return self._mq.simple_consumer(
            group_of(bindings.queue, prefix), bindings.subscriptions(prefix), consume_from=ConsumeFrom.FIRST,
            settings=settings,
        )  # fmt: skip

    # Queues

    async def bind(
        self, bindings: QueueBindings, topics: Collection[str], *, from_now: bool, max_priority: int | None
    ) -> None:
        """Make `topics` exist for the queue; `from_now` lets a queue without an offset begin at their ends."""
        group = group_of(bindings.queue, self._naming.prefix)
        for topic in topics:
            # The default exchange is everybody's.
            is_own = topic != topic_of("", self._naming.prefix)
            await self._ensure_topic(topic, max_priority if is_own else None)
            if from_now and (group, topic) not in self._begun:
                if not await self._has_offset(group, topic):
                    await self._create_group(group)
                    await GroupAdmin(self._admin).commit_to_time(topic, group, TO_END)
                self._begun.add((group, topic))

    async def _create_group(self, group: str) -> None:
        for address in await self._topics.masters():
            if group not in (await self._admin.consumer_groups(address)).subscription_group_table:
                await self._admin.create_group(address, SubscriptionGroupConfig(group))

    async def _has_offset(self, group: str, topic: str) -> bool:
        # Without a topic only what the group has offsets of is listed.
        stats = await self._admin.consume_stats(group, route_topic=topic)
        return any(queue.topic == topic for queue in stats.offset_table)

    async def size(self, bindings: QueueBindings) -> int:
        """Return how many messages wait, with those of other routing keys of the same exchanges."""
        group = group_of(bindings.queue, self._naming.prefix)
        waiting = 0
        for topic in bindings.subscriptions(self._naming.prefix):
            if await self._topics.exists(topic):
                stats = await self._admin.consume_stats(group, topic)
                extents = (await self._admin.topic_stats(topic)).offset_table if not stats.offset_table else {}
                waiting += sum(one.broker_offset - max(one.consumer_offset, 0) for one in stats.offset_table.values())
                waiting += sum(one.max_offset - one.min_offset for one in extents.values())
        return waiting

    async def purge(self, bindings: QueueBindings) -> int:
        """Skip what waits; return how many messages that were."""
        waiting = await self.size(bindings)
        group = group_of(bindings.queue, self._naming.prefix)
        await self._create_group(group)
        for topic in bindings.subscriptions(self._naming.prefix):
            if await self._topics.exists(topic):
                await GroupAdmin(self._admin).commit_to_time(topic, group, TO_END)
        return waiting

    async def has_queue(self, queue: str) -> bool:
        """Return whether a broker knows the queue's group."""
        group = group_of(queue, self._naming.prefix)
        for address in await self._topics.masters():
            if group in (await self._admin.consumer_groups(address)).subscription_group_table:
                return True
        return False

    async def delete_queue(self, queue: str) -> None:
        """Delete the queue's group with its offsets; exchanges and their messages stay."""
        group = group_of(queue, self._naming.prefix)
        self._begun = {key for key in self._begun if key[0] != group}
        for address in await self._topics.masters():
            await self._admin.delete_group(address, group, with_offsets=True)
