"""Parts of a broker that stay while its role changes: accounts, TLS, ports, and what clients told on their connections.

Everything else belongs to one role, see `broker.parts`.  A broker without controllers has one role, and both of them
for its whole life.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from acl.peer_identity import BROKER, PeerKind
from broker.auth.access_control import AccessControl
from broker.auth.name_server_probe import NameServerProbe
from broker.auth.peer_identity import BrokerIdentity
from broker.auth.users import Users
from broker.client.clients import ConsumerRegistry, ProducerRegistry
from broker.client.rebalance_notices import RebalanceNotices
from broker.config.broker_config import BrokerRole
from broker.environment import Environment
from broker.fast_failure import FastFailure
from broker.filter.consumer_filters import ConsumerFilters
from broker.metrics.creation_times import CreationTimes
from broker.metrics.message_flow import MessageFlow
from broker.namespace.connections import NamespaceConnections
from broker.service import Service
from broker.topic.topics import TopicTable
from broker.turns import loop_later
from ha.epochs.epoch_file import EpochFile
from sprocket.metrics.export import is_exporting
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.refusals import Refusals
from sprocket.remoting.serving.listening import KeptPort
from sprocket.remoting.serving.rpc_latency import RpcLatency
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls, ServerTls
from store.disk.disk import Disk
from store.queue.logic_queue import QueueType
from store.tier.group_store import GroupStore, open_group_store


class QueueTypes:
    """Types of queues, as the topics of the present role say.  The store asks, and outlives the role."""

    def __init__(self) -> None:
        self._topics: TopicTable | None = None

    def follow(self, topics: TopicTable) -> None:
        """Take the types from `topics` from now on."""
        self._topics = topics

    def of(self, topic: str) -> QueueType | None:
        """Return the type of a topic's queues; None if the topic is unknown."""
        return None if self._topics is None else self._topics.queue_type(topic)


@dataclass(frozen=True)
class ProcessParts:
    """ProcessParts parts of one broker.  `services` start first; they get no `activate` and no `take_over`.

    `client` registers the broker, and lasts because a name server forgets a broker whose connection ends.
    """

    access: AccessControl
    users: Users
    identity: BrokerIdentity
    server_tls: ServerTls
    client_tls: ClientTls | None
    client: RemotingClient
    new_client: Callable[[PeerKind], RemotingClient]
    consumers: ConsumerRegistry
    producers: ProducerRegistry
    filters: ConsumerFilters
    fast_failure: FastFailure
    refusals: Refusals
    ha_port: KeptPort
    queue_types: QueueTypes
    flow: MessageFlow
    latency: RpcLatency | None  # only if metrics are exported
    creations: CreationTimes
    disk: Disk | None
    epochs: EpochFile | None  # of the log, only with controllers
    archive: GroupStore | None  # of the log, only with tiered storage
    services: Sequence[Service]


def build_process_parts(
    environment: Environment,
    tls: TlsSettings | None,
    disk: Disk | None,
    others: Sequence[Service],
    epochs: EpochFile | None = None,
) -> ProcessParts:
    """Build the parts of the process; `others` are services that last as well.  No file is read here."""
    live, settings, clock = environment.config, tls or TlsSettings(), environment.clock
    config, store = live.broker, live.store
    users = Users(
        config, store.store_path_root_dir / "config", clock,
        lambda error: environment.notify(lambda: environment.fail(error)),
        is_slave=lambda: live.broker.broker_role is BrokerRole.SLAVE,
    )  # fmt: skip
    connections = NamespaceConnections()
    access = AccessControl(config, clock, store, settings, users.policy, connections)
    client_tls, identity = ClientTls.of(tls), BrokerIdentity(live, access)

    def new_client(kind: PeerKind) -> RemotingClient:
        return RemotingClient(credentials=access.credentials, tls=client_tls, prover=identity.prover(kind))

    consumers = ConsumerRegistry(clock, live.plan_version, connections)
    notices = RebalanceNotices(lambda: live.broker.notify_consumer_ids_changed_enable, loop_later)
    consumers.on_changed.append(notices.changed)
    filters = ConsumerFilters(live, environment.file("consumerFilter.json"), clock)
    consumers.on_subscribed.append(filters.subscribed)
    consumers.on_left.append(filters.group_left)
    return ProcessParts(
        access=access, users=users, identity=identity, server_tls=ServerTls(settings), client_tls=client_tls,
        client=new_client(BROKER), new_client=new_client,
        consumers=consumers, producers=ProducerRegistry(clock, connections), filters=filters,
        fast_failure=FastFailure(live, clock), refusals=Refusals(), ha_port=KeptPort(), queue_types=QueueTypes(),
        flow=MessageFlow(), latency=RpcLatency() if is_exporting(config) else None, creations=CreationTimes(clock),

        disk=disk, epochs=epochs,
        archive=open_group_store(store, config.broker_cluster_name, config.broker_name, clock),
        services=[access, users, identity, NameServerProbe(live, access, client_tls), *others],
    )  # fmt: skip
