"""Tables of a name server: brokers, clusters and the queues of topics, as brokers last reported them.

Pure: no connection and no clock.  A broker is identified by an incarnation, the connection of its last sign of life.
Connection ids increase, so the larger one is newer.
Source: RocketMQ 5.3.3, `RouteInfoManager`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from namesrv.named_topics import NamedTopics
from sprocket.remoting.bodies.route import MASTER_ID, BrokerData, QueueData
from sprocket.remoting.bodies.topic import PERM_READ, PERM_WRITE, DataVersion
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingInfo

# `DEFAULT_BROKER_CHANNEL_EXPIRED_TIME`
DEFAULT_BROKER_TIMEOUT_MS = 120_000

BrokerKey = tuple[str, str]  # cluster name, broker address


@dataclass(slots=True)
class LiveBroker:
    """One broker process, as long as it gives signs of life."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    channel_id: int  # the newest connection of this broker
    last_update_ms: int  # monotonic
    timeout_ms: int
    data_version: DataVersion
    ha_server_addr: str

    @property
    def key(self) -> BrokerKey:
        """Cluster name and address."""
        return self.cluster_name, self.broker_addr


@dataclass(slots=True)
class MinBrokerIdChange:
    """Change of a group's smallest broker id: the notice and its receivers."""

    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None
    notify_addrs: list[str]


@dataclass(slots=True)
class RouteInfo:
    """Tables of routes.  Every member of `brokers` is in `live` and in `clusters` as well."""

    topics: dict[str, dict[str, QueueData]] = field(default_factory=dict)  # topic -> broker name -> queues
    brokers: dict[str, BrokerData] = field(default_factory=dict)  # broker name -> group
    clusters: dict[str, set[str]] = field(default_factory=dict)  # cluster name -> broker names
    live: dict[BrokerKey, LiveBroker] = field(default_factory=dict)
    filter_servers: dict[BrokerKey, list[str]] = field(default_factory=dict)
    mappings: dict[str, dict[str, TopicQueueMappingInfo]] = field(default_factory=dict)  # topic -> broker name
    # Broker name -> when its topics were named; filled only with deleteTopicWithBrokerRegistration.
    named: dict[str, NamedTopics] = field(default_factory=dict)
    # Broker groups whose topics an operator made unwritable, until the master restarts.  RocketMQ remembers only the
    # topics, so that a registration with another version makes them writable.
    wiped: set[str] = field(default_factory=set)

    def topics_of(self, broker_name: str) -> Iterator[tuple[str, QueueData]]:
        """Yield the topics that have queues on a broker group."""
        for topic, queues in self.topics.items():
            if broker_name in queues:
                yield topic, queues[broker_name]

    def put_queues(self, topic: str, queues: QueueData) -> bool:
        """Set the queues of `topic` on one broker group.  Return whether that changed anything."""
        if queues.broker_name in self.wiped:
            queues.perm &= ~PERM_WRITE
        by_broker = self.topics.setdefault(topic, {})
        if by_broker.get(queues.broker_name) == queues:
            return False
        by_broker[queues.broker_name] = queues
        return True

    def drop_queues(self, topic: str, broker_name: str) -> bool:
        """Remove a broker group from the routes of `topic`, and the topic if it has no queue left."""
        by_broker = self.topics.get(topic, {})
        removed = by_broker.pop(broker_name, None) is not None
        if removed and not by_broker:
            self.drop_topic(topic)
        return removed

    def drop_topic(self, topic: str) -> bool:
        """Remove the routes of `topic`.  Return whether it had any."""
        self.mappings.pop(topic, None)
        return self.topics.pop(topic, None) is not None

    def drop_topic_in_cluster(self, topic: str, cluster_name: str) -> int:
        """Remove all broker groups of a cluster from the routes of `topic`.  Return how many there were."""
        return sum(self.drop_queues(topic, name) for name in self.clusters.get(cluster_name, ()))

    def add_topic(self, topic: str, queue_datas: list[QueueData]) -> bool:
        """Set routes of `topic` one by one; do nothing if one of the broker groups is unknown."""
        if not queue_datas or any(queues.broker_name not in self.brokers for queues in queue_datas):
            return False
        for queues in queue_datas:
            self.put_queues(topic, queues)
            if queues.broker_name in self.named:
                self.named[queues.broker_name].note([topic])
        return True

    def wipe_write_perm(self, broker_name: str) -> int:
        """Make every topic on a broker group unwritable.  Return their number."""
        if broker_name in self.brokers:
            self.wiped.add(broker_name)
        count = 0
        for _, queues in self.topics_of(broker_name):
            queues.perm &= ~PERM_WRITE
            count += 1
        return count

    def add_write_perm(self, broker_name: str) -> int:
        """Make every topic on a broker group readable and writable.  Return their number."""
        self.wiped.discard(broker_name)
        count = 0
        for _, queues in self.topics_of(broker_name):
            queues.perm = PERM_READ | PERM_WRITE
            count += 1
        return count


def min_broker_id_change(
    group: BrokerData, *, offline_broker_addr: str | None = None, ha_broker_addr: str | None = None
) -> MinBrokerIdChange:
    """Return the notice for `group`: to all members after a departure, to all but the newcomer after a registration."""
    min_id = min(group.broker_addrs)
    everyone = offline_broker_addr is not None or len(group.broker_addrs) == 1
    notify = [addr for broker_id, addr in group.broker_addrs.items() if everyone or broker_id != min_id]
    return MinBrokerIdChange(min_id, group.broker_addrs[min_id], offline_broker_addr, ha_broker_addr, notify)


def has_master(group: BrokerData) -> bool:
    """Return whether `group` has a master."""
    return MASTER_ID in group.broker_addrs
