"""Construction of a broker's parts, in the order of their dependencies.  Start with `build`.

Each subsystem is a record of complete parts, and a function that builds it from its dependencies.
Source of the order: RocketMQ 5.3.3, `BrokerController.initialize`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
from broker.failover.group_parts import GroupParts, delivery
from broker.failover.pre_online import PreOnline
from broker.fast_failure import FastFailure
from broker.filter.consumer_filters import ConsumerFilters
from broker.longpolling.held_pulls import HeldPulls
from broker.metrics.broker_figures import broker_figures
from broker.metrics.traffic import Traffic
from broker.offset.broadcast_offsets import BroadcastOffsets
from broker.offset.idle_offsets import IdleOffsets
from broker.out.registration import Registration
from broker.pop.pop_service import PopService
from broker.pop.revive.revive_service import ReviveService
from broker.processor.admin.plain_accounts import PlainAccountsProcessor
from broker.processor.assembly import admin_routes, message_routes
from broker.processor.pop.notification import NotificationService
from broker.processor.pull import PullProcessor
from broker.processor.query_assignment import AssignmentService
from broker.replication.empty_start import no_members
from broker.replication.master_sessions import MasterSessions
from broker.replication.replicated_tables import ReplicatedTables
from broker.replication.replication import Replication
from broker.send.confirm_waits import ConfirmWaits
from broker.send.message_id import host_bytes
from broker.service import Service
from broker.slave.master_follower import MasterFollower
from broker.slave.slave_gate import gated_table
from broker.slave.slave_reads import SlaveReads
from broker.slave.slave_sessions import SlaveSessions
from broker.slave.slave_synchronize import SlaveSynchronize
from broker.timer.schedule import DelayOffsets, ScheduleService
from broker.timer.timer_intake import TimerIntake
from broker.timer.timer_service import TimerService
from broker.topic.light_tables import new_tables
from broker.topic.topic_retention import Retention
from broker.transaction.check import TransactionCheck
from broker.transaction.half_escape import HalfEscape
from broker.transaction.transactions import Transactions
from sprocket.common.figures import Figures
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.refusals import Refusals
from sprocket.remoting.routes import Route, RouteTable
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls, ServerTls
from store.disk.disk import Disk
from store.message_store import MessageStore

# Store host of records until the start has determined the broker's address.
_UNKNOWN_HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class Security:
    """Access control at the ports, and the client for requests to others."""

    access: AccessControl
    users: Users
    server_tls: ServerTls
    client_tls: ClientTls | None
    client: RemotingClient


@dataclass(frozen=True)
class Deliveries:
    """Parts that deliver messages later: delays, the timer, transactions."""

    schedule: ScheduleService
    timer: TimerService
    transactions: Transactions
    transaction_check: TransactionCheck


@dataclass(frozen=True)
class Pops:
    """Parts that serve pop consumers and redeliver their unacknowledged messages."""

    pop: PopService
    revive: ReviveService


@dataclass(frozen=True)
class Pulls:
    """Parts that answer pulls, and hold pulls that find nothing."""

    pulls: PullProcessor
    held: HeldPulls
    broadcasts: BroadcastOffsets
    cold: ColdFlow
    slave: SlaveReads | None  # only on a slave


@dataclass(frozen=True)
class Slave:
    """Parts of a slave only: tables and sessions from its master."""

    synchronize: SlaveSynchronize
    services: Sequence[Service]


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
    replication: Replication
    tables: ReplicatedTables
    following: MasterFollower | None
    slave: Slave | None
    presence: GroupParts
    active_services: ActiveServices
    pre_online: PreOnline
    services: Sequence[Service]  # in the order of their start
    figures: Figures
    routes: RouteTable


def build(environment: Environment, tls: TlsSettings | None, disk: Disk | None) -> BrokerParts:
    """Build and connect all parts of a broker.  Nothing runs yet."""
    config, role = environment.config, environment.role
    security = build_security(environment, tls)
    core = build_core(environment, security.client, disk)
    registration = Registration(config, core.topics, security.client)
    retention = Retention(config, core.topics, core.store)
    deliveries = build_deliveries(core, environment, security.access)
    schedule = deliveries.schedule
    pops = build_pops(core, environment, deliveries.timer)
    core.topics.on_change += [pops.pop.topics_changed, registration.topics_changed, retention.topics_changed]
    following = MasterFollower(core, registration, security.client_tls) if role.is_slave else None
    replication = build_replication(core, security.server_tls, following)
    pulls = build_pulls(core, following)
    traffic = Traffic(core, pulls.pulls, pops.pop)
    assignments = AssignmentService(core, environment.file("messageRequestMode.json"))
    tables = ReplicatedTables(
        core, schedule.offsets, deliveries.timer, assignments.modes, pops.pop.order_info,
        security.users.replicated(),
    )  # fmt: skip
    presence = GroupParts.of(core, registration, following, pops.revive)
    ask_members = presence.members.ask if config.broker.name_servers else no_members
    sessions = MasterSessions(core, replication, tables, security.access, ask_members=ask_members)
    slave = None if following is None else build_slave(core, following, tables, security.access, pulls.slave)
    services = [
        security.access,
        security.users,
        tables,  # first: the parts that serve the group depend on them
        schedule,
        HalfEscape(core, deliveries.transactions) if role.is_slave else deliveries.transaction_check,
        deliveries.timer,
        assignments,
        pulls.broadcasts,
        pops.pop,
        pops.revive,
        NotificationService(core, pops.pop),
        IdleOffsets(core),
        traffic,
        pulls.cold,
        replication,
        sessions,
        *(() if slave is None else slave.services),
        *presence.services,
        *peer_services(core, registration, security),
        TableSaving(core, schedule.offsets),  # last: the others commit offsets when they save
    ]
    active_services = ActiveServices(role, services)
    online = presence.pre_online(core, registration, active_services, schedule.offsets, deliveries.timer, replication)
    fast_failure, refusals = FastFailure(config, environment.clock), Refusals()
    figures = build_figures(core, services, refusals)
    routes = [
        *message_routes(core, deliveries.transactions, pulls.pulls, pops.pop),
        *operator_routes(core, security.access, schedule, registration, traffic, figures),
        *(route for service in services for route in service.routes()),
    ]
    return BrokerParts(
        core, security, fast_failure, registration, retention, deliveries, pops, pulls, traffic, replication, tables,
        following, slave, presence, active_services, online, services, figures,
        security.access.guard(gated_table(role, routes, overload=fast_failure.verdict, refusals=refusals)),
    )  # fmt: skip


def build_security(environment: Environment, tls: TlsSettings | None) -> Security:
    """Build `Security`; its accounts are not loaded yet."""
    config, store = environment.config.broker, environment.config.store
    users = Users(config, store.store_path_root_dir / "config", environment.fail, is_slave=environment.role.is_slave)
    access = AccessControl(config, environment.clock, store, tls or TlsSettings(), users.policy)
    server_tls, client_tls = ServerTls(tls or TlsSettings()), ClientTls.of(tls)
    client = RemotingClient(credentials=access.credentials, tls=client_tls)
    return Security(access, users, server_tls, client_tls, client)


def build_core(environment: Environment, client: RemotingClient, disk: Disk | None) -> BrokerCore:
    """Build the store, the tables, and everything else that all parts depend on."""
    config, role, clock = environment.config, environment.role, environment.clock

    topics, groups, offsets = new_tables(config, environment.file, clock, is_copy=role.is_slave)
    store = MessageStore(
        config.store, clock=clock, notify=environment.notify, disk=disk, queue_type_of=topics.queue_type
    )
    store.on_failure.append(environment.fail)
    store.store_host = host_bytes(_UNKNOWN_HOST, config.broker.listen_port)
    consumers = ConsumerRegistry(clock, lambda: config.broker.notify_consumer_ids_changed_enable)
    filters = ConsumerFilters(config, environment.file("consumerFilter.json"), clock)
    consumers.on_subscribed.append(filters.subscribed)
    consumers.on_left.append(filters.group_left)
    return BrokerCore(
        config, role, clock, call_later, environment.random_below, store, topics, groups, offsets, QueueLocks(clock),
        consumers, ProducerRegistry(clock), filters,
        ConfirmWaits(store, clock, call_later, config.broker.broker_role, topics),
        TimerIntake(config, clock, environment.random_below), client, environment.fail,
        delivery(config, role, store, client, clock),
    )  # fmt: skip


def build_deliveries(core: BrokerCore, environment: Environment, access: AccessControl) -> Deliveries:
    """Build `Deliveries`."""
    delay_offsets = DelayOffsets(environment.file("delayOffset.json"), core.clock)
    levels = core.config.store.message_delay_level
    transactions = Transactions(core.config, core.store, core.offsets, core.clock)
    check = TransactionCheck(
        core.config, core.store, core.topics, core.producers, transactions, core.clock, core.call_later,
        may_ask=access.may_publish,
    )  # fmt: skip
    return Deliveries(
        ScheduleService(core.store, core.delivery, delay_offsets, levels, core.clock),
        TimerService(core, environment.file("timermetrics")),
        transactions,
        check,
    )


def build_pops(core: BrokerCore, environment: Environment, timer: TimerService) -> Pops:
    """Build `Pops`."""
    pop = PopService(core, environment.file("consumerOrderInfo.json"))
    wheel = timer.timer if core.config.store.timer_wheel_enable else None
    return Pops(pop, ReviveService(core, pop.log, timer=wheel, on_revived=[pop.revived]))


def build_pulls(core: BrokerCore, following: MasterFollower | None) -> Pulls:
    """Build `Pulls`; only a slave has `following`."""
    broadcasts, cold = BroadcastOffsets(core), ColdFlow(core)
    held = HeldPulls(core.store, core.clock, core.call_later)
    core.store.on_arrival.append(held.arrived)
    slave = None
    if following is not None:
        slave = SlaveReads(core.config, core.role, core.clock, following.is_master_online, held)
    pulls = PullProcessor(
        core.config, core.store, core.topics, core.groups, core.consumers, core.offsets, core.filters,
        held=held, broadcasts=broadcasts, slave=slave, cold=cold,
    )  # fmt: skip
    return Pulls(pulls, held, broadcasts, cold, slave)


def build_replication(core: BrokerCore, tls: ServerTls, following: MasterFollower | None) -> Replication:
    """Build the port for slaves.  A slave has one too, and reports its own progress there."""
    broker = core.config.broker
    any_port = broker.listen_port == 0 and broker.ha_listen_port == 0
    status = None if following is None else following.status
    return Replication(core, any_port=any_port, tls=tls, slave_status=status)


def build_slave(
    core: BrokerCore,
    following: MasterFollower,
    tables: ReplicatedTables,
    access: AccessControl,
    reads: SlaveReads | None,
) -> Slave:
    """Build `Slave`; `reads` is its part of the pulls."""
    synchronize = SlaveSynchronize(core, following, tables)
    sessions = SlaveSessions(core, following, tables, access)
    return Slave(synchronize, [following, sessions, *(() if reads is None else (reads,)), synchronize])


def peer_services(core: BrokerCore, registration: Registration, security: Security) -> list[Service]:
    """Build the services that exchange proofs of identity with brokers, and that probe name servers."""
    return [
        PeerIdentity(core, registration, security.access),
        NameServerProbe(core, security.access, security.client_tls),
    ]


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
    accounts = PlainAccountsProcessor(
        core.config, access.plain_files, access.accounts_changed, lambda: registration.address, core.clock
    )
    return [*admin_routes(core, schedule, registration, traffic, figures), *accounts.routes()]
