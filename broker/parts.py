"""Construction of a broker's parts, in the order of their dependencies.  Start with `build`.

Each subsystem is a record of complete parts, and a function that builds it from what `build` made before: from whole
records, never from single parts of them.  A part that is a source of events has lists of listeners, named `on_...`.  A
later part is added to them here or in its own constructor.  Nothing else is set after construction.
Source of the order: RocketMQ 5.3.3, `BrokerController.initialize`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from broker.auth.access_control import AccessControl
from broker.auth.name_server_probe import NameServerProbe
from broker.auth.peer_identity import PeerIdentity
from broker.auth.users import Users
from broker.client.clients import ConsumerRegistry, ProducerRegistry
from broker.client.queue_locks import QueueLocks
from broker.coldctr.cold_flow import ColdFlow
from broker.config.table_saving import TableSaving
from broker.core import BrokerCore
from broker.environment import Environment, call_later
from broker.failover.active_services import ActiveServices
from broker.failover.escape_bridge import EscapeBridge, delivery
from broker.failover.group_members import GroupMembers
from broker.failover.handover_fetch import HandoverFetch
from broker.failover.master_watch import MasterWatch
from broker.failover.pre_online import PreOnline
from broker.fast_failure import FastFailure
from broker.filter.consumer_filters import ConsumerFilters
from broker.longpolling.held_pulls import HeldPulls
from broker.metrics.broker_figures import broker_figures
from broker.metrics.traffic import Traffic
from broker.offset.broadcast_offsets import BroadcastOffsets
from broker.offset.idle_offsets import IdleOffsets
from broker.out.master_address import MasterAddress
from broker.out.registration import Registration
from broker.pop.pop_service import PopService
from broker.pop.revive.revive_service import ReviveService
from broker.processor.admin.plain_accounts import PlainAccountsProcessor
from broker.processor.assembly import admin_routes, message_routes
from broker.processor.lock_batch import GroupLocks
from broker.processor.pop.notification import NotificationService
from broker.processor.pull import PullProcessor
from broker.processor.query_assignment import AssignmentService
from broker.replication.empty_start import no_members
from broker.replication.ha_exchange import HaExchange
from broker.replication.master_sessions import MasterSessions
from broker.replication.replicated_tables import ReplicatedTables
from broker.replication.replication import Replication
from broker.replication.table_stream import TableSender
from broker.send.confirm_waits import ConfirmWaits
from broker.service import Service
from broker.slave.master_follower import MasterFollower
from broker.slave.slave_gate import gated_table
from broker.slave.slave_reads import SlaveReads
from broker.slave.slave_sessions import SlaveSessions
from broker.slave.slave_synchronize import SlaveSynchronize
from broker.timer.schedule import DelayOffsets, ScheduleService
from broker.timer.timer_intake import TimerIntake
from broker.timer.timer_metrics import TimerMetrics
from broker.timer.timer_service import BARRED_TOPICS, TimerService
from broker.topic.light_tables import new_tables
from broker.topic.topic_retention import Retention
from broker.transaction.check import TransactionCheck
from broker.transaction.half_escape import HalfEscape
from broker.transaction.transactions import Transactions
from sprocket.common.figures import Figures
from sprocket.remoting.bodies.stats import HARuntimeInfo
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.refusals import Refusals
from sprocket.remoting.routes import Route, RouteTable
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls, ServerTls
from store.disk.disk import Disk
from store.message_store import MessageStore
from store.timer.timer_message_store import TimerMessageStore


@dataclass(frozen=True)
class Security:
    """Access control at the ports, proofs of identity between brokers, and the client for requests to others."""

    access: AccessControl
    users: Users
    server_tls: ServerTls
    client_tls: ClientTls | None
    client: RemotingClient
    services: Sequence[Service]


@dataclass(frozen=True)
class Deliveries:
    """Parts that deliver messages later: delays, the timer, transactions."""

    schedule: ScheduleService
    timer: TimerService
    timer_intake: TimerIntake
    transactions: Transactions
    transaction_check: TransactionCheck


@dataclass(frozen=True)
class Pops:
    """Parts that serve pop consumers, redeliver their unacknowledged messages, and assign queues to all consumers."""

    pop: PopService
    revive: ReviveService
    assignments: AssignmentService
    notifications: NotificationService


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

    @property
    def services(self) -> list[Service]:
        """The services, in the order of their start."""
        return [self.exchange, self.members, self.locks, *([] if self.watch is None else [self.watch])]


@dataclass(frozen=True)
class SlavePort:
    """The port for slaves, and the sessions with them.  A slave has both, and reports its own progress there."""

    replication: Replication
    sessions: MasterSessions
    sender: TableSender


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
    """All parts of one broker, complete and connected."""

    core: BrokerCore
    security: Security
    fast_failure: FastFailure
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
    services: Sequence[Service]  # in the order of their start
    figures: Figures
    routes: RouteTable


def build(environment: Environment, tls: TlsSettings | None, disk: Disk | None) -> BrokerParts:
    """Build and connect all parts of a broker.  Nothing runs yet."""
    config, role = environment.config, environment.role
    security = build_security(environment, tls)
    core = build_core(environment, security, disk)
    master = MasterAddress(role)
    registration = Registration(config, core.topics, security.client, master)
    retention = Retention(config, core.topics, core.store)
    deliveries = build_deliveries(core, environment, security)
    pops = build_pops(core, environment, deliveries)
    core.topics.on_change.extend([pops.pop.topics_changed, registration.topics_changed, retention.topics_changed])
    tables = build_tables(core, security, deliveries, pops)
    slave = build_slave(core, security, registration, master, tables) if role.is_slave else None
    presence = build_presence(core, pops, slave)
    slave_port = build_slave_port(core, security, tables, presence, slave)
    pulls = build_pulls(core, slave)
    traffic = Traffic(core, pulls.pulls, pops.pop)
    fast_failure, refusals = FastFailure(config, environment.clock), Refusals()
    services = [
        security.access,
        security.users,
        tables,  # first: the parts that serve the group depend on them
        deliveries.schedule,
        HalfEscape(core, deliveries.transactions) if role.is_slave else deliveries.transaction_check,
        deliveries.timer,
        pops.assignments,
        pulls.broadcasts,
        pops.pop,
        pops.revive,
        pops.notifications,
        IdleOffsets(core),
        traffic,
        pulls.cold,
        slave_port.replication,
        slave_port.sessions,
        slave_port.sender,
        *slave_services(slave, pulls),
        *presence.services,
        *security.services,
        TableSaving(core, deliveries.schedule.offsets),  # last: the others commit offsets when they save
    ]
    active_services = ActiveServices(role, services)
    pre_online = build_pre_online(core, registration, deliveries, presence, slave_port, active_services)
    figures = build_figures(core, services, refusals)
    routes = [
        *message_routes(core, deliveries.timer_intake, deliveries.transactions, pulls.pulls, pops.pop),
        *operator_routes(core, security.access, deliveries.schedule, registration, traffic, figures),
        *(route for service in services for route in service.routes()),
    ]
    return BrokerParts(
        core=core, security=security, fast_failure=fast_failure, registration=registration, retention=retention,
        deliveries=deliveries, pops=pops, pulls=pulls, traffic=traffic, slave_port=slave_port, tables=tables,
        slave=slave, presence=presence, active_services=active_services, pre_online=pre_online, services=services,
        figures=figures,
        routes=security.access.guard(gated_table(role, routes, overload=fast_failure.verdict, refusals=refusals)),
    )  # fmt: skip


def build_security(environment: Environment, tls: TlsSettings | None) -> Security:
    """Build `Security`; its accounts are not loaded yet."""
    live, settings = environment.config, tls or TlsSettings()
    config, store = live.broker, live.store
    users = Users(config, store.store_path_root_dir / "config", environment.fail, is_slave=environment.role.is_slave)
    access = AccessControl(config, environment.clock, store, settings, users.policy)
    server_tls, client_tls = ServerTls(settings), ClientTls.of(tls)
    identity = PeerIdentity(live, access)
    client = RemotingClient(credentials=access.credentials, tls=client_tls, prover=identity.prover)
    probe = NameServerProbe(live, access, client_tls)
    return Security(access, users, server_tls, client_tls, client, [identity, probe])


def build_core(environment: Environment, security: Security, disk: Disk | None) -> BrokerCore:
    """Build the store, the tables, and everything else that all parts depend on."""
    config, role, clock = environment.config, environment.role, environment.clock

    topics, groups, offsets = new_tables(config, environment.file, clock, is_copy=role.is_slave)
    store = MessageStore(
        config.store, clock=clock, notify=environment.notify, disk=disk, queue_type_of=topics.queue_type
    )
    store.on_failure.append(environment.fail)
    consumers = ConsumerRegistry(clock, lambda: config.broker.notify_consumer_ids_changed_enable)
    filters = ConsumerFilters(config, environment.file("consumerFilter.json"), clock)
    consumers.on_subscribed.append(filters.subscribed)
    consumers.on_left.append(filters.group_left)
    return BrokerCore(
        config=config, role=role, clock=clock, call_later=call_later, random_below=environment.random_below,
        store=store, topics=topics, groups=groups, offsets=offsets, locks=QueueLocks(clock),
        consumers=consumers, producers=ProducerRegistry(clock), filters=filters,
        waits=ConfirmWaits(store, clock, call_later, config.broker.broker_role, topics),
        client=security.client, fail=environment.fail, delivery=delivery(config, role, store, security.client, clock),
    )  # fmt: skip


def build_deliveries(core: BrokerCore, environment: Environment, security: Security) -> Deliveries:
    """Build `Deliveries`."""
    delay_offsets = DelayOffsets(environment.file("delayOffset.json"), core.clock)
    schedule = ScheduleService(
        core.store, core.delivery, delay_offsets, core.config.store.message_delay_level, core.clock
    )
    metrics = TimerMetrics(environment.file("timermetrics"), core.clock)
    wheel = TimerMessageStore(core.store, core.clock, metrics.add, BARRED_TOPICS, delivery=core.delivery)
    intake = TimerIntake(core.config, core.clock, core.random_below, wheel.count_at)
    transactions = Transactions(core.config, core.store, core.offsets, core.clock)
    check = TransactionCheck(
        core.config, core.store, core.topics, core.producers, transactions, core.clock, core.call_later,
        may_ask=security.access.may_publish,
    )  # fmt: skip
    return Deliveries(schedule, TimerService(core, wheel, metrics, intake), intake, transactions, check)


def build_pops(core: BrokerCore, environment: Environment, deliveries: Deliveries) -> Pops:
    """Build `Pops`."""
    orders = environment.file("consumerOrderInfo.json")
    pop = PopService(core, orders, deliveries.timer_intake)
    wheel = deliveries.timer.timer if core.config.store.timer_wheel_enable else None
    revive = ReviveService(core, pop.log, timer=wheel, on_revived=[pop.revived])
    assignments = AssignmentService(core, environment.file("messageRequestMode.json"))
    return Pops(pop, revive, assignments, NotificationService(core, pop))


def build_tables(core: BrokerCore, security: Security, deliveries: Deliveries, pops: Pops) -> ReplicatedTables:
    """Build what the replicas of a group share besides the log."""
    return ReplicatedTables(
        core, deliveries.schedule.offsets, deliveries.timer, pops.assignments.modes, pops.pop.order_info,
        security.users.replicated(),
    )  # fmt: skip


def build_slave(
    core: BrokerCore, security: Security, registration: Registration, master: MasterAddress, tables: ReplicatedTables
) -> Slave:
    """Build `Slave`.  From now on the store takes only the master's log."""
    log = core.store.replica()
    sessions = SlaveSessions(core, master, log, tables, access=security.access, tls=security.client_tls)
    following = MasterFollower(core, registration, master, log, sessions)
    return Slave(following, sessions, SlaveSynchronize(core, master, tables, may_poll=following.may_poll))


def build_presence(core: BrokerCore, pops: Pops, slave: Slave | None) -> Presence:
    """Build `Presence`."""
    members, exchange = GroupMembers(core), HaExchange(core)
    if isinstance(core.delivery, EscapeBridge):
        core.delivery.on_message.append(pops.revive.note_escaped)
    watch = None if slave is None else MasterWatch(core, members, slave.following, exchange)
    return Presence(members, exchange, GroupLocks(core, members), watch)


def build_slave_port(
    core: BrokerCore, security: Security, tables: ReplicatedTables, presence: Presence, slave: Slave | None
) -> SlavePort:
    """Build `SlavePort`."""
    broker, tls = core.config.broker, security.server_tls
    ask_members = presence.members.ask if broker.name_servers else no_members
    sessions = MasterSessions(core, tables, access=security.access, tls=tls, ask_members=ask_members)
    any_port = broker.listen_port == 0 and broker.ha_listen_port == 0
    status = None if slave is None else partial(_slave_status, slave.following, presence.exchange)
    replication = Replication(core, sessions, any_port=any_port, tls=tls, slave_status=status)
    return SlavePort(replication, sessions, TableSender(core.store, core.offsets, replication.listener, tables))


def _slave_status(following: MasterFollower, exchange: HaExchange) -> HARuntimeInfo:
    return following.status(exchange.master_flush_offset)


def build_pulls(core: BrokerCore, slave: Slave | None) -> Pulls:
    """Build `Pulls`."""
    broadcasts, cold = BroadcastOffsets(core), ColdFlow(core)
    held = HeldPulls(core.store, core.clock, core.call_later)
    core.store.on_arrival.append(held.arrived)
    reads = None
    if slave is not None:
        reads = SlaveReads(core.config, core.role, core.clock, slave.following.is_master_online, held)
    pulls = PullProcessor(
        core.config, core.store, core.topics, core.groups, core.consumers, core.offsets, core.filters,
        held=held, broadcasts=broadcasts, slave=reads, cold=cold,
    )  # fmt: skip
    return Pulls(pulls, held, broadcasts, cold, reads)


def slave_services(slave: Slave | None, pulls: Pulls) -> list[Service]:
    """Return the services of a slave, in the order of their start."""
    if slave is None:
        return []
    reads = [] if pulls.slave is None else [pulls.slave]
    return [slave.following, slave.sessions, *reads, slave.synchronize]


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


def operator_routes(
    core: BrokerCore,
    access: AccessControl,
    schedule: ScheduleService,
    registration: Registration,
    traffic: Traffic,
    figures: Figures,
) -> list[Route]:
    """Return the routes of operators' requests that no service serves."""
    accounts = PlainAccountsProcessor(core.config, access.plain_files, access.accounts_changed, core.clock)
    return [*admin_routes(core, schedule, registration, traffic, figures), *accounts.routes()]
