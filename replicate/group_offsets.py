"""Offsets of consumer groups, translated and written to the target.

A group that has consumers at the target is left alone, and no group moves backward.  A message that a group has not
consumed at the source is never skipped.  Messages that it has consumed since the last translation are repeated.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from replicate.cluster import Cluster
from replicate.config import Config, LinkConfig
from replicate.protocol.back import NO_LINK, Back
from replicate.protocol.copies import SourceQueue
from replicate.protocol.origins import moved
from replicate.protocol.position import Checkpoint
from replicate.queue_copier import QueueCopier
from replicate.records import Record, queue_key, queue_of, sources_in
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.at_once import AtOnce, answered, check_all
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.stats import OffsetWrapper

logger = logging.getLogger(__name__)

# Requests under way: a way of 80 ms is then not paid for each group and queue.
_MAX_REQUESTS: Final = 64


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

    `read` tells how far any of the links has read a queue; without it that is what the source knows of the link back.
    """

    def __init__(
        self, config: LinkConfig, links: Config, source: Cluster, target: Cluster,
        copiers: Mapping[SourceQueue, QueueCopier], read: Callable[[SourceQueue], Checkpoint | None] | None = None,
    ) -> None:  # fmt: skip
        self._config = config
        self._links = links
        self._source = source
        self._target = target
        self._copiers = copiers
        self._read = read or (lambda queue: source.records.get(queue_key(queue), Record()).queue)
        self._written: dict[tuple[str, MessageQueue], int] = {}
        self._back = Back()

    async def write(self) -> None:
        """Write what has changed.  A group or a broker that fails keeps no other one back.  Raises ClientError."""
        self._check_sources()
        at_once = AtOnce(_MAX_REQUESTS)
        self._look_back()
        groups = await self._groups()
        found = await at_once.each(sorted(groups), self._changed)
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
            written = await at_once.each(offsets, lambda one: self._commit(one, masters))
            if len(known) == len(tables):
                # Else a broker may lack a group: these come again.
                self._written |= {(one.group, one.target_queue): one.target_offset for one in answered(written)}
            check_all(tables)
            check_all(ready)
            check_all(written)
        check_all(found)

    async def all_translated(self) -> list[TranslatedOffset]:
        """Return the offsets of all groups of the link.  Raises AdminError."""
        self._look_back()
        outcomes = await AtOnce(_MAX_REQUESTS).each(sorted(await self._groups()), self.translated)
        check_all(outcomes)
        return [one for found in answered(outcomes).values() for one in found]

    async def _changed(self, group: str) -> Sequence[TranslatedOffset]:
        return [
            one for one in await self.translated(group)
            if self._written.get((group, one.target_queue)) != one.target_offset
        ]  # fmt: skip

    async def translated(self, group: str) -> list[TranslatedOffset]:
        """Return the offsets of a group in the queues of the link.  Raises AdminError."""
        try:
            stats = await self._source.admin.consume_stats(group)
        except AdminError as error:
            if error.code is None:
                raise
            return []  # it has consumed nothing yet
        by_target: dict[MessageQueue, list[_Here]] = {}
        for place, offsets in stats.offset_table.items():
            queue = SourceQueue(self._source.name, place.topic, place.broker_name, place.queue_id)
            found = self._place_of(queue)
            if found is not None and offsets.consumer_offset >= 0:
                target, checkpoint = found
                by_target.setdefault(target, []).append(_Here(queue, offsets, checkpoint))
        return [
            TranslatedOffset(group, here[0].queue, here[0].offsets.consumer_offset, target, offset)
            for target, here in by_target.items()
            if (offset := self._moved(here, target)) is not None
        ]

    def _moved(self, here: Sequence[_Here], target: MessageQueue) -> int | None:
        """Return where a group goes on in a queue of the target; None if that is not known yet."""
        if self._links.is_pair:
            return min(min(one.translated, self._limit(one)) for one in here)
        translated, cluster, topic = min(one.translated for one in here), self._source.name, target.topic
        if self._links.is_one_way(cluster, self._target.name, topic):
            return translated
        read = self._read(SourceQueue(self._target.name, topic, target.broker_name, target.queue_id))
        streams = [(one.checkpoint.streams, one.offsets.consumer_offset) for one in here]
        known = [(each, offset) for each, offset in streams if each is not None]
        if read is not None and read.streams is not None and len(known) == len(streams):
            return moved(known, read.streams, self._links.origins(cluster, topic), translated)
        return None

    def _limit(self, one: _Here) -> int:
        return self._back.limit(one.queue, one.offsets.broker_offset, one.checkpoint.next_offset)

    def _check_sources(self) -> None:
        """Refuse offsets that would not count what the source gets by links of another configuration."""
        known = sources_in(self._source.records, self._source.instance.clock.wall_ms()) - {self._target.name}
        others = sorted(each for each in known if self._links.link(each, self._source.name) is None)
        if others:
            raise ClientError(
                f"no offsets are written: {self._source.name} also gets messages of {', '.join(others)}, which they "
                "would not count; write all links into one configuration"
            )

    async def _groups(self) -> dict[str, SubscriptionGroupConfig]:
        found: dict[str, SubscriptionGroupConfig] = {}
        for address in (await self._source.masters()).values():
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
        known = {queue_of(key) for key in self._target.records} | self._copiers.keys()
        for queue in known:
            found = None if queue is None or queue.cluster != self._source.name else self._place_of(queue)
            if queue is not None and found is not None:
                self._back.copied[queue] = self._copied_back(found[0])

    def _copied_back(self, target: MessageQueue) -> int:
        """Return where the link back goes on in the target's queue; `NO_LINK` without one."""
        queue = SourceQueue(self._target.name, target.topic, target.broker_name, target.queue_id)
        read = self._read(queue)
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


async def _is_online(admin: AdminClient, group: str) -> bool:
    """Return whether a group has consumers."""
    try:
        return bool((await admin.consumer_connection(group)).connection_set)
    except AdminError as error:
        if error.code is None:
            raise
        return False
