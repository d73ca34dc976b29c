"""Name server: one table of routes behind one remoting server, and a scan for silent brokers."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from acl.auth.server_access import AccessControl
from namesrv import unregistration
from namesrv.config import NamesrvConfig
from namesrv.kv_config import KVConfig
from namesrv.processor.brokers import BrokerProcessor
from namesrv.processor.configuration import ConfigurationProcessor
from namesrv.processor.topics import TopicProcessor
from namesrv.route_table import MinBrokerIdChange, RouteInfo
from sprocket.common.clock import Clock, SystemClock
from sprocket.common.config.configuration_file import ConfigurationFile
from sprocket.common.config.live_settings import LiveSettings
from sprocket.common.errors import ClientError, InvariantError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader
from sprocket.remoting.routes import RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls, ServerTls

logger = logging.getLogger(__name__)

# Delay of the first scan after the start (`NamesrvController.startScheduleService`).
_SCAN_DELAY_S = 0.005
_REFUSALS_S = 60.0
# Limit on connecting to a broker for a notice about its group.
_NOTIFY_TIMEOUT_S = 0.3


class NameServer:
    """Server that keeps what brokers report and answers queries.  `on_bug` gets an InvariantError of a handler."""

    def __init__(
        self,
        config: NamesrvConfig,
        *,
        tls: TlsSettings | None = None,
        clock: Clock | None = None,
        on_bug: Callable[[InvariantError], None] | None = None,
        file: ConfigurationFile | None = None,
    ) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._started_ms = 0
        self._refusals_logged_s = -_REFUSALS_S
        self._is_running = False
        self._scan_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.access = AccessControl(
            config,
            config,
            self._clock,
            tls or TlsSettings(),
            folder=Path(config.auth_config_path) if config.auth_config_path else config.kv_config_path.parent,
            bind_address=config.bind_address,
        )
        self._client_tls = ClientTls.of(tls)
        self._client = RemotingClient(
            connect_timeout_s=_NOTIFY_TIMEOUT_S, credentials=self.access.credentials, tls=self._client_tls
        )
        self.table = RouteInfo()
        self.settings = LiveSettings(config, file)
        self.kv_config = KVConfig(config.kv_config_path)
        self.routes = self.access.guard(
            RouteTable(
                [
                    *BrokerProcessor(self.table, self.kv_config, self.settings, self._now_ms, self._announce).routes(),
                    *TopicProcessor(self.table, self.kv_config, self.settings, self._uptime_ms).routes(),
                    *ConfigurationProcessor(self.kv_config, self.settings).routes(),
                    *self.access.routes(),
                ]
            )
        )
        self._server = RemotingServer(
            self.routes,
            config,
            port=config.listen_port,
            on_bug=on_bug,
            tls=ServerTls(tls or TlsSettings()),
            clock=self._clock,
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

    async def start(self) -> None:
        """Bind the port, read the users and the KV configuration, and listen.

        Raises StoreError, or ConfigError, also if the port is taken.  Then nothing is left running.
        """
        try:
            await self._server.bind()
            self.access.load()
            self.kv_config.load()
            if self._client_tls is not None:
                self._client_tls.start()
            self.kv_config.start()
            self._started_ms = self._now_ms()
            await self._server.start()
            self.access.warn()
        except BaseException:
            await self._server.stop()
            await self.access.stop()
            raise
        self._is_running = True
        self._scan_timer = asyncio.get_running_loop().call_later(_SCAN_DELAY_S, self._scan_and_repeat)
        logger.info("event=started host=%s port=%d", self.settings.current.bind_address, self.port)

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if not self._is_running:
            return
        self._is_running = False
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        # Connections that end now were closed by us; that says nothing about brokers.
        self._server.on_close.remove(self._channel_closed)
        await self.kv_config.stop()
        await self._server.stop()
        await self.access.stop()
        for task in self._tasks:
            task.cancel()
        await self._client.close()
        logger.info("event=stopped")

    def scan(self) -> None:
        """Remove brokers that were silent for too long, and close their connections."""
        silent, changes = unregistration.expire(self.table, self._now_ms())
        for live in silent:
            channel = self._server.channels.get(live.channel_id)
            if channel is not None:
                channel.close()
        self._announce(changes)

    def _scan_and_repeat(self) -> None:
        interval_s = self.settings.current.scan_not_active_broker_interval / 1000
        self._scan_timer = asyncio.get_running_loop().call_later(interval_s, self._scan_and_repeat)
        self._server.configure(self.settings.current)
        self.access.gate.audit.flush()
        self._log_refusals()
        self.scan()

    def _log_refusals(self) -> None:
        """Log the refused requests by reason, if there were any since the last line a minute ago or more."""
        now = self._clock.monotonic()
        if now - self._refusals_logged_s >= _REFUSALS_S:
            grown = self.routes.refusals.grown()
            if grown:
                self._refusals_logged_s = now
                logger.info("event=requests_refused %s", grown)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _uptime_ms(self) -> int:
        return self._now_ms() - self._started_ms

    def _channel_closed(self, channel: RemotingChannel) -> None:
        self._announce(unregistration.close_channel(self.table, channel.id))

    def _announce(self, changes: list[MinBrokerIdChange]) -> None:
        """Notify the members of a group that its smallest broker id changed, if this is enabled."""
        if not self.settings.current.notify_min_broker_id_changed:
            return
        for change in changes:
            peer_lines.info(
                logger, "", "event=min_broker_id_changed id=%d addr=%s offline=%s notify=%s", change.min_broker_id,
                change.min_broker_addr, change.offline_broker_addr, change.notify_addrs,
            )  # fmt: skip
            header = NotifyMinBrokerIdChangeRequestHeader(
                min_broker_id=change.min_broker_id,
                min_broker_addr=change.min_broker_addr,
                offline_broker_addr=change.offline_broker_addr,
                ha_broker_addr=change.ha_broker_addr,
            )
            for addr in change.notify_addrs:
                task = asyncio.get_running_loop().create_task(self._notify(addr, header))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _notify(self, addr: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        try:
            await self._client.notify(addr, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header)
        except ClientError as error:
            peer_lines.warning(logger, addr, "event=notify_failed addr=%s cause=%r", addr, str(error))
