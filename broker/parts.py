"""What a broker is made of: store, tables, processors and services, in the order in which they need each other.

Source of the order: RocketMQ 5.3.3, `BrokerController.initialize`.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TypeVar

from broker.auth.access_control import AccessControl
from broker.auth.name_server_probe import NameServerProbe
from broker.auth.peer_identity import PeerIdentity
from broker.auth.users import Users
from broker.client.clients import ConsumerRegistry, ProducerRegistry
from broker.client.queue_locks import QueueLocks
from broker.coldctr.cold_flow import ColdFlow
from broker.config.broker_config import BrokerConfig
from broker.config.config_file import ConfigFile
from broker.config.live_config import LiveConfig
from broker.config.table_saving import TableSaving
from broker.core import BrokerCore
from broker.failover.active_services import ActiveServices
from broker.failover.group_presence import GroupPresence, delivery
from broker.fast_failure import CHECK_S, FastFailure
from broker.filter.consumer_filters import ConsumerFilters, ConsumerFilterTable
from broker.longpolling.held_pulls import HeldPulls
from broker.metrics.traffic import Traffic
from broker.offset.broadcast_offsets import BroadcastOffsets
from broker.offset.idle_offsets import IdleOffsets
from broker.out.registration import Registration
from broker.periodic import Periodic
from broker.pop.order_info import OrderInfoTable
from broker.pop.pop_service import PopService
from broker.pop.revive.revive_service import ReviveService
from broker.processor.admin.plain_accounts import PlainAccountsProcessor
from broker.processor.assembly import admin_routes, message_routes
from broker.processor.pop.notification import NotificationService
from broker.processor.pull import PullProcessor
from broker.processor.query_assignment import AssignmentService
from broker.replication.master_sessions import MasterSessions
from broker.replication.replicated_tables import ReplicatedTables
from broker.replication.replication import Replication
from broker.role import Role
from broker.send.confirm_waits import ConfirmWaits
from broker.send.message_id import host_bytes
from broker.service import Service
from broker.slave.following import Following
from broker.slave.slave_gate import gated_table
from broker.slave.slave_reads import SlaveReads
from broker.slave.slave_sessions import SlaveSessions
from broker.slave.slave_synchronize import SlaveSynchronize
from broker.subscription.request_modes import RequestModeTable
from broker.timer.schedule import DelayOffsets, DelayOffsetTable, ScheduleService
from broker.timer.timer_intake import TimerIntake
from broker.timer.timer_metrics import TimerMetricsTable
from broker.timer.timer_service import TimerService
from broker.topic.light_tables import new_tables
from broker.topic.topic_retention import Retention
from broker.transaction.check import TransactionCheck
from broker.transaction.half_escape import HalfEscape
from broker.transaction.transactions import Transactions
from sprocket.common.clock import Clock, SystemClock
from sprocket.common.configuration_file import ConfigurationFile
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.routes import RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls, ServerTls
from store.config.store_config import StoreConfig
from store.disk.disk import Disk
from store.message_store import MessageStore
from store.queue.logic_queue import QueueType

logger = logging.getLogger(__name__)

# `ClientHousekeepingService`
_CLIENT_SCAN_S = 10.0

Fatal = Callable[[SprocketError], None]
T = TypeVar("T")
# Where records say that a message is stored, until the start has found out the broker's address.
_UNKNOWN_HOST = "127.0.0.1"


def _log_fatal(error: SprocketError) -> None:
    logger.critical("event=fatal reason=%r", str(error))


class BrokerParts:
    """All parts of one broker, made and joined; `broker.server.Broker` gives them their life."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        tls: TlsSettings | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
        on_fatal: Fatal = _log_fatal,
        file: ConfigurationFile | None = None,
        random_below: Callable[[int], int] = random.randrange,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.config = LiveConfig(config, store_config, file)
        self.role = Role(config.broker_role)
        self._on_fatal, self._random_below = on_fatal, random_below
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fatal: SprocketError | None = None
        self._is_running = self._is_store_open = False

        self.store = self._new_store(store_config, disk)
        self.topics, self.groups, self.offsets = new_tables(self.config, self._file, self.clock)
        self.locks = QueueLocks(self.clock)
        self.fast_failure = FastFailure(self.config, self.clock)
        self.consumers = ConsumerRegistry(self.clock, lambda: self.config.broker.notify_consumer_ids_changed_enable)
        self.filters = ConsumerFilters(self.config, self._file("consumerFilter.json", ConsumerFilterTable), self.clock)
        self.consumers.on_subscribed.append(self.filters.subscribed)
        self.consumers.on_left.append(self.filters.group_left)
        self.producers = ProducerRegistry(self.clock)
        self.access = AccessControl(config, self.clock, store_config, tls or TlsSettings())
        self.users = self._new_users(config)
        self.server_tls, self.client_tls = ServerTls(tls or TlsSettings()), ClientTls.of(tls)
        self.client = RemotingClient(credentials=self.access.credentials, tls=self.client_tls)
        self._new_deliveries(store_config.message_delay_level)
        self.registration = Registration(self.config, self.topics, self.client)
        self.retention = Retention(self.config, self.topics, self.store)
        self.topics.on_change = self._topics_changed

        self._set_store_host(_UNKNOWN_HOST, config.listen_port)
        self.waits = ConfirmWaits(self.store, self.clock, _call_later, config.broker_role, self.topics.saving)
        self._core = self._new_core()
        self.timer = TimerService(self._core, self._file("timermetrics", TimerMetricsTable))
        self.pop = PopService(self._core, self._file("consumerOrderInfo.json", OrderInfoTable))
        self.revive = ReviveService(self._core, self.pop.log)
        any_port = config.listen_port == 0 and config.ha_listen_port == 0
        self.replication = Replication(self._core, any_port=any_port, tls=self.server_tls)
        self.revive.on_revived.append(self.pop.revived)
        self.revive.timer = self.timer.timer if store_config.timer_wheel_enable else None
        self._new_reads()
        self.traffic = Traffic(self._core, self.pulls, self.pop)
        self.following: Following | None = None
        self._services = self._new_services()
        self._active_services = ActiveServices(self.role, self._services)
        self.pre_online = self.presence.pre_online(
            self._core, self.registration, self._active_services, self.schedule.offsets, self.timer, self.replication
        )
        self.routes = self.access.guard(self._new_routes())
        self.routes.overload = self.fast_failure.verdict
        self._server = self._new_server(config)
        self._periodic = self._periodic_work()

    def _new_users(self, config: BrokerConfig) -> Users:
        """Who may do what; nobody is asked before they are loaded."""
        folder = self.config.store.store_path_root_dir / "config"
        users = Users(config, folder, self._fail, is_slave=self.role.is_slave)
        if users.policy is not None:
            self.access.ask_users(users.policy)
        return users

    def _new_reads(self) -> None:
        """What answers pulls, and holds those that find nothing."""
        self.broadcasts = BroadcastOffsets(self._core)
        self.pulls = PullProcessor(
            self.config, self.store, self.topics, self.groups, self.consumers, self.offsets, self.filters
        )
        self.held = HeldPulls(self.store, self.clock, _call_later, self.pulls.answer_held)
        self.pulls.held = self.held
        self.pulls.broadcasts = self.broadcasts
        self.store.on_arrival.append(self.held.arrived)

    def _new_deliveries(self, delay_levels: str) -> None:
        """What puts messages into their topics later: delays and transactions."""
        self._delivery = delivery(self.config, self.role, self.store, self.client, self.clock)
        delay_offsets = DelayOffsets(self._file("delayOffset.json", DelayOffsetTable), self.clock)
        self.schedule = ScheduleService(self.store, self._delivery, delay_offsets, delay_levels, self.clock)
        self.transactions = Transactions(self.config, self.store, self.offsets, self.clock)
        self.transaction_check = TransactionCheck(
            self.config, self.store, self.topics, self.producers, self.transactions, self.clock, _call_later
        )
        self.transaction_check.may_ask = self.access.may_publish

    def _new_core(self) -> BrokerCore:
        return BrokerCore(
            self.config, self.role, self.clock, _call_later, self._random_below, self.store, self.topics, self.groups,
            self.offsets, self.locks, self.consumers, self.producers, self.filters, self.waits,
            TimerIntake(self.config, self.clock, self._random_below), self.client, self._fail,
            self._delivery,
        )  # fmt: skip

    def _new_services(self) -> list[Service]:
        """The parts with a life of their own, in the order of their start."""
        assignments = AssignmentService(self._core, self._file("messageRequestMode.json", RequestModeTable))
        modes, order_info = assignments.modes, self.pop.order_info
        own = self.users.replicated()
        self.tables = ReplicatedTables(self._core, self.schedule.offsets, self.timer, modes, order_info, own)
        sessions = MasterSessions(self._core, self.replication, self.tables, self.access)
        following = self._slave_services() if self.role.is_slave else []
        presence = self._presence_services()
        if self.config.broker.name_servers:
            sessions.ask_members = self.presence.members.ask
        return [
            self.access,
            self.users,
            self.tables,  # first: those that serve the group stand on them
            self.schedule,
            HalfEscape(self._core, self.transactions) if self.role.is_slave else self.transaction_check,
            self.timer,
            assignments,
            self.broadcasts,
            self.pop,
            self.revive,
            NotificationService(self._core, self.pop),
            IdleOffsets(self._core),
            self.traffic,
            ColdFlow(self._core, self.pulls),
            self.replication,
            sessions,
            *following,
            *presence,
            PeerIdentity(self._core, self.registration, self.access),
            NameServerProbe(self._core, self.access, self.client_tls),
            TableSaving(self._core, self.schedule.offsets),  # last: the others commit offsets when they save
        ]

    def _slave_services(self) -> list[Service]:
        self.following = following = Following(self._core, self.registration, self.client_tls)
        self.pulls.slave = SlaveReads(self.config, self.role, self.clock, following.is_master_online, self.held)
        self.replication.slave_status = following.status
        self.synchronize = polling = SlaveSynchronize(self._core, following, self.tables)
        sessions = SlaveSessions(self._core, following, self.tables, polling, self.access)
        return [following, sessions, self.pulls.slave, polling]

    def _presence_services(self) -> list[Service]:
        self.presence = GroupPresence.of(self._core, self.registration, self.following, self.revive)
        return self.presence.services

    def _new_routes(self) -> RouteTable:
        parts = self.schedule, self.timer, self.revive, self.registration, self.traffic, self.replication
        routes = message_routes(self._core, self.transactions, self.pulls, self.pop)
        routes += admin_routes(self._core, *parts, self.access)
        accounts = PlainAccountsProcessor(
            self.config, self.access.plain_files, self.access.accounts_changed, lambda: self.registration.address,
            self.clock,
        )  # fmt: skip
        served = [*routes, *accounts.routes(), *(route for service in self._services for route in service.routes())]
        return gated_table(self.role, served)

    def _new_server(self, config: BrokerConfig) -> RemotingServer:
        server = RemotingServer(
            self.routes,
            host=config.bind_address,
            port=config.listen_port,
            idle_s=config.server_channel_max_idle_time_seconds,
            on_bug=self._fail,
            tls=self.server_tls,
            receive_buffer_bytes=config.server_socket_rcv_buf_size,
            send_buffer_bytes=config.server_socket_snd_buf_size,
        )
        server.on_close.append(self._channel_closed)
        self.config.on_update.append(self._configure)
        return server

    def _periodic_work(self) -> list[Periodic]:
        return [
            Periodic("client_scan", _CLIENT_SCAN_S, self._expire_clients),
            Periodic("fast_failure", CHECK_S, self.fast_failure.look),
            *(work for service in self._services for work in service.periodic()),
        ]

    def _file(self, name: str, content_type: type[T]) -> ConfigFile[T]:
        path = self.config.store.store_path_root_dir / "config" / name
        return ConfigFile(path, content_type, failed=lambda error: self._notify(lambda: self._fail(error)))

    def _new_store(self, config: StoreConfig, disk: Disk | None) -> MessageStore:
        def queue_type_of(topic: str) -> QueueType | None:
            return self.topics.queue_type(topic)

        store = MessageStore(config, clock=self.clock, notify=self._notify, disk=disk, queue_type_of=queue_type_of)
        store.on_failure.append(self._fail)
        return store

    # While it runs

    def _topics_changed(self, configs: list[TopicConfig]) -> None:
        if not configs:
            self.pop.topic_deleted()
        self.registration.topics_changed(configs)
        self.retention.topics_changed(configs)

    def _configure(self, changed: dict[str, str]) -> None:
        """Take changed keys that no part of its own reads each time."""
        if changed:
            self.waits.configure(self.config.store)
            self._server.idle_s = self.config.broker.server_channel_max_idle_time_seconds

    def _set_store_host(self, host: str, port: int) -> None:
        self.store.store_host = host_bytes(host, port)

    def _expire_clients(self) -> None:
        timeout_s = self.config.broker.channel_expired_timeout / 1000
        self.consumers.expire(timeout_s)
        self.producers.expire(timeout_s)

    def _channel_closed(self, channel: RemotingChannel) -> None:
        self.held.drop_channel(channel.id)
        for service in self._services:
            service.channel_closed(channel)
        self.consumers.channel_closed(channel)
        self.producers.channel_closed(channel)

    def _notify(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop's thread; called from others.  Without a loop there is no one to tell."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _fail(self, error: SprocketError) -> None:
        if self._fatal is None:
            self._fatal = error
            self._on_fatal(error)


def _call_later(seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, callback)
