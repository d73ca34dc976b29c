"""Start and stop of a broker's parts, in order.

Source of the order: RocketMQ 5.3.3, `BrokerController.start`, `shutdown`.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.config.local_address import resolved
from broker.environment import Environment, Fatal, log_fatal
from broker.fast_failure import CHECK_S
from broker.parts import build
from broker.periodic import Periodic
from broker.role import Role
from broker.send.message_id import host_bytes
from broker.slave.slave_synchronize import SlaveSynchronize
from sprocket.common.clock import Clock, SystemClock
from sprocket.common.configuration_file import ConfigurationFile
from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.invariant import invariant
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.tls.settings import TlsSettings
from store.config.store_config import StoreConfig
from store.disk.disk import Disk

logger = logging.getLogger(__name__)

_VIP_BELOW: Final = 2
# `ClientHousekeepingService`
_CLIENT_SCAN_S: Final = 10.0
_START_STORE_OPEN: Final = failpoint("server.start_store_open")
_START_LISTENING: Final = failpoint("server.start_listening")
_STOP_NOT_ACCEPTING: Final = failpoint("server.stop_not_accepting")
_STOP_CLOSED: Final = failpoint("server.stop_closed")
_STOP_SAVED: Final = failpoint("server.stop_saved")
_STOP_TOPICS_SAVED: Final = failpoint("server.stop_topics_saved")


class Broker:
    """One broker in this process.

    `on_fatal` gets an error that the broker cannot survive: a failed disk (nothing is acknowledged any more) or a bug.
    The caller then ends the process; `stop` may be called and flushes as much as possible.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        tls: TlsSettings | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
        on_fatal: Fatal = log_fatal,
        file: ConfigurationFile | None = None,
        random_below: Callable[[int], int] = random.randrange,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.config = LiveConfig(config, store_config, file)
        self.role = Role(config.broker_role)
        self._environment = Environment(self.config, self.role, self.clock, on_fatal, random_below)
        self._is_running = self._is_store_open = False

        parts = build(self._environment, tls, disk)
        self._core = core = parts.core
        self.store, self.client, self.waits = core.store, core.client, core.waits
        self.topics, self.groups, self.offsets, self.filters = core.topics, core.groups, core.offsets, core.filters
        self.consumers, self.producers, self.locks = core.consumers, core.producers, core.locks
        self.access, self.users = parts.security.access, parts.security.users
        self.server_tls, self.client_tls = parts.security.server_tls, parts.security.client_tls
        self.registration, self.retention = parts.registration, parts.retention
        self.schedule, self.timer = parts.deliveries.schedule, parts.deliveries.timer
        self.transactions = parts.deliveries.transactions
        self.transaction_check = parts.deliveries.transaction_check
        self.pop, self.revive = parts.pops.pop, parts.pops.revive
        self.pulls, self.held, self.broadcasts = parts.pulls.pulls, parts.pulls.held, parts.pulls.broadcasts
        self.traffic, self.fast_failure, self.routes = parts.traffic, parts.fast_failure, parts.routes
        self.figures = parts.figures
        self.replication, self.tables, self._slave = parts.slave_port.replication, parts.tables, parts.slave
        self.following = None if parts.slave is None else parts.slave.following
        self.presence, self.pre_online, self._active_services = parts.presence, parts.pre_online, parts.active_services
        self._services = parts.services
        self._server = self._new_server(config)
        self._periodic = [
            Periodic("client_scan", _CLIENT_SCAN_S, self._expire_clients),
            Periodic("fast_failure", CHECK_S, self.fast_failure.report),
            *(work for service in self._services for work in service.periodic()),
        ]

    def _new_server(self, config: BrokerConfig) -> RemotingServer:
        server = RemotingServer(
            self.routes,
            config,
            on_bug=self._environment.fail,
            tls=self.server_tls,
        )
        server.on_close.append(self._channel_closed)
        self.config.on_update.append(self._configure)
        return server

    @property
    def synchronize(self) -> SlaveSynchronize:
        """Part that gets tables from the master.  Raises InvariantError unless this is a slave."""
        invariant(self._slave is not None, "only a slave gets tables from a master")
        assert self._slave is not None
        return self._slave.synchronize

    @property
    def port(self) -> int:
        """Port for clients, once started."""
        return self.config.broker.listen_port

    @property
    def address(self) -> str:
        """``host:port`` that is registered for clients, once started."""
        return self.registration.address

    # Start

    async def start(self) -> None:
        """Bind the ports, recover the store, load the tables, serve, and start to register.

        Does not wait for a name server; see `registration.wait_registered`.  Raises `StoreError`, or ConfigError, also
        for a port that cannot be bound.  After an error nothing is left running: ports, threads and the lock of the
        store are released.  An invalid configuration is refused before anything is written.
        """
        self._environment.use_running_loop()
        try:
            await self._bind()
            await self._open()
            await self._serve()
        except BaseException:
            await self._abandon()
            raise
        logger.info(
            "event=started broker=%s cluster=%s address=%s store=%s",
            self.config.broker.broker_name, self.config.broker.broker_cluster_name, self.address,
            self.config.store.store_path_root_dir,
        )  # fmt: skip

    async def _bind(self) -> None:
        """Check the configuration and bind all ports; until they are served, connections are refused."""
        self.config.store.check()
        for service in self._services:
            service.check()
        if self.client_tls is not None:
            self.client_tls.start()
        host = await resolved(self.config.broker.broker_ip1)
        await self._server.bind()
        self.store.store_host = host_bytes(host, self._server.port)
        self.config.replace_broker(self.config.broker.with_ports(self._server.port))
        for service in self._services:
            await service.bind()

    async def _open(self) -> None:
        """Recover the store and load the tables."""
        self.topics.load()  # first: the store needs the types of queues
        await asyncio.to_thread(self.store.start)
        self._is_store_open = True
        _START_STORE_OPEN()
        self.retention.start()
        self.groups.load()
        self.offsets.load()
        self.filters.load()
        self.schedule.offsets.load()
        if self.role.serves_group:  # a slave has yet to receive the rest of the log
            self.offsets.clamp(self.store.max_offset)
        self.transactions.load(writes=not self.role.is_slave)
        for service in self._services:
            service.load()

    async def _serve(self) -> None:
        await self._server.start()
        for service in self._services:
            await service.listen()
        await self._listen_for_slaves_of_rocketmq()
        _START_LISTENING()
        self._is_running = True
        for table in self.tables.awaited:
            table.start()
        for service in self._services:
            service.start()
        for work in self._periodic:
            work.start()
        self.pre_online.start()

    async def _abandon(self) -> None:
        """Release everything after a failed start; log the errors of that, so that the first error is raised."""
        self._is_running = False
        steps: list[Callable[[], Awaitable[None] | None]] = [
            self._server.stop_accepting,
            self.pre_online.stop,
            self.registration.stop,
            self.client.close,
            self._active_services.stop,
            *(service.stop for service in reversed(self._services)),
            *(work.stop for work in self._periodic),
            self.held.close,
            self._server.stop,
            self.waits.close,
        ]
        if self._is_store_open:
            steps.append(self.store.shutdown)
        for step in steps:
            try:
                done = step()
                if done is not None:
                    await done
            except Exception as error:
                logger.error("event=start_not_undone step=%s", step.__qualname__, exc_info=error)

    async def _listen_for_slaves_of_rocketmq(self) -> None:
        """Open RocketMQ's VIP port, on which its slaves get topics and the timer's progress from their master.

        Source: RocketMQ 5.3.3, `MixAll.brokerVIPChannel`, `BrokerController.initializeRemotingServer`.
        """
        if self.config.broker.listen_port > _VIP_BELOW:
            port = self.config.broker.listen_port - _VIP_BELOW
            reason = await self._server.listen_also(port)
            if reason:
                logger.warning("event=vip_port_not_open port=%d reason=%r", port, reason)

    # Stop

    async def stop(self) -> None:
        """Stop in order: refuse new connections, unregister, write everything to disk, remove `abort`.

        After a disk failure nothing more is written.
        """
        if not self._is_running:
            return
        self._is_running = False
        await self._server.stop_accepting()
        _STOP_NOT_ACCEPTING()
        # Until every name server has removed this broker, new clients are still served.
        await self.pre_online.stop()
        await self.registration.stop()
        await self.client.close()
        self._active_services.stop()
        for service in reversed(self._services):
            service.stop()
        if self.store.failure is None:
            self.store.flush()  # a save of offsets may wait for it
        for work in self._periodic:
            await work.stop()
        self.held.wake_all()
        self.held.close()
        for table in self.tables.awaited:
            await table.stop()
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

    def _configure(self, changed: dict[str, str]) -> None:
        """Apply changed keys that no part reads each time it needs them."""
        if changed:
            self.waits.configure(self.config.store)
            self._server.configure(self.config.broker)

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
