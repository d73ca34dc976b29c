"""A broker: its port for clients, the parts that last, and one term after the other of those that have a role.

Source of the order: RocketMQ 5.3.3, `BrokerController.start`, `shutdown`.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Final

from acl.peer_identity import CONTROLLER
from broker.appointment import Appointment
from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.config.local_address import resolved
from broker.controller.membership import join_group
from broker.controller.replica import ControlledReplica, Epochs, Manage, StoreLog
from broker.controller.role_switch import BrokerRoleSwitch
from broker.environment import Environment, Fatal, log_fatal
from broker.fast_failure import CHECK_S
from broker.message_id import host_bytes
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.parts import BrokerParts, build
from broker.periodic import Periodic
from broker.process_parts import build_process_parts
from broker.role import Role
from broker.service import Service
from broker.slave.slave_synchronize import SlaveSynchronize
from broker.term import Step, Term
from broker.turns import loop_later, run_in_turns
from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import OPEN_END
from ha.lease import Lease
from sprocket.common.clock import Clock, SystemClock, since_boot
from sprocket.common.config.configuration_file import ConfigurationFile
from sprocket.common.errors import SprocketError, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.invariant import invariant
from sprocket.metrics.export import MetricsExport
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.in_process import Connect
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.tls.settings import TlsSettings
from store.config.store_config import StoreConfig
from store.disk.disk import Disk, RealDisk

logger = logging.getLogger(__name__)

_VIP_BELOW: Final = 2
# `ClientHousekeepingService`
_CLIENT_SCAN_S: Final = 10.0
# Groups of a closed connection that are left in one turn of the loop: some 20 us each.
_GROUPS_AT_ONCE: Final = 32
_START_LISTENING: Final = failpoint("server.start_listening")
_STOP_NOT_ACCEPTING: Final = failpoint("server.stop_not_accepting")
_STOP_CLOSED: Final = failpoint("server.stop_closed")
_STOP_SAVED: Final = failpoint("server.stop_saved")


class Broker:
    """One broker in this process.

    `on_fatal` gets an error that the broker cannot survive: a failed disk (nothing is acknowledged any more) or a bug.
    The caller then ends the process; `stop` may be called and flushes as much as possible.

    With enableControllerMode the broker starts as a replica without a master.  `manage` makes the part that talks with
    controllers, `epochs` keeps the history of the log, and `lease_now` is the clock of leases, in seconds.
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
        manage: Manage = join_group,
        epochs: Epochs | None = None,
        lease_now: Callable[[], float] = since_boot,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.config = LiveConfig(config, store_config, file)
        self._is_controlled = config.enable_controller_mode
        lease = Lease() if self._is_controlled else None
        self._environment = Environment(
            self.config, self.clock, on_fatal, random_below,
            None if lease is None else lambda: lease.is_held(lease_now()),
            restart=self._restart if self._is_controlled else None,
        )  # fmt: skip
        self._is_running = False
        # Held while a term ends and another one begins, and by the stop.
        self._changing = asyncio.Lock()
        self._restarting: asyncio.Task[None] | None = None
        # Whether the store's next start truncates its log.
        self._must_reopen = False
        self._appointment = Appointment(config.broker_role, config.broker_id)
        managers: list[Service] = []
        file_of_epochs: EpochFile | None = None
        if lease is not None:
            self._appointment = Appointment.resting(0)
            if epochs is None:
                file_of_epochs = EpochFile(disk or RealDisk(), store_config.epoch_file_path, OPEN_END)
            switch = BrokerRoleSwitch(
                self.config, lease, epochs or file_of_epochs, present=lambda: self._appointment, change=self._change,
                follow=self._follow, fence=self._fence,
            )  # fmt: skip
            managers.append(manage(self._controlled(lease, lease_now, switch, file_of_epochs)))
            self.config.replace_broker(self._config_for(self._appointment))
        self.process = build_process_parts(self._environment, tls, disk, managers, file_of_epochs)
        self.access, self.users = self.process.access, self.process.users
        self.client = self.process.client
        self.server_tls, self.client_tls = self.process.server_tls, self.process.client_tls
        self.consumers, self.producers = self.process.consumers, self.process.producers
        self.filters, self.fast_failure = self.process.filters, self.process.fast_failure
        self._lasting_work = [
            Periodic("client_scan", _CLIENT_SCAN_S, self._expire_clients),
            Periodic("fast_failure", CHECK_S, self.fast_failure.report),
            *(work for service in self.process.services for work in service.periodic()),
        ]
        self._take(build(self._environment, Role(self._appointment.role), self.process))
        self._server = self._new_server(config)
        self.export = MetricsExport(
            config, lambda: self.metrics.read(), self.clock, host=config.broker_ip1, scope="broker-meter"
        )

    def _take(self, parts: BrokerParts, *, is_store_open: bool = False, offsets: ConsumerOffsets | None = None) -> None:
        """Make `parts` those of the present term; `offsets` are those of the last one."""
        self._term = Term(parts, is_store_open=is_store_open, offsets=offsets)
        self._core = core = parts.core
        self.role, self.store, self.waits = core.role, core.store, core.waits
        self.topics, self.groups, self.offsets, self.locks = core.topics, core.groups, core.offsets, core.locks
        self.registration, self.retention = parts.registration, parts.retention
        self.schedule, self.timer = parts.deliveries.schedule, parts.deliveries.timer
        self.transactions = parts.deliveries.transactions
        self.transaction_check = parts.deliveries.transaction_check
        self.pop, self.revive = parts.pops.pop, parts.pops.revive
        self.pulls, self.held, self.broadcasts = parts.pulls.pulls, parts.pulls.held, parts.pulls.broadcasts
        self.traffic, self.routes, self.figures = parts.traffic, parts.routes, parts.figures
        self.metrics, self.flow = parts.metrics, core.flow
        self.replication, self.tables, self._slave = parts.slave_port.replication, parts.tables, parts.slave
        self.following = None if parts.slave is None else parts.slave.following
        self.presence, self.pre_online = parts.presence, parts.pre_online
        self._services = [*self.process.services, *parts.services]
        self._periodic = [*self._lasting_work, *self._term.periodic]

    def _new_server(self, config: BrokerConfig) -> RemotingServer:
        server = RemotingServer(
            self.routes,
            config,
            port=config.listen_port,
            on_bug=self._environment.fail,
            tls=self.server_tls,
            clock=self.clock,
        )
        server.on_close.append(self._channel_closed)
        self.config.on_update.append(self._configure)
        return server

    def _controlled(
        self, lease: Lease, lease_now: Callable[[], float], switch: BrokerRoleSwitch, epochs: EpochFile | None
    ) -> ControlledReplica:
        return ControlledReplica(
            config=self.config, clock=self.clock, lease=lease, lease_now=lease_now, switch=switch,
            log=StoreLog(lambda: self.store, epochs), sync_state=lambda: self.replication,
            on_newer_epoch=self._environment.on_newer_epoch, new_client=lambda: self.process.new_client(CONTROLLER),
            fail=self._environment.fail,
        )  # fmt: skip

    @property
    def synchronize(self) -> SlaveSynchronize:
        """Part that gets tables from the master.  Raises InvariantError unless this is a slave."""
        invariant(self._slave is not None, "only a slave gets tables from a master")
        assert self._slave is not None
        return self._slave.synchronize

    @property
    def is_running(self) -> bool:
        """Whether the start is done and the stop has not begun."""
        return self._is_running

    @property
    def port(self) -> int:
        """Port for clients, once started."""
        return self.config.broker.listen_port

    @property
    def address(self) -> str:
        """``host:port`` that is registered for clients, once started."""
        return self.registration.address

    def in_process(self, address: str) -> Connect | None:
        """Return what connects a client in this process with this broker, if it is the one at `address`.

        The client must have asked this broker's users and policies about each request.  None with accounts of ACL 1.0,
        which it does not ask.
        """
        is_here = self._is_running and address == self.address and self.access.plain_files is None
        return self._server.connect if is_here else None

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
            await self._term.open(self._log_opened(None), self._load_lasting)
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
        for service in self.process.services:
            service.check()
        self._term.check()
        if self.client_tls is not None:
            self.client_tls.start()
        host = await resolved(self.config.broker.broker_ip1)
        await self._server.bind()
        self.store.store_host = host_bytes(host, self._server.port)
        self.config.replace_broker(self.config.broker.with_ports(self._server.port))
        for service in self.process.services:
            await service.bind()
        await self._term.bind()
        await self.export.bind()

    def _load_lasting(self) -> None:
        self.filters.load()
        for service in self.process.services:
            service.load()

    async def _serve(self) -> None:
        await self._server.start()
        for service in self.process.services:
            await service.listen()
        await self._term.listen()
        await self._listen_for_slaves_of_rocketmq()
        _START_LISTENING()
        self._is_running = True
        for service in self.process.services:
            service.start()
        for work in self._lasting_work:
            work.start()
        await self.export.start()
        self._term.start()

    async def _abandon(self) -> None:
        """Release everything after a failed start; log the errors of that, so that the first error is raised."""
        self._is_running = False
        steps: list[Step] = [
            self._server.stop_accepting,
            self.export.stop,
            *self._term.abandon(),
            self.process.client.close,
            *(service.stop for service in reversed(self.process.services)),
            *(work.stop for work in self._lasting_work),
            self._server.stop,
            self.process.ha_port.close,
            *self._term.abandon_store(),
        ]
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

    # Changes of the role

    async def _change(self, appointment: Appointment) -> None:
        """End the present term, and begin the one of `appointment`; requests that arrive meanwhile wait.

        After an error nothing is left running, as after a failed start, and the owner of the process is told.
        """
        async with self._changing:
            if not self._is_running:
                raise StoreError("the broker does not run")
            self._appointment = appointment
            began_s = self.clock.monotonic()
            host = self.store.store_host
            self._server.hold()
            try:
                keeps_store, self._must_reopen = not self._must_reopen, False
                store = await self._term.end(keeps_store=keeps_store)
                ended_s = self.clock.monotonic()
                self.config.replace_broker(self._config_for(appointment))
                parts = build(self._environment, Role(appointment.role), self.process, store)
                self._take(parts, is_store_open=store is not None, offsets=self.offsets)
                self.store.store_host = host
                await self._begin(appointment)
            except BaseException as error:
                await self._abandon()
                self._environment.fail(error if isinstance(error, SprocketError) else StoreError(repr(error)))
                raise
            self._server.serve(self.routes)
            logger.warning(
                "event=role_changed_to role=%s id=%d log_end=%d ended_ms=%d took_ms=%d", appointment.role.value,
                appointment.broker_id, self.store.wrote_offset, (ended_s - began_s) * 1000,
                (self.clock.monotonic() - began_s) * 1000,
            )  # fmt: skip

    async def _begin(self, appointment: Appointment) -> None:
        self._term.check()
        await self._term.bind()
        await self._term.open(self._log_opened(appointment.begin), lambda: None)
        await self._term.listen()
        self._term.start()
        self._follow(self._appointment)  # another master by now, perhaps

    def _log_opened(self, begin: Callable[[int], None] | None) -> Callable[[int], None]:
        """Return what is done with the end of the log: epochs after it are cut, and a new one may begin."""

        def opened(log_end: int) -> None:
            if self.process.epochs is not None:
                self.process.epochs.cut_at(log_end)
            if begin is not None:
                begin(log_end)

        return opened

    def _config_for(self, appointment: Appointment) -> BrokerConfig:
        return replace(self.config.broker, broker_role=appointment.role, broker_id=appointment.broker_id)

    def _follow(self, appointment: Appointment) -> None:
        """Follow the master of `appointment`, if this term is a slave's."""
        self._appointment = appointment
        if self.presence.appointed is not None:
            self.presence.appointed.follow(appointment.master_address)

    def _fence(self) -> None:
        """Append nothing more in this term; what waits is answered without its lease."""
        self.store.refuse("the broker is no master any more: send to the master of its group")

    def _restart(self) -> None:
        """End the term and begin it again in the same role: only a start of the store truncates its log."""
        term = self._term
        self._must_reopen = True  # also if another role comes first

        async def again() -> None:
            if term is self._term and self._is_running:
                await self._change(self._appointment)

        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.get_running_loop().create_task(again())
            self._restarting.add_done_callback(_ended)

    # Stop

    async def stop(self) -> None:
        """Stop in order: refuse new connections, unregister, write everything to disk, remove `abort`.

        After a disk failure nothing more is written.
        """
        async with self._changing:
            if self._is_running:
                self._is_running = False
                await self._stop()

    async def _stop(self) -> None:
        term, process = self._term, self.process
        await self._server.stop_accepting()
        _STOP_NOT_ACCEPTING()
        await self.export.stop()
        await term.leave(stays_registered=False)
        await process.client.close()
        # Else the answer to each held request would bring the next one, to services that have stopped.
        self._server.hold(drops=True)
        await term.stop_services()
        for service in reversed(process.services):
            service.stop()
        for work in self._lasting_work:
            await work.stop()
        await term.stop_work()
        await self._server.stop()
        process.ha_port.close()
        self.waits.close()
        _STOP_CLOSED()
        term.flush()
        failed = self.store.failure is not None
        if not failed:
            self._save_everything()
            _STOP_SAVED()
        term.close()
        logger.info("event=stopped broker=%s clean=%s", self.config.broker.broker_name, not failed)

    def _save_everything(self) -> None:
        try:
            self._term.save()
            for service in self.process.services:
                service.save()
        except StoreError as error:
            logger.error("event=config_not_saved reason=%r", str(error))

    # While it runs

    def _configure(self, changed: dict[str, str]) -> None:
        """Apply changed keys that no part reads each time it needs them."""
        self.retention.config_changed(changed)
        for service in self._services:
            service.configured(changed)
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
        of_groups = chain(self.consumers.channel_closed(channel), self.producers.channel_closed(channel))
        run_in_turns(of_groups, _GROUPS_AT_ONCE, loop_later)


def _ended(task: "asyncio.Task[None]") -> None:
    # A failed change was reported where it failed.
    if not task.cancelled() and task.exception() is not None:
        logger.error("event=role_change_failed reason=%r", str(task.exception()))
