"""Table of the cluster's other masters, to which an acting slave sends messages.

Source: RocketMQ 5.3.3, `TopicRouteInfoManager`, `EscapeBridge`.  Unlike there, brokers of other clusters do not count.
A retry topic that no other master has goes to any of them, which creates it.
"""

import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from sprocket.client.connection.name_servers import NameServers
from sprocket.client.errors import TopicNotFound
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.route import MASTER_ID, ClusterInfo, TopicRouteData
from sprocket.remoting.bodies.topic import PERM_WRITE
from sprocket.remoting.message.topic_names import RETRY_PREFIX

# How long a name server's answer is used.
_FRESH_S: Final = 5.0
_MAX_TOPICS: Final = 10_000


class OtherMaster(NamedTuple):
    """A master that accepts messages of a topic, with its number of write queues."""

    broker_name: str
    address: str
    queues: int


def masters_of_route(route: TopicRouteData, cluster: str, own_name: str) -> list[OtherMaster]:
    """Return the masters of a cluster that accept messages of a topic, sorted, without those named `own_name`."""
    addresses = {
        group.broker_name: group.broker_addrs[MASTER_ID]
        for group in route.broker_datas
        if group.cluster == cluster and group.broker_name != own_name and MASTER_ID in group.broker_addrs
    }
    return sorted(
        OtherMaster(queues.broker_name, addresses[queues.broker_name], queues.write_queue_nums)
        for queues in route.queue_datas
        if queues.broker_name in addresses and queues.perm & PERM_WRITE and queues.write_queue_nums > 0
    )


def masters_of_cluster(info: ClusterInfo, cluster: str, own_name: str) -> list[OtherMaster]:
    """Return all masters of a cluster, sorted, without those named `own_name`; each with one queue."""
    return sorted(
        OtherMaster(name, address, 1)
        for name, address in info.masters().items()
        if name != own_name and info.broker_addr_table[name].cluster == cluster
    )


def chosen(masters: Sequence[OtherMaster], topic: str, queue_id: int, attempt: int) -> OtherMaster | None:
    """Return one of `masters`: for a queue always the same, until an attempt fails."""
    if not masters:
        return None
    return masters[(zlib.crc32(topic.encode()) + queue_id + attempt) % len(masters)]


class OtherMasters:
    """Cache of name servers' answers, for a few seconds.  Lives in the event loop's thread."""

    def __init__(self, name_servers: NameServers | None, cluster: str, own_name: str, clock: Clock) -> None:
        self._name_servers = name_servers
        self._cluster = cluster
        self._own_name = own_name
        self._clock = clock
        self._kept: dict[str, tuple[float, list[OtherMaster]]] = {}

    async def of(self, topic: str) -> list[OtherMaster]:
        """Return the masters that accept messages of `topic`; none if no name server answers."""
        kept = self._kept.get(topic)
        now = self._clock.monotonic()
        if kept is not None and now - kept[0] < _FRESH_S:
            return kept[1]
        try:
            masters = await self._ask(topic)
        except SprocketError:
            return []
        if len(self._kept) >= _MAX_TOPICS:
            self._kept.clear()
        self._kept[topic] = (now, masters)
        return masters

    async def _ask(self, topic: str) -> list[OtherMaster]:
        if self._name_servers is None:
            return []
        try:
            route = await self._name_servers.topic_route(topic)
            masters = masters_of_route(route, self._cluster, self._own_name)
        except TopicNotFound:
            masters = []
        if not masters and topic.startswith(RETRY_PREFIX):
            return masters_of_cluster(await self._name_servers.cluster_info(), self._cluster, self._own_name)
        return masters

    def forget(self, topic: str) -> None:
        """Ask again next time, because a master did not accept a message."""
        self._kept.pop(topic, None)
