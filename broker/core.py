"""Common base of a broker's parts: one record instead of ten arguments."""

from collections.abc import Callable
from dataclasses import dataclass

from broker.client.clients import ConsumerRegistry, ProducerRegistry
from broker.client.queue_locks import QueueLocks
from broker.config.live_config import LiveConfig
from broker.filter.consumer_filters import ConsumerFilters
from broker.idempotence.known_ids import KnownIds
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.longpolling.quota_reads import QuotaReads
from broker.metrics.message_flow import MessageFlow
from broker.namespace.namespace_table import NamespaceTable
from broker.namespace.namespaces import Namespaces
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.quota.quotas import Quotas
from broker.role import Role
from broker.schedules.positions import SchedulePositions
from broker.schedules.schedule_table import ScheduleTable
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.topic.topic_queue_mappings import TopicQueueMappings
from broker.topic.topics import TopicTable
from broker.turns import CallLater
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.remoting.client import RemotingClient
from store.delivery import Delivery
from store.message_store import MessageStore
from store.tier.reads.tiered_reads import TieredReads


@dataclass(frozen=True)
class BrokerCore:
    """Tables, store and environment of one broker.  All of it lives in the event loop's thread."""

    config: LiveConfig
    role: Role
    clock: Clock
    call_later: CallLater
    random_below: Callable[[int], int]
    store: MessageStore
    topics: TopicTable
    mappings: TopicQueueMappings  # of static topics
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    locks: QueueLocks
    consumers: ConsumerRegistry
    producers: ProducerRegistry
    filters: ConsumerFilters
    waits: ConfirmWaits
    ids: KnownIds  # of idempotent messages
    flow: MessageFlow
    namespace_table: NamespaceTable
    namespaces: Namespaces
    quotas: Quotas
    quota_reads: QuotaReads
    schedules: ScheduleTable
    schedule_positions: SchedulePositions
    client: RemotingClient  # for requests to other brokers and to name servers
    # Reports an error that the broker cannot survive to the owner of the process.
    fail: Callable[[SprocketError], None]
    delivery: Delivery  # destination of the messages that the broker forwards
    tier: TieredReads  # of messages that only the object store has
