"""Construction of a broker's parts, in the order of their dependencies.  Start with `build`.

Each subsystem is a record of complete parts, and a function that builds it from what `build` made before: from whole
records, never from single parts of them.  A part that is a source of events has lists of listeners, named `on_...`.  A
later part is added to them here or in its own constructor.  Nothing else is set after construction.
Source of the order: RocketMQ 5.3.3, `BrokerController.initialize`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from acl.peer_identity import BROKER
from broker.archive.archive_reader import ArchiveReader, serves
from broker.archive.archive_reads import ArchiveReads
from broker.archive.archive_service import ArchiveService
from broker.auth.access_control import AccessControl, server_account
from broker.auth.replica_identity import credentials
from broker.client.queue_locks import QueueLocks
from broker.coldctr.cold_flow import ColdFlow
from broker.controller.appointed_master import AppointedMaster
from broker.core import BrokerCore
from broker.environment import Environment
from broker.failover.active_services import ActiveServices
from broker.failover.escape_bridge import EscapeBridge, delivery
from broker.failover.group_members import GroupMembers
from broker.failover.ha_exchange import HaExchange
from broker.failover.handover_fetch import HandoverFetch
from broker.failover.pre_online import PreOnline
from broker.idempotence.known_ids import KnownIds
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.longpolling.held_pulls import HeldPulls
from broker.longpolling.quota_reads import QuotaReads
from broker.monitoring.broker_figures import broker_figures
from broker.monitoring.lag import ConsumerLag
from broker.monitoring.node_metrics import node_metrics, store_metrics
from broker.monitoring.traffic import Traffic
from broker.namespace.namespace_table import NamespaceTable
from broker.namespace.namespaces import Namespaces
from broker.out.master_address import MasterAddress
from broker.out.other_brokers import OtherBrokers
from broker.out.registration import Registration
from broker.pop.revive.revive_service import ReviveService
from broker.process_parts import ProcessParts
from broker.processor.admin.plain_accounts import PlainAccountsProcessor
from broker.processor.assembly import SendParts, admin_routes, message_routes, send_parts
from broker.processor.lock_batch import GroupLocks
from broker.processor.pop.notification import NotificationService
from broker.processor.pop.pop_metrics import pop_metrics
from broker.processor.pop.pop_service import PopService
from broker.processor.pull import PullProcessor
from broker.processor.query_assignment import AssignmentService
from broker.pull.broadcast_offsets import BroadcastOffsets
from broker.quota.quota_table import QuotaTable
from broker.quota.quotas import Quotas
from broker.replication.empty_start import no_members
from broker.replication.master_sessions import MasterSessions
from broker.replication.replicated_tables import ReplicatedTables
from broker.replication.replication import Replication
from broker.replication.safe_changes import SafeChanges
from broker.replication.table_stream import TableSender
from broker.role import Role
from broker.schedules.positions import SchedulePositions
from broker.schedules.schedule_table import ScheduleTable
from broker.service import Service
from broker.slave.master_follower import MasterFollower
from broker.slave.master_watch import MasterWatch
from broker.slave.slave_gate import gated_table
from broker.slave.slave_reads import SlaveReads
from broker.slave.slave_sessions import SlaveSessions
from broker.slave.slave_synchronize import SlaveSynchronize
from broker.timer.schedule import DelayOffsets, ScheduleService
from broker.timer.timer_intake import TimerIntake
from broker.timer.timer_metrics import TimerMetrics
from broker.timer.timer_service import BARRED_TOPICS, TimerService
from broker.topic.light_tables import new_tables
from broker.topic.moved_queues import PresentPlaces
from broker.topic.topic_queue_mappings import TopicQueueMappings
from broker.topic.topic_retention import Retention
from broker.transaction.check import TransactionCheck
from broker.transaction.half_escape import HalfEscape
from broker.transaction.transaction_metrics import TransactionMetrics
from broker.transaction.transactions import Transactions
from broker.turns import loop_later
from broker.upkeep.forwarding import Forwarding
from broker.upkeep.idle_offsets import IdleOffsets
from broker.upkeep.mapping_cleaning import MappingCleaning
from broker.upkeep.namespace_service import NamespaceService
from broker.upkeep.quota_upkeep import QuotaUpkeep
from broker.upkeep.renewed_topics import RenewedTopics
from broker.upkeep.schedule_sends import ScheduleSends
from broker.upkeep.schedule_service import RecurringMessages
from broker.upkeep.table_saving import TableSaving
from ha.autoswitch.master_link import AutoSwitchRules
from ha.autoswitch.messages import SlaveHandshake
from ha.autoswitch.slave_link import AutoSwitchReplica
from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import EpochHistory
from ha.hello import Identity
from sprocket.common.figures import Figures
from sprocket.metrics.export import server_labels
from sprocket.metrics.registry import MetricRegistry
from sprocket.remoting.bodies.stats import HARuntimeInfo
from sprocket.remoting.refusals import Refusals
from sprocket.remoting.routes import Route, RouteTable
from sprocket.remoting.serving.rpc_latency import RpcLatency
from store.message_store import MessageStore
from store.tier.reads.archive_view import FOOTERS, ArchiveView
from store.tier.reads.tiered_reads import TieredReads
from store.timer.timer_message_store import TimerMessageStore


@dataclass(frozen=True)
class Deliveries:
    """Parts that take messages, and that deliver them later: delays, the timer, transactions, schedules."""

    sending: SendParts

    schedule: ScheduleService
    timer: TimerService
    timer_intake: TimerIntake
    transactions: Transactions
    transaction_check: TransactionCheck
    recurring: RecurringMessages


@dataclass(frozen=True)
class Pops:
    """Parts that serve pop consumers, redeliver their unacknowledged messages, and assign queues to all consumers."""

    pop: PopService
    revive: ReviveService
    assignments: AssignmentService
    notifications: NotificationService

    @property
    def services(self) -> list[Service]:
        """The services, in the order of their start."""
        return [self.assignments, self.pop, self.pop.lite, self.revive, self.notifications]


@dataclass(frozen=True)
class Slave:
    """Parts of a slave only: its copy of the master's log and tables."""

    following: MasterFollower
    sessions: SlaveSessions
    synchronize: SlaveSynchronize


@dataclass(frozen=True)
class Presence:
    """Parts that exchange presence, addresses and group locks with the other members of the group."""

    members: GroupMembers
    exchange: HaExchange
    locks: GroupLocks
    watch: MasterWatch | None  # only on a slave
    appointed: AppointedMaster | None  # only on a slave with controllers

    @property
    def services(self) -> list[Service]:
        """The services, in the order of their start."""
        on_slave = [one for one in (self.watch, self.appointed) if one is not None]
        return [self.exchange, self.members, self.locks, *on_slave]


@dataclass(frozen=True)
class SlavePort:
    """The port for slaves, and the sessions with them.  A slave has both, and reports its own progress there."""

    replication: Replication
    sessions: MasterSessions
    sender: TableSender
    changes: SafeChanges

    def awaited(self, routes: Sequence[Route]) -> list[Route]:
        """Return `routes`; the answers to changes of tables wait for slaves, where sends do."""
        return self.changes.awaited(routes, self.replication.has_sessions)


@dataclass(frozen=True)
class Pulls:
    """Parts that answer pulls, and hold pulls that find nothing."""

    pulls: PullProcessor
    held: HeldPulls
    broadcasts: BroadcastOffsets
    cold: ColdFlow
    slave: SlaveReads | None  # only on a slave


@dataclass(frozen=True)
class BrokerParts:
    """All parts of one broker in one role, complete and connected."""

    core: BrokerCore
    registration: Registration
    retention: Retention
    deliveries: Deliveries
    pops: Pops
    pulls: Pulls
    traffic: Traffic
    slave_port: SlavePort
    tables: ReplicatedTables
    slave: Slave | None
    presence: Presence
    active_services: ActiveServices
    pre_online: PreOnline
    services: Sequence[Service]  # in the order of their start; without those that last
    figures: Figures
    metrics: MetricRegistry
    routes: RouteTable


def build(
    environment: Environment, role: Role, process: ProcessParts, store: MessageStore | None = None
) -> BrokerParts:
    """Build and connect all parts of a broker for `role`; nothing runs yet.  `store`: one that is open already."""
    config = environment.config
    core = build_core(environment, role, process, store)
    master = MasterAddress(role)
    holds_lease = None if role.is_slave else environment.holds_lease
    registration = Registration(config, core.topics, core.mappings, process.client, master, holds_lease)
    retention = Retention(config, core.topics, core.store)
    deliveries = build_deliveries(core, environment, process)
    brokers = OtherBrokers(core.client, config.broker.name_servers, core.clock)
    pops = build_pops(core, environment, deliveries, brokers)
    core.topics.on_change.extend([pops.pop.topics_changed, registration.topics_changed, retention.topics_changed])
    tables = build_tables(core, process, deliveries, pops)
    slave = build_slave(core, process, registration, master, tables) if role.is_slave else None
    presence = build_presence(core, pops, slave, brokers)
    slave_port = build_slave_port(core, environment, process, tables, presence, slave)
    pulls = build_pulls(core, slave, presence.appointed, pops.pop)
    traffic = Traffic(core, pops.pop.counters.by_name())
    services = [
        tables,  # first: the parts that serve the group depend on them
        deliveries.schedule,
        HalfEscape(core, deliveries.transactions) if role.is_slave else deliveries.transaction_check,
        deliveries.timer,
        pulls.broadcasts,
        *pops.services,
        *upkeep_services(core, brokers, retention),
        deliveries.recurring,
        archive_service(core, process, holds_lease),
        ArchiveReads(core.tier),
        core.ids,
        traffic,
        pulls.cold,
        slave_port.replication,
        slave_port.sessions,
        slave_port.sender,
        *slave_services(slave, pulls),
        *presence.services,
        TableSaving(core, deliveries.schedule.offsets),  # last: the others commit offsets when they save
    ]
    active_services = ActiveServices(role, services)
    pre_online = build_pre_online(core, registration, deliveries, presence, slave_port, active_services)
    figures = build_figures(core, [*process.services, *services], process.refusals)
    metrics = build_metrics(core, [*process.services, *services], deliveries, pops, process)
    routes = [
        *message_routes(core, deliveries.sending, deliveries.transactions, pulls.pulls, pops.pop, brokers),
        *process.creations.timed(operator_routes(core, process.access, deliveries, registration, traffic, figures)),
        *(route for service in (*process.services, *services) for route in service.routes()),
    ]
    gated = gated_table(
        role, slave_port.awaited(routes), overload=process.fast_failure.verdict, refusals=process.refusals,
        holds_lease=holds_lease, latency=process.latency,
    )  # fmt: skip
    return BrokerParts(
        core=core, registration=registration, retention=retention,
        deliveries=deliveries, pops=pops, pulls=pulls, traffic=traffic, slave_port=slave_port, tables=tables,
        slave=slave, presence=presence, active_services=active_services, pre_online=pre_online, services=services,
        figures=figures, metrics=metrics, routes=process.access.guard(gated),
    )  # fmt: skip


def archive_service(core: BrokerCore, process: ProcessParts, holds_lease: Callable[[], bool] | None) -> ArchiveService:
    """Return the service that writes the broker's archive, or reads that of others."""
    if process.archive is not None and core.config.store.read_only_from:
        return ArchiveReader(core, process.archive)
    return ArchiveService(core, process.archive, process.epochs, holds_lease)


def build_core(environment: Environment, role: Role, process: ProcessParts, store: MessageStore | None) -> BrokerCore:
    """Build the store, the tables, and everything else that all parts depend on."""
    config, clock = environment.config, environment.clock
    # The end of a role ends its requests to others: they may take seconds.
    client = process.new_client(BROKER) if config.broker.enable_controller_mode else process.client
    namespace_table = NamespaceTable(environment.file("namespaces.json"), clock, config.plan_version)
    namespaces = Namespaces(namespace_table)
    process.consumers.connections.follow(namespace_table.by_name)
    topics, groups, offsets = new_tables(config, environment.file, clock, namespaces, is_copy=role.is_slave)
    mappings = TopicQueueMappings(environment.file("topicQueueMapping.json"), clock, config.plan_version)
    process.queue_types.follow(topics)
    if store is None:
        store = MessageStore(
            config.store, clock=clock, notify=environment.notify, disk=process.disk,
            queue_type_of=process.queue_types.of,
        )  # fmt: skip
        store.on_failure.append(environment.fail)
    store.on_arrival.append(topics.let_read)
    account = server_account(config.broker)
    table = QuotaTable(environment.file("quotas.json"), clock, config.plan_version)
    quotas = Quotas(table, clock, None if account is None else account.access_key)
    view = None
    if process.archive is not None:
        view = ArchiveView(
            process.archive, config.store.store_path_root_dir / FOOTERS,
            partial(serves, topics) if config.store.read_only_from else None,
        )  # fmt: skip
    schedules = ScheduleTable(environment.file("schedules.json"), clock, environment.random_below)
    return BrokerCore(
        config=config, role=role, clock=clock, call_later=loop_later, random_below=environment.random_below,
        store=store, topics=topics, mappings=mappings, groups=groups, offsets=offsets, locks=QueueLocks(clock),
        consumers=process.consumers, producers=process.producers, filters=process.filters,
        namespace_table=namespace_table, namespaces=namespaces,
        quotas=quotas, quota_reads=QuotaReads(quotas, clock, loop_later, process.filters.sql), schedules=schedules,
        schedule_positions=SchedulePositions(
            environment.file("schedulePositions.json"), schedules, lambda: store.wrote_offset
        ),
        waits=ConfirmWaits(store, clock, loop_later, role.kind, topics, environment.holds_lease), flow=process.flow,
        ids=KnownIds(config, store, clock, loop_later),
        client=client, fail=environment.fail,
        delivery=delivery(config, role, store, client, clock, PresentPlaces(mappings.by_name, topics.get)),
        tier=TieredReads(lambda: config.store, store, clock, view),
    )  # fmt: skip


def build_deliveries(core: BrokerCore, environment: Environment, process: ProcessParts) -> Deliveries:
    """Build `Deliveries`."""
    delay_offsets = DelayOffsets(environment.file("delayOffset.json"), core.clock)
    schedule = ScheduleService(core, delay_offsets)
    metrics = TimerMetrics(environment.file("timermetrics"), core.clock)
    wheel = TimerMessageStore(core.store, core.clock, metrics.add, BARRED_TOPICS, delivery=core.delivery)
    intake = TimerIntake(core.config, core.clock, core.random_below, wheel.count_at)
    places = PresentPlaces(core.mappings.by_name, core.topics.get)
    transactions = Transactions(core, places)
    check = TransactionCheck(core, transactions, process.access.may_publish)
    sending = send_parts(core, intake)
    recurring = RecurringMessages(core, ScheduleSends(core, sending.planner, sending.intake))
    timer = TimerService(core, wheel, metrics, intake)
    return Deliveries(sending, schedule, timer, intake, transactions, check, recurring)


def build_pops(core: BrokerCore, environment: Environment, deliveries: Deliveries, brokers: OtherBrokers) -> Pops:
    """Build `Pops`."""
    orders = environment.file("consumerOrderInfo.json")
    pop = PopService(core, orders, deliveries.timer_intake, brokers)
    wheel = deliveries.timer.timer if core.config.store.timer_wheel_enable else None
    revive = ReviveService(core, pop.log, timer=wheel, on_revived=[pop.revived])
    assignments = AssignmentService(core, environment.file("messageRequestMode.json"))
    return Pops(pop, revive, assignments, NotificationService(core, pop))


def build_tables(core: BrokerCore, process: ProcessParts, deliveries: Deliveries, pops: Pops) -> ReplicatedTables:
    """Build what the replicas of a group share besides the log."""
    return ReplicatedTables(
        core, deliveries.schedule.offsets, deliveries.timer, pops.assignments.modes, pops.pop.order_info,
        process.users.replicated(),
    )  # fmt: skip


def build_slave(
    core: BrokerCore,
    process: ProcessParts,
    registration: Registration,
    master: MasterAddress,
    tables: ReplicatedTables,
) -> Slave:
    """Build `Slave`.  From now on the store takes only the master's log."""
    log = core.store.replica()
    sessions = SlaveSessions(
        core, master, log, tables, access=process.access, tls=process.client_tls, epochs=process.epochs,
        autoswitch=None if process.epochs is None else AutoSwitchReplica(partial(_handshake, core), process.epochs),
    )  # fmt: skip
    following = MasterFollower(core, registration, master, log, sessions)
    return Slave(following, sessions, SlaveSynchronize(core, master, tables, may_poll=following.may_poll))


def build_presence(core: BrokerCore, pops: Pops, slave: Slave | None, brokers: OtherBrokers) -> Presence:
    """Build `Presence`."""
    members, exchange = GroupMembers(core), HaExchange(core)
    if isinstance(core.delivery, EscapeBridge):
        core.delivery.on_message.append(pops.revive.note_escaped)
    watch = appointed = None
    if slave is not None and core.config.broker.enable_controller_mode:
        appointed = AppointedMaster(slave.following, exchange)
    elif slave is not None:
        watch = MasterWatch(core, members, slave.following, exchange)
    return Presence(members, exchange, GroupLocks(core, members, brokers), watch, appointed)


def build_slave_port(
    core: BrokerCore,
    environment: Environment,
    process: ProcessParts,
    tables: ReplicatedTables,
    presence: Presence,
    slave: Slave | None,
) -> SlavePort:
    """Build `SlavePort`."""
    broker, tls = core.config.broker, process.server_tls
    ask_members = presence.members.ask if broker.name_servers else no_members
    changes = SafeChanges(core)
    sessions = MasterSessions(
        core, tables, changes, access=process.access, tls=tls, ask_members=ask_members, epochs=process.epochs,
        on_newer_epoch=environment.newer_epoch,
    )  # fmt: skip
    any_port = broker.listen_port == 0 and broker.ha_listen_port == 0
    status = None if slave is None else partial(_slave_status, slave.following, presence.exchange)
    port = process.ha_port if broker.enable_controller_mode else None
    rules = None
    if process.epochs is not None:
        rules = AutoSwitchRules(partial(_own_identity, core, process.access), partial(_history, process.epochs))
    replication = Replication(
        core, sessions, any_port=any_port, tls=tls, slave_status=status, port=port, autoswitch=rules
    )
    sender = TableSender(core.store, core.offsets, replication.listener, tables)
    return SlavePort(replication, sessions, sender, changes)


def _handshake(core: BrokerCore) -> SlaveHandshake:
    broker, store = core.config.broker, core.config.store
    return SlaveHandshake(broker.broker_id, store.sync_from_last_file, store.async_learner)


def _own_identity(core: BrokerCore, access: AccessControl) -> Identity:
    return credentials(core, access).identity


def _history(epochs: EpochFile) -> EpochHistory:
    return epochs.history


def _slave_status(following: MasterFollower, exchange: HaExchange) -> HARuntimeInfo:
    return following.status(exchange.master_flush_offset)


def build_pulls(core: BrokerCore, slave: Slave | None, appointed: AppointedMaster | None, pop: PopService) -> Pulls:
    """Build `Pulls`, and what moves consumers to a topic that is created again."""
    broadcasts, cold = BroadcastOffsets(core), ColdFlow(core)
    held = HeldPulls(core.store, core.clock, core.call_later, core.quota_reads.looks)
    core.store.on_arrival.append(held.arrived)
    core.mappings.on_put.append(held.wake_topic)
    core.store.on_queues_removed.append(core.config.plan_version.rise)
    reads = None
    if slave is not None:
        reads = SlaveReads(
            core.config, core.role, core.clock, slave.following.is_master_online, held,
            is_resting=lambda: appointed is not None and appointed.is_resting,
        )  # fmt: skip
    pulls = PullProcessor(core, held, broadcasts, reads, cold)
    core.topics.on_change.append(broadcasts.topics_changed)
    RenewedTopics(core, (pop.reset, pulls.reset)).listen()
    return Pulls(pulls, held, broadcasts, cold, reads)


def slave_services(slave: Slave | None, pulls: Pulls) -> list[Service]:
    """Return the services of a slave, in the order of their start."""
    if slave is None:
        return []
    reads = [] if pulls.slave is None else [pulls.slave]
    return [slave.following, slave.sessions, *reads, slave.synchronize]


def upkeep_services(core: BrokerCore, brokers: OtherBrokers, retention: Retention) -> list[Service]:
    """Return the services that tidy up and that bound what teams use, in the order of their start."""
    core.namespace_table.on_change.append(retention.namespaces_changed)
    return [
        IdleOffsets(core),
        MappingCleaning(core, brokers),
        Forwarding(core, brokers),
        NamespaceService(core),
        QuotaUpkeep(core, brokers),
    ]


def build_pre_online(
    core: BrokerCore,
    registration: Registration,
    deliveries: Deliveries,
    presence: Presence,
    slave_port: SlavePort,
    services: ActiveServices,
) -> PreOnline:
    """Build the part that brings the broker online."""
    return PreOnline(
        core, registration=registration, services=services, members=presence.members, exchange=presence.exchange,
        handover=HandoverFetch(core, deliveries.schedule.offsets, deliveries.timer),
        slave_hosts=slave_port.replication.slave_hosts,
    )  # fmt: skip


def build_figures(core: BrokerCore, services: Sequence[Service], refusals: Refusals) -> Figures:
    """Join the figures of all parts.  Raises InvariantError if two of them have one name."""
    return Figures(
        [
            *broker_figures(core.config, core.store),
            *refusals.figures(),
            *core.store.figures(),
            *core.waits.figures(),
            *(figure for service in services for figure in service.figures()),
        ]
    )


def build_metrics(
    core: BrokerCore,
    services: Sequence[Service],
    deliveries: Deliveries,
    pops: Pops,
    process: ProcessParts,
) -> MetricRegistry:
    """Join the metrics of all parts.  Raises InvariantError if two of them have one name."""
    lag = ConsumerLag(core, pops.pop.offsets, pops.pop.inflight, pops.pop.lite.lags)
    transactions = TransactionMetrics(deliveries.transactions, core.store)
    switches = core.config.broker
    declared = [
        *node_metrics(core),
        *store_metrics(core),
        core.store.statistics.metric(),
        *core.flow.metrics(),
        *core.waits.metrics(),
        *lag.metrics(),
        *transactions.metrics(),
        *pop_metrics(pops.pop, pops.revive),
        (process.latency or RpcLatency()).metric(),
        *process.creations.metrics(),
        *(metric for service in services for metric in service.exported_metrics()),
    ]
    looks = [
        (lag.look, switches.enable_lag_and_dlq_metrics), (transactions.look, switches.enable_transaction_metrics)
    ]  # fmt: skip
    return MetricRegistry(
        [metric for metric in declared if switches.exports(metric.name)],
        partial(_server_labels, core),
        prepares=[look for look, is_on in looks if is_on],
        limit=lambda: core.config.broker.metrics_otel_cardinality_limit,
    )


def _server_labels(core: BrokerCore) -> dict[str, str]:
    broker = core.config.broker
    own = {"cluster": broker.broker_cluster_name, "node_type": "broker", "node_id": broker.broker_name}
    return server_labels(broker, own)


def operator_routes(
    core: BrokerCore,
    access: AccessControl,
    deliveries: Deliveries,
    registration: Registration,
    traffic: Traffic,
    figures: Figures,
) -> list[Route]:
    """Return the routes of operators' requests that no service serves."""
    accounts = PlainAccountsProcessor(core.config, access.plain_files, access.accounts_changed, core.clock)
    return [*admin_routes(core, deliveries.schedule, registration, traffic, figures), *accounts.routes()]
