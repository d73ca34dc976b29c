"""Changes of an existing topic by `sprocket topic create`, with checks for messages that become unreadable.

A queue whose id is not below the topic's number of queues keeps its messages, but no client reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.stats import TopicOffset
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import CommandFailed
from sprocket_cli.commands.masters import master_addresses


@dataclass(frozen=True)
class Master:
    """Master of the cluster, with its configuration of the topic; `topic` is None if it has none."""

    name: str
    address: str
    topic: TopicConfig | None

    @property
    def queues(self) -> int:
        """Number of queues of the topic that hold or held messages."""
        return 0 if self.topic is None else max(self.topic.read_queue_nums, self.topic.write_queue_nums)


async def masters_of(admin: AdminClient, cluster: str, topic: str) -> list[Master]:
    """Return the masters of `cluster`.  Raises CommandFailed if there is none, AdminError if a server refuses."""
    addresses = await master_addresses(admin, cluster)
    info = await admin.cluster_info()
    names = {address: name for name, data in info.broker_addr_table.items() for address in data.broker_addrs.values()}
    return [Master(names.get(each, each), each, await admin.topic_config(each, topic)) for each in addresses]


def refuse_existing(masters: Sequence[Master], topic: str) -> None:
    """Raise CommandFailed if a master has the topic."""
    where = ", ".join(f"{each.name} ({count_text(each.queues, 'queue')})" for each in masters if each.topic is not None)
    if where:
        raise CommandFailed(
            f"topic {topic} exists on {where}; nothing was changed. Add --update to change its number of queues"
        )


async def unreachable(admin: AdminClient, masters: Sequence[Master], topic: str, queues: int) -> list[str]:
    """Return a line for each master whose queues become unreadable with only `queues` queues."""
    shrinking = [each for each in masters if each.queues > queues]
    if not shrinking:
        return []
    extents = (await admin.topic_stats(topic)).offset_table
    return [_unreachable_on(each, queues, extents) for each in shrinking]


def _unreachable_on(master: Master, queues: int, extents: dict[MessageQueue, TopicOffset]) -> str:
    held = {
        queue.queue_id: extent.max_offset - extent.min_offset
        for queue, extent in sorted(extents.items())
        if queue.broker_name == master.name and queue.queue_id >= queues and extent.max_offset > extent.min_offset
    }
    last = master.queues - 1
    lost = f"queue {last}" if last == queues else f"queues {queues} to {last}"
    each = ", ".join(f"queue {queue_id}: {count}" for queue_id, count in held.items())
    return f"{master.name}: {lost}, with {count_text(sum(held.values()), 'message')}" + (f" ({each})" if each else "")


def refuse_shrinking(lost: Sequence[str], masters: Sequence[Master], topic: str, queues: int, cluster: str) -> None:
    """Raise CommandFailed if `lost` names queues that become unreadable."""
    if not lost:
        return
    widest = max(each.queues for each in masters)
    drain = f"mqadmin updateTopic -c {cluster} -t {topic} -w {queues} -r {widest}"
    raise CommandFailed(
        f"topic {topic} with --queues {queues}: consumers could no longer read these; nothing was changed.\n  "
        + "\n  ".join(lost)
        + f"\nTo drain them first, stop only the sends: {drain}\nAdd --force to shrink the topic now"
    )


async def set_queues(admin: AdminClient, masters: Sequence[Master], topic: str, queues: int) -> None:
    """Create the topic, or change its number of queues and nothing else.  Raises CommandFailed if a master failed."""
    found = {each.address: each.topic for each in masters}

    async def set_at(address: str) -> None:
        present = found[address]
        # A request lists the attributes to change: none.
        config = TopicConfig(topic) if present is None else replace(present, attributes={})
        await admin.create_topic(address, replace(config, read_queue_nums=queues, write_queue_nums=queues))

    await ask_each(found, set_at)


def count_text(count: int, noun: str) -> str:
    """Return ``1 queue`` or ``2 queues``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
