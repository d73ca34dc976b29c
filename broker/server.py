"""The broker: builds store, tables and processors, and starts and stops them in order.

Source of the order: RocketMQ 5.3.3, `BrokerController.initialize`, `start`, `shutdown`.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, TypeVar

from broker.broadcast_offsets import BroadcastOffsets
from broker.clients import ConsumerRegistry, ProducerRegistry
from broker.config import BrokerConfig
from broker.config_file import ConfigFile
from broker.confirm_waits import ConfirmWaits
from broker.consumer_filters import ConsumerFilters, ConsumerFilterTable
from broker.core import BrokerCore
from broker.following import Following
from broker.group_presence import GroupPresence, delivery
from broker.group_work import GroupWork
from broker.idle_offsets import IdleOffsets
from broker.light_tables import new_tables
from broker.live_config import LiveConfig
from broker.local_address import resolved
from broker.long_polling import HeldPulls
from broker.master_sessions import MasterSessions
from broker.message_id import host_bytes
from broker.periodic import Periodic
from broker.pop.notifications import NotificationService
from broker.pop.order_info import OrderInfoTable
from broker.pop.pop_service import PopService
from broker.pop.revive import ReviveService
from broker.processors.assembly import admin_routes, message_routes
from broker.processors.assignments import AssignmentService
from broker.processors.pull import PullProcessor
from broker.queue_locks import QueueLocks
from broker.registration import Registration
from broker.replicated_tables import ReplicatedTables
from broker.replication import Replication
from broker.request_modes import RequestModeTable
from broker.retention import Retention
from broker.role import Role
from broker.schedule import DelayOffsets, DelayOffsetTable, ScheduleService
from broker.service import Service
from broker.slave_gate import gated_table
from broker.slave_reads import SlaveReads
from broker.slave_sessions import SlaveSessions
from broker.slave_synchronize import SlaveSynchronize
from broker.table_saving import TableSaving
from broker.timer.timer_intake import TimerIntake
from broker.timer.timer_metrics import TimerMetricsTable
from broker.timer.timer_service import TimerService
from broker.traffic import Traffic
from broker.transaction.check import TransactionCheck
from broker.transaction.half_escape import HalfEscape
from broker.transaction.transactions import Transactions
from remoting.bodies.topic import TopicConfig
from remoting.channel import RemotingChannel
from remoting.client import RemotingClient
from remoting.routes import RouteTable
from remoting.server import RemotingServer
from sprocket.common.clock import Clock, SystemClock
from sprocket.common.errors import SprocketError, StoreError
from sprocket.common.failpoints import failpoint
from store.config import StoreConfig
from store.disk import Disk
from store.logic_queue import QueueType
from store.message_store import MessageStore

logger = logging.getLogger(__name__)

# `ClientHousekeepingService`
_CLIENT_SCAN_S = 10.0

Fatal = Callable[[SprocketError], None]
T = TypeVar("T")
# Where records say that a message is stored, until the start has found out the broker's address.
_UNKNOWN_HOST = "127.0.0.1"
_START_STORE_OPEN: Final = failpoint("server.start_store_open")
_START_LISTENING: Final = failpoint("server.start_listening")
_STOP_NOT_ACCEPTING: Final = failpoint("server.stop_not_accepting")
_STOP_CLOSED: Final = failpoint("server.stop_closed")
_STOP_SAVED: Final = failpoint("server.stop_saved")
_STOP_TOPICS_SAVED: Final = failpoint("server.stop_topics_saved")


def _log_fatal(error: SprocketError) -> None:
    logger.critical("event=fatal reason=%r", str(error))


class Broker:
    """One broker in this process.

    `on_fatal` hears of what the broker cannot go on after: a failed disk (nothing is acknowledged any more)
    or a bug of ours.  The caller then ends the process; `stop` may be called and flushes what it still can.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        on_fatal: Fatal = _log_fatal,
        random_below: Callable[[int], int] = random.randrange,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.config = LiveConfig(config, store_config)
        self.role = Role(config.broker_role)
        self._on_fatal = on_fatal
        self._random_below = random_below
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fatal: SprocketError | None = None
        self._is_running = False

        self.store = self._new_store(store_config, disk)
        self.topics, self.groups, self.offsets = new_tables(self.config, self._file, self.clock)
        self.locks = QueueLocks(self.clock)
        self.consumers = ConsumerRegistry(self.clock, lambda: self.config.broker.notify_consumer_ids_changed_enable)
        self.filters = ConsumerFilters(self.config, self._file("consumerFilter.json", ConsumerFilterTable), self.clock)
        self.consumers.on_subscribed.append(self.filters.subscribed)
        self.consumers.on_left.append(self.filters.group_left)
        self.producers = ProducerRegistry(self.clock)
        delay_offsets = DelayOffsets(self._file("delayOffset.json", DelayOffsetTable), self.clock)
        self.client = RemotingClient()
        self._delivery = delivery(self.config, self.role, self.store, self.client, self.clock)
        levels = store_config.message_delay_level
        self.schedule = ScheduleService(self.store, self._delivery, delay_offsets, levels, self.clock)
        self.transactions = Transactions(self.config, self.store, self.offsets, self.clock)
        self.transaction_check = TransactionCheck(
            self.config, self.store, self.topics, self.producers, self.transactions, self.clock, _call_later
        )
        self.registration = Registration(self.config, self.topics, self.client)
        self.retention = Retention(self.config, self.topics, self.store)
        self.topics.on_change = self._topics_changed

        self._set_store_host(_UNKNOWN_HOST, config.listen_port)
        self.waits = ConfirmWaits(self.store, self.clock, _call_later, config.broker_role)
        self._core = self._new_core()
        self.timer = TimerService(self._core, self._file("timermetrics", TimerMetricsTable))
        self.pop = PopService(self._core, self._file("consumerOrderInfo.json", OrderInfoTable))
        self.revive = ReviveService(self._core, self.pop.log)
        self.replication = Replication(self._core, any_port=config.listen_port == 0 and config.ha_listen_port == 0)
        self.revive.on_revived.append(self.pop.revived)
        self.revive.timer = self.timer.timer if store_config.timer_wheel_enable else None
        self._new_reads()
        self.traffic = Traffic(self._core, self.pulls, self.pop)
        self.following: Following | None = None
        self._services = self._new_services()
        self._group_work = GroupWork(self.role, self._services)
        self.pre_online = self.presence.pre_online(
            self._core, self.registration, self._group_work, delay_offsets, self.timer, self.replication
        )
        self.routes = self._new_routes()
        self._server = self._new_server(config)
        self._periodic = self._periodic_work()

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
        self.tables = ReplicatedTables(self._core, self.schedule.offsets, self.timer, modes, order_info)
        return [
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
            self.replication,
            MasterSessions(self._core, self.replication, self.tables),
            *(self._slave_services() if self.role.is_slave else []),
            *self._presence_services(),
            TableSaving(self._core, self.schedule.offsets),  # last: the others commit offsets when they save
        ]

    def _slave_services(self) -> list[Service]:
        self.following = following = Following(self._core, self.registration)
        self.pulls.slave = SlaveReads(self.config, self.role, self.clock, following.is_master_online, self.held)
        self.replication.slave_status = following.status
        self.synchronize = polling = SlaveSynchronize(self._core, following, self.tables)
        return [following, SlaveSessions(self._core, following, self.tables, polling), self.pulls.slave, polling]

    def _presence_services(self) -> list[Service]:
        self.presence = GroupPresence.of(self._core, self.registration, self.following)
        return self.presence.services

    def _new_routes(self) -> RouteTable:
        parts = self.schedule, self.timer, self.revive, self.registration, self.traffic, self.replication
        routes = message_routes(self._core, self.transactions, self.pulls) + admin_routes(self._core, *parts)
        served = [*routes, *(route for service in self._services for route in service.routes())]
        return gated_table(self.role, served)

    def _new_server(self, config: BrokerConfig) -> RemotingServer:
        server = RemotingServer(
            self.routes,
            host=config.bind_address,
            port=config.listen_port,
            idle_s=config.server_channel_max_idle_time_seconds,
            on_bug=self._fail,
        )
        server.on_close.append(self._channel_closed)
        return server

    def _periodic_work(self) -> list[Periodic]:
        return [
            Periodic("client_scan", _CLIENT_SCAN_S, self._expire_clients),
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

    @property
    def port(self) -> int:
        """The port that is listened on, once started."""
        return self.config.broker.listen_port

    @property
    def address(self) -> str:
        """``host:port`` that clients are told to connect to, once started."""
        return self.registration.address

    # Start

    async def start(self) -> None:
        """Recover the store, read the configuration files, listen, and begin to register.

        Does not wait for a name server; see `registration.wait_registered`.  Raises `StoreError`, or
        ConfigError, also when the port cannot be had; then nothing is left running.
        """
        self._loop = asyncio.get_running_loop()
        host = await resolved(self.config.broker.broker_ip1)
        self._set_store_host(host, self.config.broker.listen_port)
        self.topics.load()  # first: the store asks it for the types of queues
        await asyncio.to_thread(self.store.start)
        _START_STORE_OPEN()
        try:
            self.retention.start()
            self.groups.load()
            self.offsets.load()
            self.filters.load()
            self.schedule.offsets.load()
            if self.role.serves_group:  # to a slave the rest of the log is still to come
                self.offsets.clamp(self.store.max_offset)
            self.transactions.load(writes=not self.role.is_slave)
            for service in self._services:
                service.load()
            await self._server.start()
            _START_LISTENING()
        except BaseException:
            self.store.shutdown()
            raise
        port = self._server.port
        self._set_store_host(host, port)
        self.config.replace_broker(self.config.broker.with_ports(port))
        await self._listen()
        self._is_running = True
        for service in self._services:
            service.start()
        for work in self._periodic:
            work.start()
        self.pre_online.start()
        logger.info(
            "event=started broker=%s cluster=%s address=%s store=%s",
            self.config.broker.broker_name, self.config.broker.broker_cluster_name, self.address,
            self.config.store.store_path_root_dir,
        )  # fmt: skip

    async def _listen(self) -> None:
        """Open the services' own ports; without one of them the broker does not start."""
        try:
            for service in self._services:
                await service.listen()
        except BaseException:
            for service in self._services:
                service.stop()
            await self._server.stop()
            self.store.shutdown()
            raise

    def _set_store_host(self, host: str, port: int) -> None:
        self.store.store_host = host_bytes(host, port)

    # Stop

    async def stop(self) -> None:
        """Leave in order: no new connections, off every name server, everything on disk, `abort` removed.

        After a failure of the disk nothing more is written.
        """
        if not self._is_running:
            return
        self._is_running = False
        await self._server.stop_accepting()
        _STOP_NOT_ACCEPTING()
        # Until every name server has forgotten us, clients that come are still served.
        await self.pre_online.stop()
        await self.registration.stop()
        await self.client.close()
        self._group_work.stop()
        for service in reversed(self._services):
            service.stop()
        if self.store.failure is None:
            self.store.flush()  # for which the saving of offsets may wait
        for work in self._periodic:
            await work.stop()
        self.held.wake_all()
        self.held.close()
        await self._server.stop()
        self.waits.close()
        _STOP_CLOSED()
        if self.store.failure is None:
            self.store.flush()
        failed = self.store.failure is not None
        if not failed:
            self._save_everything()
            _STOP_SAVED()
        self.store.shutdown()
        logger.info("event=stopped broker=%s clean=%s", self.config.broker.broker_name, not failed)

    def _save_everything(self) -> None:
        try:
            self.topics.persist()
            self.groups.persist()
            _STOP_TOPICS_SAVED()
            self.transactions.commit_offsets()
            for service in self._services:
                service.save()
        except StoreError as error:
            logger.error("event=config_not_saved reason=%r", str(error))

    # While it runs

    def _topics_changed(self, configs: list[TopicConfig]) -> None:
        if not configs:
            self.pop.topic_deleted()
        self.registration.topics_changed(configs)
        self.retention.topics_changed(configs)

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
