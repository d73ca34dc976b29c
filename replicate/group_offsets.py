"""Offsets of consumer groups, translated and written to the target.

A group that has consumers at the target is left alone, and no group moves backward.  A message that a group has not
consumed at the source is never skipped.  Messages that it has consumed since the last translation are repeated.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from replicate.cluster import Cluster
from replicate.config import LinkConfig
from replicate.protocol.back import NO_LINK, Back
from replicate.protocol.copies import SourceQueue
from replicate.protocol.position import Checkpoint
from replicate.queue_copier import QueueCopier
from replicate.records import queue_key, queue_of
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.at_once import AtOnce, answered, check_all
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.group import SubscriptionGroupConfig

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


class GroupOffsets:
    """Writer of one link's offsets.  `copier_of` finds the copier of a queue of any link in this process."""

    def __init__(
        self, config: LinkConfig, source: Cluster, target: Cluster, copiers: Mapping[SourceQueue, QueueCopier],
        copier_of: Callable[[SourceQueue], QueueCopier | None],
    ) -> None:  # fmt: skip
        self._config = config
        self._source = source
        self._target = target
        self._copiers = copiers
        self._copier_of = copier_of
        self._written: dict[tuple[str, MessageQueue], int] = {}
        self._back = Back()

    async def write(self) -> None:
        """Write what has changed.  A group or a broker that fails keeps no other one back.  Raises AdminError."""
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
        lowest: dict[MessageQueue, TranslatedOffset] = {}
        for place, offsets in stats.offset_table.items():
            queue = SourceQueue(self._source.name, place.topic, place.broker_name, place.queue_id)
            found = self._place_of(queue)
            if found is None or offsets.consumer_offset < 0:
                continue
            target, checkpoint = found
            limit = self._back.limit(queue, offsets.broker_offset, checkpoint.next_offset)
            offset = min(checkpoint.map.translate(offsets.consumer_offset), limit)
            known = lowest.get(target)
            if known is None or offset < known.target_offset:
                lowest[target] = TranslatedOffset(group, queue, offsets.consumer_offset, target, offset)
        return list(lowest.values())

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
        copier = self._copier_of(queue)
        if copier is not None:
            return copier.position.next_offset
        record = self._source.records.get(queue_key(queue))
        return NO_LINK if record is None or record.queue is None else record.queue.next_offset

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
