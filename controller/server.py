"""Controller: broker groups behind one remoting server, agreed upon with the other controllers."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from acl.auth.server_access import AccessControl
from acl.peer_identity import CONTROLLER, PeerIdentity, is_dialed
from controller.config import ControllerConfig
from controller.consensus import MakeConsensus, Surroundings, raft
from controller.failover import Failover
from controller.live_brokers import Heartbeat, LiveBrokers
from controller.metrics import ControllerCounts, bytes_below, node_metrics
from controller.processor.brokers import BrokerProcessor
from controller.processor.operators import OperatorProcessor
from controller.replica_service import ReplicaService
from controller.state.machine import ControllerMachine
from ha.shared_secret import secret_of
from sprocket.common.clock import Clock, SystemClock
from sprocket.common.config.configuration_file import ConfigurationFile
from sprocket.common.config.live_settings import LiveSettings
from sprocket.common.errors import ConfigError, SprocketError
from sprocket.metrics.export import MetricsExport, server_labels
from sprocket.metrics.registry import MetricRegistry
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.routes import RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls, ServerTls

logger = logging.getLogger(__name__)

# Limit on connecting to a broker for a notice (`doNotifyBrokerRoleChanged`).
_NOTIFY_TIMEOUT_S: Final = 3.0
# How soon a controller that begins to lead looks for lost masters.
_TICK_S: Final = 0.1
# First scan for silent brokers after the start (`DefaultBrokerHeartbeatManager.start`).
_FIRST_SCAN_MS: Final = 2_000
# After a longer pause of its own a controller first reads the heartbeats that came meanwhile.
_LONGEST_TICK_MS: Final = 400


class Controller:
    """Server of one controller.

    `on_fatal` gets an error that must end the process.  `access` is the access control of a name server in the same
    process, which loads it; without it the controller has its own.  Raises ConfigError.
    """

    def __init__(
        self,
        config: ControllerConfig,
        *,
        tls: TlsSettings | None = None,
        clock: Clock | None = None,
        on_fatal: Callable[[SprocketError], None],
        file: ConfigurationFile | None = None,
        access: AccessControl | None = None,
        make_consensus: MakeConsensus = raft,
    ) -> None:
        config.require()
        self._config = config
        self._clock: Clock = SystemClock() if clock is None else clock
        self._is_running = self._was_leader = False
        self._last_tick_ms = self._excused_until_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        tls = tls or TlsSettings()
        self._owns_access = access is None
        self.access = access or AccessControl(
            config, config, self._clock, tls, folder=config.auth_folder, bind_address=config.bind_address
        )
        self._client_tls = ClientTls.of(tls)
        self._client = RemotingClient(
            connect_timeout_s=_NOTIFY_TIMEOUT_S, credentials=self.access.credentials, tls=self._client_tls
        )
        self.settings = LiveSettings(config, file)
        self.machine = ControllerMachine(on_fatal)
        server_tls = ServerTls(tls)
        around = Surroundings(self._clock, on_fatal, server_tls, self._client_tls)
        self.consensus = make_consensus(config, self.machine, around)
        self.live = LiveBrokers(self._now_ms())
        counts = ControllerCounts(self._clock)
        self.service = ReplicaService(self.machine, self.consensus, self.live, self.settings, self._now_ms, counts)
        self.failover = Failover(self.service, self._client, self.settings)
        account = self.access.credentials
        identity = PeerIdentity(
            CONTROLLER, b"" if account is None else secret_of(account), self.access.gate, self._is_dialed
        )
        self._next_scan_ms = self._next_master_scan_ms = self._now_ms() + _FIRST_SCAN_MS
        self.routes = self.access.guard(
            RouteTable(
                [
                    *counts.timed(BrokerProcessor(self.service, self.failover).routes()),
                    *counts.timed(OperatorProcessor(self.service, self.consensus, self.settings).routes()),
                    *identity.routes(),
                    *(self.access.routes() if self._owns_access else ()),
                ]
            )
        )
        own = node_metrics(config, self.live, self.machine.groups, lambda: self.consensus.is_leader, bytes_below)
        metrics = [*own, *counts.metrics()]
        self.metrics = MetricRegistry(metrics, lambda: server_labels(config, _labels(config)))
        self.export = MetricsExport(
            config, self.metrics.read, self._clock, host=config.bind_address, scope="controller"
        )
        self._server = RemotingServer(
            self.routes, config, port=config.own.port, on_bug=on_fatal, tls=server_tls, clock=self._clock
        )
        self._server.on_close.append(self._channel_closed)

    @property
    def is_running(self) -> bool:
        """Whether the start is done and the stop has not begun."""
        return self._is_running

    @property
    def port(self) -> int:
        """Port of the listener."""
        return self._server.port

    @property
    def connections(self) -> int:
        """Number of open connections of brokers and tools."""
        return len(self._server.channels)

    async def start(self) -> None:
        """Bind the port, read the users, join the other controllers, and listen.

        Raises StoreError, or ConfigError, also if a port is taken.  Then nothing is left running.
        """
        _refuse_dledger_files(self._config)
        try:
            await self._server.bind()
            await self.export.bind()
            if self._owns_access:
                self.access.load()
            if self._client_tls is not None:
                self._client_tls.start()
            await self.consensus.start()
            await self._server.start()
            await self.export.start()
            if self._owns_access:
                self.access.warn()
        except BaseException:
            await self.export.stop()
            await self.consensus.close()
            await self._server.stop()
            await self._stop_access()
            raise
        self._is_running = True
        self._tick()
        own = self._config.own
        logger.info("event=started id=%s host=%s port=%d", own.id, self._config.bind_address, self.port)

    async def stop(self) -> None:
        """Stop listening, leave the other controllers, and close every connection."""
        if not self._is_running:
            return
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        # Connections that end now were closed by us; that says nothing about brokers.
        self._server.on_close.remove(self._channel_closed)
        await self.export.stop()
        await self.failover.close()
        await self._server.stop()
        await self._stop_access()
        await self.consensus.close()
        await self._client.close()
        logger.info("event=stopped")

    async def _stop_access(self) -> None:
        if self._owns_access:
            await self.access.stop()

    def scan(self) -> None:
        """Remove brokers that were silent for too long, close their connections, and replace those that led."""
        now_ms = self._now_ms()
        silent = self.live.expire(now_ms, spares_leaders=now_ms < self._excused_until_ms)
        for heartbeat in silent:
            channel = self._server.channels.get(heartbeat.channel_id)
            if channel is not None:
                channel.close()
        self.failover.lost(silent, "silent")

    def _tick(self) -> None:
        """Do what is due, and come back."""
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
        now_ms, current = self._now_ms(), self.settings.current
        if now_ms - self._last_tick_ms > _LONGEST_TICK_MS:
            self._excused_until_ms = now_ms + current.master_lease_millis
        self._last_tick_ms = now_ms
        if now_ms >= self._next_scan_ms:
            self._next_scan_ms = now_ms + current.scan_not_active_broker_interval
            self._server.configure(current)
            self.access.gate.audit.flush()
            self.scan()
        is_leader = self.consensus.is_leader
        if is_leader and not self._was_leader:
            self.service.begin_to_lead()
        if is_leader:
            self._find_silent_leaders(now_ms)
        if is_leader and (not self._was_leader or now_ms >= self._next_master_scan_ms):
            self._next_master_scan_ms = now_ms + current.scan_inactive_master_interval
            self.failover.scan(spares_leaders=now_ms < self._excused_until_ms)
        self._was_leader = is_leader

    def _find_silent_leaders(self, now_ms: int) -> None:
        """Replace masters that ask for leases no more, unless this controller itself stood still."""
        if now_ms >= self._excused_until_ms:
            self.failover.lost(self.service.silent_leaders(), "lease_expired")

    def _channel_closed(self, channel: RemotingChannel) -> None:
        gone: list[Heartbeat] = self.live.close_channel(channel.id)
        self.failover.lost(gone, "connection_closed")

    def _is_dialed(self, address: str, channel: RemotingChannel) -> bool:
        return is_dialed(f"{self._config.own.host}:{self.port}", address, channel.local[0])

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def _labels(config: ControllerConfig) -> dict[str, str]:
    own = config.own
    return {"address": f"{own.host}:{own.port}", "group": config.controller_dleger_group, "peer_id": own.id}


def _refuse_dledger_files(config: ControllerConfig) -> None:
    """Raise ConfigError for the folder of a controller of RocketMQ."""
    for found in config.controller_store_path.glob("dledger-*"):
        raise ConfigError(
            f"controllerStorePath: {found} is the store of a controller of RocketMQ, which is not read here: "
            "choose another folder"
        )
