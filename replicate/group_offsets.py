"""Offsets of consumer groups, translated and written to the target.

A group that has consumers at the target is left alone, and no group moves backward.  A message that a group has not
consumed at the source is never skipped.  Messages that it has consumed since the last translation are repeated.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from replicate.cluster import Cluster
from replicate.config import Config, LinkConfig
from replicate.protocol.back import NO_LINK, Back
from replicate.protocol.copies import SourceQueue
from replicate.protocol.origins import Streams, moved
from replicate.protocol.position import Checkpoint
from replicate.queue_copier import QueueCopier
from replicate.records import Record, newest_of, queue_key, queue_of, uncounted
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.at_once import AtOnce, Outcomes, answered, check_all
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.common.errors import ClientError
from sprocket.common.next_turn import next_turn
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.stats import OffsetWrapper

logger = logging.getLogger(__name__)

# Requests under way: a way of 80 ms is then not paid for each group and queue.
_MAX_REQUESTS: Final = 64
# Queues of a group between two pauses, in which the loop serves others.
_QUEUES_AT_ONCE: Final = 50
# Offsets that are written before the next ones are begun: to begin 16,000 at once holds the loop for 50 ms.
_OFFSETS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """Offset of a group in one queue: at the source, and what is written to the target."""

    group: str
    queue: SourceQueue
    source_offset: int
    target_queue: MessageQueue
    target_offset: int

    def __str__(self) -> str:
        return f"group {self.group} in {self.target_queue}"


class _Here(NamedTuple):
    """A queue of the source, and where a group goes on in it."""

    queue: SourceQueue
    offsets: OffsetWrapper
    checkpoint: Checkpoint

    @property
    def translated(self) -> int:
        """The offset in the target by the map alone."""
        return self.checkpoint.map.translate(self.offsets.consumer_offset)


class GroupOffsets:
    """Writer of the offsets of the link `config` of those in `links`.

    `read` tells how far each of the links has read a queue; without it that is what the source knows of the link back.
    """

    def __init__(
        self, config: LinkConfig, links: Config, source: Cluster, target: Cluster,
        copiers: Mapping[SourceQueue, QueueCopier], read: Callable[[SourceQueue], Sequence[Checkpoint]] | None = None,
    ) -> None:  # fmt: skip
        self._config = config
        self._links = links
        self._source = source
        self._target = target
        self._copiers = copiers
        self._read = read or self._read_back
        self._written: dict[tuple[str, MessageQueue], int] = {}
        self._places: dict[tuple[str, MessageQueue], tuple[object, int | None]] = {}  # and what they follow from
        self._without_place: set[str] = set()
        self.unplaced = 0  # groups whose place in a queue of the target was not known at the last look
        self._back = Back()

    async def write(self) -> None:
        """Write what has changed.  A group or a broker that fails keeps no other one back.  Raises ClientError."""
        self._check_sources()
        at_once = AtOnce(_MAX_REQUESTS)
        self._look_back()
        sources = await self._source_addresses()
        groups = await self._groups(sources)
        self._without_place.clear()
        found = await at_once.each(sorted(groups), lambda group: self._changed(group, sources))
        self.unplaced = len(self._without_place)
        changed = {group: offsets for group, offsets in answered(found).items() if offsets}
        if changed:
            masters = await self._target.masters()
            tables = await at_once.each(masters.values(), self._target.admin.consumer_groups)
            known = answered(tables)

            async def prepared(group: str) -> Sequence[TranslatedOffset]:
                """Return what may be written; the group is at each broker then."""
                if await _is_online(self._target.admin, group):
                    return ()
                for broker, table in known.items():
                    if group not in table.subscription_group_table:
                        await self._target.admin.create_group(broker, groups[group])
                return changed[group]

            ready = await at_once.each(changed, prepared)
            offsets = [one for group in answered(ready).values() for one in group]
            written = Outcomes[TranslatedOffset, None]()
            for begin in range(0, len(offsets), _OFFSETS_AT_ONCE):
                part = offsets[begin : begin + _OFFSETS_AT_ONCE]
                done = await at_once.each(part, lambda one: self._commit(one, masters))
                written |= done
                if len(known) == len(tables):
                    # Else a broker may lack a group: these come again.
                    self._written |= {(one.group, one.target_queue): one.target_offset for one in answered(done)}
            check_all(tables)
            check_all(ready)
            check_all(written)
        check_all(found)

    async def all_translated(self) -> list[TranslatedOffset]:
        """Return the offsets of all groups of the link.  Raises AdminError."""
        self._look_back()
        sources = await self._source_addresses()
        groups = sorted(await self._groups(sources))
        outcomes = await AtOnce(_MAX_REQUESTS).each(groups, lambda group: self._translated(group, sources))
        check_all(outcomes)
        return [one for found in answered(outcomes).values() for one in found]

    async def _changed(self, group: str, sources: Collection[str]) -> Sequence[TranslatedOffset]:
        return [
            one for one in await self._translated(group, sources)
            if self._written.get((group, one.target_queue)) != one.target_offset
        ]  # fmt: skip

    async def _translated(self, group: str, sources: Collection[str]) -> list[TranslatedOffset]:
        """Return the offsets of a group in the queues of the link.  Raises AdminError."""
        # All masters are asked: a group that only pulls may have no retry topic, whose route would name them.
        stats = await self._source.admin.consume_stats(group, brokers=sources)
        by_target: dict[MessageQueue, list[_Here]] = {}
        for number, (place, offsets) in enumerate(stats.offset_table.items(), 1):
            queue = SourceQueue(self._source.name, place.topic, place.broker_name, place.queue_id)
            found = self._place_of(queue)
            if found is not None and offsets.consumer_offset >= 0:
                target, checkpoint = found
                by_target.setdefault(target, []).append(_Here(queue, offsets, checkpoint))
            await _pause_after(number)
        known: list[TranslatedOffset] = []
        for number, (target, here) in enumerate(by_target.items(), 1):
            offset = self._moved(group, here, target)
            if offset is None:
                self._without_place.add(group)
            else:
                lowest = min(here, key=lambda one: one.translated)
                known.append(TranslatedOffset(group, lowest.queue, lowest.offsets.consumer_offset, target, offset))
            await _pause_after(number)
        return known

    def _moved(self, group: str, here: Sequence[_Here], target: MessageQueue) -> int | None:
        """Return where a group goes on in a queue of the target; None if that is not known."""
        if self._links.is_pair:
            return min(min(one.translated, self._limit(one)) for one in here)
        if self._links.is_one_way(self._source.name, self._target.name, target.topic):
            return min(one.translated for one in here)
        read = self._read(SourceQueue(self._target.name, target.topic, target.broker_name, target.queue_id))
        newest = newest_of(*read)
        # One of an older epoch may have read messages that the target has lost since.
        there = [one.streams for one in read if newest is not None and one.epoch == newest.epoch]
        facts = [(one.checkpoint.streams, one.offsets.consumer_offset) for one in here], there
        before, place = self._places.get((group, target), (None, None))
        if before != facts:
            place = self._placed(*facts, target.topic)
            self._places[group, target] = facts, place
        return place

    def _placed(
        self, here: Sequence[tuple[Streams | None, int]], there: Sequence[Streams | None], topic: str
    ) -> int | None:
        """Return the highest place by what any link has read: by none of them a group skips a message."""
        known = [(streams, offset) for streams, offset in here if streams is not None]
        if len(known) < len(here):
            return None
        clusters = self._links.origins(self._source.name, topic)
        places = [moved(known, streams, clusters) for streams in there if streams is not None]
        return max((place for place in places if place is not None), default=None)

    def _limit(self, one: _Here) -> int:
        return self._back.limit(one.queue, one.offsets.broker_offset, one.checkpoint.next_offset)

    def _check_sources(self) -> None:
        """Refuse offsets that would not count what the source gets by links of another configuration."""
        now_ms = self._source.instance.clock.wall_ms()
        others = uncounted(self._source.records, self._links, self._source.name, self._target.name, now_ms)
        if others:
            raise ClientError(
                f"no offsets are written: {self._source.name} also gets messages of {', '.join(others)}, which they "
                "would not count; write all links into one configuration"
            )

    async def _source_addresses(self) -> Collection[str]:
        return (await self._source.masters()).values()

    async def _groups(self, sources: Collection[str]) -> dict[str, SubscriptionGroupConfig]:
        found: dict[str, SubscriptionGroupConfig] = {}
        for address in sources:
            found |= (await self._source.admin.user_consumer_groups(address)).subscription_group_table
        return {name: config for name, config in found.items() if self._config.takes_group(name)}

    def _place_of(self, queue: SourceQueue) -> tuple[MessageQueue, Checkpoint] | None:
        copier = self._copiers.get(queue)
        record = self._target.records.get(queue_key(queue))
        checkpoint = copier.checkpoint if copier is not None else None if record is None else record.queue
        if checkpoint is None:
            return None
        target = MessageQueue(queue.topic, checkpoint.target_broker, checkpoint.target_queue_id)
        return target, checkpoint

    def _look_back(self) -> None:
        """Note how far the link back has copied the target's queues, before the source is asked for anything."""
        if not self._links.is_pair:
            return  # places among three and more clusters do not depend on it
        known = {queue_of(key) for key in self._target.records} | self._copiers.keys()
        for queue in known:
            found = None if queue is None or queue.cluster != self._source.name else self._place_of(queue)
            if queue is not None and found is not None:
                self._back.copied[queue] = self._copied_back(found[0])

    def _read_back(self, queue: SourceQueue) -> Sequence[Checkpoint]:
        checkpoint = self._source.records.get(queue_key(queue), Record()).queue
        return () if checkpoint is None else (checkpoint,)

    def _copied_back(self, target: MessageQueue) -> int:
        """Return where the link back goes on in the target's queue; `NO_LINK` without one."""
        queue = SourceQueue(self._target.name, target.topic, target.broker_name, target.queue_id)
        read = newest_of(*self._read(queue))
        return NO_LINK if read is None else read.next_offset

    async def _commit(self, one: TranslatedOffset, masters: Mapping[str, str]) -> None:
        """Write an offset, unless the target's is as high."""
        groups, queue = GroupAdmin(self._target.admin), one.target_queue
        address = masters.get(queue.broker_name)
        if address is None:
            return
        committed = await groups.committed(address, one.group, queue.topic, queue.queue_id)
        if committed is None or committed < one.target_offset:
            await groups.commit(address, one.group, queue.topic, queue.queue_id, one.target_offset)


async def _pause_after(number: int) -> None:
    if number % _QUEUES_AT_ONCE == 0:
        await next_turn()


async def _is_online(admin: AdminClient, group: str) -> bool:
    """Return whether a group has consumers."""
    try:
        return bool((await admin.consumer_connection(group)).connection_set)
    except AdminError as error:
        if error.code is None:
            raise
        return False
