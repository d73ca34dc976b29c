"""One direction of replication: finds the queues of the source, copies each, and keeps their checkpoints."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from replicate.cluster import Cluster, target_queue
from replicate.config import Config, LinkConfig
from replicate.group_offsets import GroupOffsets
from replicate.lease import RENEW_S, Lease
from replicate.protocol.copies import Copy, SourceQueue
from replicate.protocol.offset_map import NO_ECHOES
from replicate.protocol.position import Checkpoint
from replicate.protocol.read_ahead import AheadBudget
from replicate.protocol.steps import Pair, copies_messages, copies_offsets
from replicate.queue_copier import CopyRules, QueueCopier
from replicate.queue_source import GROUP, MAX_PULLS, QueueSource, bounds_of
from replicate.queue_target import QueueTarget
from replicate.rate_limit import RateLimit
from replicate.records import (
    Link,
    Record,
    Refused,
    first_checkpoints,
    first_key,
    link_key,
    newest_of,
    pair_in,
    queue_key,
    refused_key,
)
from sprocket.client.admin.at_once import AtOnce, Outcomes, check_all
from sprocket.client.connection.backoff import Backoff
from sprocket.client.connection.wakeup import pause
from sprocket.client.message import MessageQueue
from sprocket.client.typed.table import TABLE_GROUP
from sprocket.common.clock import Clock
from sprocket.common.errors import ClientError, ConfigError, SprocketError
from sprocket.remoting.bodies.topic import TopicConfig

logger = logging.getLogger(__name__)

K = TypeVar("K")
_DISCOVER_S: Final = 5.0
_RETRY_S: Final = 0.5
_MAX_RETRY_S: Final = 3.0
# Queues, and topics, for which requests are under way: a way of 80 ms is then not paid for each.
_QUEUES_AT_ONCE: Final = 128
_TOPICS_AT_ONCE: Final = 16


class ReplicationLink:
    """The link `config` of those in `links`; both clusters are started.

    `read` tells how far each of the links has read a queue.
    """

    def __init__(
        self, config: LinkConfig, source: Cluster, target: Cluster, owner: str, clock: Clock,
        links: Config, read: Callable[[SourceQueue], Sequence[Checkpoint]],
    ) -> None:  # fmt: skip
        self.config = config
        self.source = source
        self.target = target
        self.copiers: dict[SourceQueue, QueueCopier] = {}
        self.lease = Lease(target, source.name, owner, clock)
        self.offsets = GroupOffsets(config, links, source, target, self.copiers, read)
        self._clock = clock
        self._links = links
        # By cluster and broker.
        self._slots = defaultdict[tuple[str, str], asyncio.Semaphore](lambda: asyncio.Semaphore(MAX_PULLS))
        self._budget = AheadBudget(config.ahead_bytes, 2 * config.batch_bytes, lambda: len(self.copiers))
        self._saved: dict[SourceQueue, Checkpoint] = {}
        self._at_once = AtOnce(_QUEUES_AT_ONCE)
        self._holders: dict[str, MessageQueue] = {}  # a queue of the table at each broker
        self._unheld: dict[tuple[SourceQueue, str], Checkpoint] = {}  # what brokers are to hold yet
        self._failed: set[str] = set()  # brokers that took none of it
        self._troubles: dict[str, str] = {}  # by kind of work, so that each is logged when it changes
        limit = RateLimit(config.rate_bytes, clock, pause)
        self._rules = CopyRules(
            target=target.name, forwards=config.forward, batch_bytes=config.batch_bytes, compresses=config.compress,
            skips_refused=config.on_refused == "skip", admit=limit.admit, pause=pause, is_open=self.is_copying,
            refused=self._left_out, known=self._known, keep=self._keep, keeps_origins=not links.is_pair,
        )  # fmt: skip

    # State

    @property
    def pair(self) -> Pair | None:
        """State of the pair, None for a link without one."""
        return pair_in(self.source.name, self.target.name, self.source.records, self.target.records)

    def is_copying(self) -> bool:
        """Whether messages are copied now."""
        return self.lease.is_held and copies_messages(self.pair, self.source.name)

    # Work

    async def run(self) -> None:
        """Replicate until cancelled.  Raises ConfigError if another link makes this one wrong."""
        await self._until_done("open", self._open)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(RENEW_S, "lease", self._renew))
            group.create_task(self._every(_DISCOVER_S, "discover", lambda: self._discover(group)))
            group.create_task(self._every(_DISCOVER_S, "early checkpoints", self._hold_firsts))
            group.create_task(self._every(self.config.checkpoint_s, "checkpoint", self.save))
            group.create_task(self._every(self.config.offsets_s, "offsets", self._write_offsets))

    async def _until_done(self, kind: str, work: Callable[[], Awaitable[None]]) -> None:
        backoff = Backoff(_RETRY_S, _MAX_RETRY_S)
        while not await self._done(kind, work):
            await backoff.pause()

    async def _every(self, interval_s: float, kind: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._until_done(kind, work)
            await pause(interval_s)

    async def _done(self, kind: str, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except ConfigError:
            raise
        except (SprocketError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            if self._troubles.get(kind) != reason:
                self._troubles[kind] = reason
                logger.warning("event=replication_work_failed work=%s link=%s reason=%r", kind, self, reason)
            return False
        if self._troubles.pop(kind, None) is not None:
            logger.info("event=replication_work_recovered work=%s link=%s", kind, self)
        return True

    def __str__(self) -> str:
        return f"{self.source.name}>{self.target.name}"

    async def _open(self) -> None:
        await self._make_groups()
        await self.target.open_table(create=True)
        self._holders = await self.target.holders()
        await self.source.open_table(create=False)
        self._check_circle()
        key = link_key(self.source.name)
        known = self.target.records.get(key, Record()).link
        if known is None or known.forwards != self.config.forward:
            await self.target.put(key, Record(link=Link(self.source.name, self.config.forward, self.target.name)))
        await self._renew()

    async def _make_groups(self) -> None:
        await self.source.make_groups(GROUP, TABLE_GROUP)
        await self.target.make_groups(GROUP, TABLE_GROUP, self.lease.group)

    async def _renew(self) -> None:
        """Take or keep the lease, and say so to `status`."""
        await self.lease.renew()
        if self.lease.is_held:
            at_ms = self._clock.wall_ms()
            link = Link(
                self.source.name, self.config.forward, self.target.name, at_ms, self.lease.owner, self.offsets.unplaced
            )
            await self.target.post(link_key(self.source.name), Record(link=link))

    def _check_circle(self) -> None:
        """Refuse to forward copies to a cluster with several links: a message could come by two ways."""
        links = [record.link for record in self.target.records.values() if record.link is not None]
        others = [link for link in links if link.source != self.source.name]
        if others and (self.config.forward or any(link.forwards for link in others)):
            names = ", ".join(sorted({self.source.name, *(link.source for link in others)}))
            raise ConfigError(
                f"cluster {self.target.name} has links from {names}: a message could come by two ways; "
                "set forward = false for each of them"
            )

    # Queues

    async def _discover(self, group: asyncio.TaskGroup) -> None:
        """Start a copier for each queue that has none.  A topic or a queue that fails keeps no other one back."""
        if not self.lease.is_held:
            return
        await self.source.open_table(create=False)
        topics = await self.source.topics()
        new: dict[str, list[SourceQueue]] = {}
        for topic in filter(self.config.takes_topic, sorted(topics)):
            wanted = [
                SourceQueue(self.source.name, topic, broker_name, queue_id)
                for broker_name, config in sorted(topics[topic].items())
                for queue_id in range(config.read_queue_nums)
            ]
            if missing := [queue for queue in wanted if queue not in self.copiers]:
                new[topic] = missing
        if not new:
            return
        await self._make_groups()  # at brokers that came later
        firsts = first_checkpoints(self.target.records)

        async def begin(topic: str) -> None:
            await self._begin(topic, topics[topic], new[topic], firsts, group)

        check_all(await AtOnce(_TOPICS_AT_ONCE).each(new, begin))

    async def _begin(
        self, topic: str, by_broker: Mapping[str, TopicConfig], new: list[SourceQueue],
        firsts: Mapping[SourceQueue, Checkpoint], group: asyncio.TaskGroup,
    ) -> None:  # fmt: skip
        queues = await self.target.adopt_topic(topic, by_broker)
        await self.target.instance.refresh_route(topic)
        await self.source.instance.route(topic)

        async def begin(queue: SourceQueue) -> None:
            checkpoint = newest_of(self._known(queue), firsts.get(queue))
            if checkpoint is None:
                place = target_queue(queue.broker_name, queue.queue_id, by_broker, queues)
                checkpoint = await self._first(queue, *place)
            elif checkpoint.echo_end == NO_ECHOES:
                checkpoint = msgspec.structs.replace(checkpoint, echo_end=self._echo_end())
            for holder in self._holders:
                held = self.target.records.get(first_key(queue, holder), Record()).queue
                if held is None or held.epoch < checkpoint.epoch:
                    self._unheld[queue, holder] = checkpoint
                    with suppress(ClientError):  # later, so that one broker keeps no queue back
                        await self._hold_first((queue, holder))
            self._start(queue, checkpoint, group)

        check_all(await self._at_once.each(new, begin))

    async def _first(self, queue: SourceQueue, broker_name: str, queue_id: int) -> Checkpoint:
        """Write the first checkpoint of a queue, before its first message."""
        origin = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
        source = await bounds_of(self.source.instance, origin)
        target = await bounds_of(self.target.instance, MessageQueue(queue.topic, broker_name, queue_id))
        start = source.begin if self.config.start == "first" else source.end
        checkpoint = Checkpoint(
            broker_name, queue_id, start, start, target.end, source_end=source.end, at_ms=self._clock.wall_ms(),
            echo_end=self._echo_end(),
        )  # fmt: skip
        await self.target.post(queue_key(queue), Record(queue=checkpoint))
        return checkpoint

    def _known(self, queue: SourceQueue) -> Checkpoint | None:
        """Return the newest checkpoint of a queue that the table has; None if there is none."""
        keys = queue_key(queue), *(first_key(queue, holder) for holder in self._holders)
        return newest_of(*(self.target.records.get(key, Record()).queue for key in keys))

    async def _hold_firsts(self) -> None:
        """Let each broker of the target hold an early checkpoint of each queue, also one that came or came back."""
        if not self.lease.is_held:
            return
        before, self._holders = self._holders, await self.target.holders()
        for holder in self._holders.keys() - before:
            self._unheld |= {(queue, holder): copier.checkpoint for queue, copier in self.copiers.items()}
        self._unheld = {each: known for each, known in self._unheld.items() if each[1] in self._holders}
        self._failed.clear()
        await self._in_parts(list(self._unheld), self._hold_first)

    async def _hold_first(self, each: tuple[SourceQueue, str]) -> None:
        """Let a broker hold what it is to hold.  After a failure it is asked again at the next look."""
        queue, holder = each
        place, checkpoint = self._holders.get(holder), self._unheld.get(each)
        if place is None or checkpoint is None or holder in self._failed:
            return
        try:
            await self.target.post_at(place, first_key(queue, holder), Record(queue=checkpoint))
        except ClientError:
            self._failed.add(holder)
            raise
        self._unheld.pop(each, None)

    async def _keep(self, queue: SourceQueue, checkpoint: Checkpoint) -> None:
        """Write a checkpoint to all places, so that no replicator begins with an older one.  Raises ClientError."""
        for holder, place in self._holders.items():
            self._unheld.pop((queue, holder), None)
            await self.target.post_at(place, first_key(queue, holder), Record(queue=checkpoint))
        await self.target.post(queue_key(queue), Record(queue=checkpoint))

    def _echo_end(self) -> int:
        """Return where the first echo may lie; `NO_ECHOES` if no link leads back, of this replicator or another."""
        has_reverse = self._links.link(self.target.name, self.source.name) is not None
        return 0 if has_reverse or link_key(self.target.name) in self.source.records else NO_ECHOES

    def _start(self, queue: SourceQueue, checkpoint: Checkpoint, group: asyncio.TaskGroup) -> None:
        origin = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
        place = MessageQueue(queue.topic, checkpoint.target_broker, checkpoint.target_queue_id)
        source, copies = self._reader(self.source, origin), self._reader(self.target, place)
        target = QueueTarget(self.target.instance, place, self.config.send_timeout_s)
        copier = QueueCopier(queue, source, target, copies, checkpoint, self._rules, self._clock)
        self.copiers[queue] = copier
        self._saved[queue] = checkpoint
        group.create_task(_closing(copier.run(), source, copies))

    def _reader(self, cluster: Cluster, queue: MessageQueue) -> QueueSource:
        return QueueSource(cluster.instance, queue, self._budget, self._slots[cluster.name, queue.broker_name])

    async def _left_out(self, queue: SourceQueue, copy: Copy, reason: str) -> None:
        logger.error("event=message_refused queue=%s offset=%d reason=%r", queue, copy.offset, reason)
        refused = Refused(copy.check, reason[:500], self._clock.wall_ms())
        await self.target.put(refused_key(queue, copy.offset), Record(refused=refused))

    # Checkpoints

    async def save(self) -> None:
        """Write the checkpoints that have changed.  A replicator without the lease writes none."""
        await self._in_parts(list(self.copiers), self._save)

    async def _save(self, queue: SourceQueue) -> None:
        checkpoint = self.copiers[queue].checkpoint
        if msgspec.structs.replace(checkpoint, at_ms=self._saved[queue].at_ms) != self._saved[queue]:
            await self.target.post(queue_key(queue), Record(queue=checkpoint))
            self._saved[queue] = checkpoint

    async def _in_parts(self, keys: Sequence[K], write: Callable[[K], Awaitable[None]]) -> None:
        """Write records while this replicator has the lease.  Raises AdminError if one was not written."""
        outcomes = Outcomes[K, None]()
        for begin in range(0, len(keys), _QUEUES_AT_ONCE):
            if not self.lease.is_held:
                break
            outcomes |= await self._at_once.each(keys[begin : begin + _QUEUES_AT_ONCE], write)
        check_all(outcomes)

    async def _write_offsets(self) -> None:
        if self.lease.is_held and copies_offsets(self.pair, self.source.name):
            await self.offsets.write()


async def _closing(run: Coroutine[object, object, None], *readers: QueueSource) -> None:
    try:
        await run
    finally:
        for reader in readers:
            reader.close()
