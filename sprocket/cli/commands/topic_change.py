"""What `sprocket topic create` does to a topic that brokers have already: it changes nothing unasked.

A queue whose id is not below the topic's number of queues keeps its messages, but no client reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sprocket.cli.client_session import CommandFailed
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import GetTopicConfigRequestHeader

if TYPE_CHECKING:
    from sprocket.remoting.bodies.client import MessageQueue
    from sprocket.remoting.bodies.stats import TopicOffset


@dataclass(frozen=True)
class Master:
    """A master of the cluster, and the topic as it has it; None if it does not."""

    name: str
    address: str
    topic: TopicConfig | None

    @property
    def queues(self) -> int:
        """How many queues of the topic hold or held messages."""
        return 0 if self.topic is None else max(self.topic.read_queue_nums, self.topic.write_queue_nums)


async def masters_of(admin: AdminClient, cluster: str, topic: str) -> list[Master]:
    """The masters of `cluster`.  Raises AdminError, CommandFailed when there is none."""
    addresses = await admin.broker_addresses(cluster, masters_only=True)
    if not addresses:
        raise CommandFailed(f"cluster {cluster} has no master")
    info = await admin.cluster_info()
    names = {address: name for name, data in info.broker_addr_table.items() for address in data.broker_addrs.values()}
    return [Master(names.get(each, each), each, await _topic_at(admin, each, topic)) for each in addresses]


async def _topic_at(admin: AdminClient, address: str, topic: str) -> TopicConfig | None:
    try:
        answer = await admin.ask(address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic))
    except AdminError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise
    return loads(bytes(answer.body), TopicConfig)


def refuse_existing(masters: Sequence[Master], topic: str) -> None:
    """Raises CommandFailed if a master has the topic."""
    where = ", ".join(f"{each.name} ({count_text(each.queues, 'queue')})" for each in masters if each.topic is not None)
    if where:
        raise CommandFailed(
            f"topic {topic} exists on {where}; nothing was changed. Add --update to change its number of queues"
        )


async def unreachable(admin: AdminClient, masters: Sequence[Master], topic: str, queues: int) -> list[str]:
    """What nobody can read with only `queues` queues, one line a master; empty if the topic shrinks nowhere."""
    shrinking = [each for each in masters if each.queues > queues]
    if not shrinking:
        return []
    extents = (await admin.topic_stats(topic)).offset_table
    return [_unreachable_on(each, queues, extents) for each in shrinking]


def _unreachable_on(master: Master, queues: int, extents: "dict[MessageQueue, TopicOffset]") -> str:
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
    """Raises CommandFailed if `lost` says that queues become unreachable."""
    if not lost:
        return
    widest = max(each.queues for each in masters)
    drain = f"mqadmin updateTopic -c {cluster} -t {topic} -w {queues} -r {widest}"
    raise CommandFailed(
        f"topic {topic} with --queues {queues}: nobody could read these any more; nothing was changed.\n  "
        + "\n  ".join(lost)
        + f"\nTo drain them first, stop only the writing: {drain}\nAdd --force to shrink the topic now"
    )


async def set_queues(admin: AdminClient, masters: Sequence[Master], topic: str, queues: int) -> None:
    """Create the topic, or change its number of queues and nothing else."""
    for each in masters:
        config = TopicConfig(topic)
        if each.topic is not None:
            # A request lists changes of attributes: none.
            config = replace(each.topic, attributes={})
        await admin.create_topic(each.address, replace(config, read_queue_nums=queues, write_queue_nums=queues))


def count_text(count: int, noun: str) -> str:
    """``1 queue``, ``2 queues``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
