"""The proxy as a server: its parts, from top to bottom, its start and its stop.

At the start it waits for brokers and says so.  At a stop, new receives are refused, those under way finish, clients
acknowledge what they work on, and what is left is released: no message waits for the end of its invisible time.
Source of the parts: RocketMQ 5.3.3, `ProxyStartup`, `ClusterServiceManager`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

from acl.auth.settings import AuthSettings
from acl.gate_settings import GateSettings
from proxy.access.gate import GrpcGate
from proxy.access.users import SharedUsers
from proxy.activity.ack import AckActivity
from proxy.activity.client import ClientActivity
from proxy.activity.offsets import OffsetActivity
from proxy.activity.recall import RecallActivity
from proxy.activity.receive import ReceiveActivity
from proxy.activity.route import RouteActivity
from proxy.activity.send import SendActivity
from proxy.activity.transaction import OrphanedTransactions, TransactionActivity, TransactionalProducers
from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.clients.registry import Clients
from proxy.config import ProxyConfig
from proxy.handles.held_handles import HeldHandles
from proxy.handles.renewal import Renewal
from proxy.listeners import Listener
from proxy.server.call import Call
from proxy.server.dispatcher import Dispatcher, Limits, Methods, Streaming
from proxy.server.port import PeerBehind, Port
from proxy.status import Refusal
from proxy.wire import messaging_pb2 as wire
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.connection.wakeup import Wakeup, pause
from sprocket.client.errors import ClientError
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.flow.descriptors import DescriptorReserve

logger = logging.getLogger(__name__)

_EXPIRY_PERIOD_S: Final = 5.0
_WAIT_LOG_S: Final = 5.0
_WAIT_POLL_S: Final = 0.2
_DRAIN_POLL_S: Final = 0.02
# After the drain, for the answers to leave.
_GRACE_S: Final = 1.0


class Proxy:
    """One proxy.  `choose` returns a random number below its argument."""

    def __init__(
        self,
        config: ProxyConfig,
        *,
        clock: Clock,
        choose: Callable[[int], int],
        auth: AuthSettings | None = None,
        gate: GateSettings | None = None,
    ) -> None:
        """Raises ConfigError."""
        self.config = config
        auth = auth or AuthSettings()
        self._users: SharedUsers | None = None
        self._gate: GrpcGate | None = None
        if auth.asks_for_users:
            if not config.auth_config_path:
                raise ConfigError("authConfigPath: calls must be signed; give the folder of a broker's auth.json")
            self._users = SharedUsers(auth, Path(config.auth_config_path))
            cluster = config.rocketmq_cluster_name
            self._gate = GrpcGate(auth, gate or GateSettings(), self._users.tables, clock, cluster)
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_due = Wakeup()
        self._is_stopping = False
        self._receiving = 0
        self._ports: list[Port] = []
        self.is_serving = False

        self.clients = Clients(
            clock.monotonic,
            silent_s=config.channel_expired_timeout / 1000,
            lost_s=config.client_lost_timeout_millis / 1000,
            died=self._client_died,
        )
        orphans = OrphanedTransactions(self.clients, choose, self._broker_at, clock.wall_ms)
        self._producers = TransactionalProducers(self.clients, lambda: self.metadata)
        self._instance = ClientInstance(
            _client_settings(config, auth),
            routes=orphans.routes(),
            heartbeat=lambda: self._producers.heartbeat(self._instance.client_id),
            clock=clock,
        )
        self.brokers = Brokers(self._instance)
        self.metadata = Metadata(self.brokers, config)
        self.held = HeldHandles()
        self.renewal = Renewal(self.held, self.brokers, self.metadata, config, self._spawn)
        self._methods = self._make_methods(choose)

    def _make_methods(self, choose: Callable[[int], int]) -> Methods:
        brokers, metadata, config = self.brokers, self.metadata, self.config
        route = RouteActivity(brokers, metadata, config)
        client = ClientActivity(self.clients, metadata, config, self._look_due.set)
        send = SendActivity(brokers, metadata, config, partial(choose, 1 << 16))
        receive = ReceiveActivity(brokers, metadata, self.clients, self.renewal, config, self._spawn)
        ack = AckActivity(brokers, self.clients, self.renewal, config)
        transaction = TransactionActivity(brokers)
        offsets = OffsetActivity(brokers, config)
        return Methods(
            unary={
                "QueryRoute": route.query_route,
                "QueryAssignment": route.query_assignment,
                "Heartbeat": client.heartbeat,
                "NotifyClientTermination": client.notify_client_termination,
                "SendMessage": send.send_message,
                "AckMessage": ack.ack_message,
                "ChangeInvisibleDuration": ack.change_invisible_duration,
                "ForwardMessageToDeadLetterQueue": ack.forward_message_to_dead_letter_queue,
                "EndTransaction": transaction.end_transaction,
                "RecallMessage": RecallActivity(brokers, metadata, config).recall_message,
                "UpdateOffset": offsets.update_offset,
                "GetOffset": offsets.get_offset,
                "QueryOffset": offsets.query_offset,
            },
            streaming={
                "ReceiveMessage": self._counted(receive.receive_message),
                "PullMessage": self._counted(offsets.pull_message),
            },
            telemetry=client.telemetry,
            telemetry_ended=self.clients.stream_ended,
        )

    # Life

    async def start(self) -> None:
        """Open the ports, and serve as soon as there are brokers.  Raises ConfigError if a port cannot be opened."""
        if self._users is not None:
            self._users.load()
        await self._instance.open()
        descriptors = DescriptorReserve()
        for listener in [Listener("default", self.config.grpc_server_port), *self.config.named_listeners]:
            port = Port(listener, self.config, self._dispatcher, descriptors)
            self._ports.append(port)
            await port.open()
        if await self._has_brokers():
            await self._serve()
        else:
            self._say_waiting()
            self._spawn(self._serve_later())

    @property
    def listeners(self) -> list[Listener]:
        """The open ports."""
        return [port.listener for port in self._ports]

    def _dispatcher(self, listener: Callable[[], Listener], peer_behind: PeerBehind) -> Dispatcher:
        limits = Limits(
            write_s=self.config.grpc_write_timeout_millis / 1000,
            settings_s=self.config.telemetry_settings_timeout_millis / 1000,
        )
        return Dispatcher(self._methods, listener, self._admit, limits, peer_behind)

    async def _serve(self) -> None:
        for port in self._ports:
            await port.serve()
        self.is_serving = True
        self._spawn(self._expire_clients())
        self._spawn(self._renew())
        self._spawn(self._look_at_producers())

    async def _serve_later(self) -> None:
        said_at = self._clock.monotonic()
        while not await self._has_brokers():
            if self._clock.monotonic() - said_at >= _WAIT_LOG_S:
                said_at = self._clock.monotonic()
                self._say_waiting()
            await pause(_WAIT_POLL_S)
        await self._serve()
        logger.info("event=proxy_serving cluster=%s", self.config.rocketmq_cluster_name)

    def _say_waiting(self) -> None:
        logger.warning(
            "event=waiting_for_brokers cluster=%s namesrv=%s note=%r",
            self.config.rocketmq_cluster_name, self._instance.name_servers,
            "no calls are served before a broker of the cluster is registered",
        )  # fmt: skip

    async def _has_brokers(self) -> bool:
        """Return whether a master of the cluster is registered: brokers have a topic of its name."""
        try:
            route = await self._instance.refresh_route(self.config.rocketmq_cluster_name)
        except ClientError:
            return False
        return any(MASTER_ID in members for members in route.broker_addresses.values())

    async def stop(self) -> None:
        """Finish what is under way, release the rest, and close."""
        self._is_stopping = True
        if self.is_serving:
            await self._drain()
        await asyncio.gather(*(port.stop(_GRACE_S) for port in self._ports))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._instance.close()
        logger.info("event=proxy_stopped")

    async def _drain(self) -> None:
        for port in self._ports:
            await port.say_leaving()
        limit = self._clock.monotonic() + self.config.grpc_shutdown_time_seconds
        logger.info("event=proxy_draining receiving=%d held=%d", self._receiving, len(self.held))
        while (self._receiving or len(self.held)) and self._clock.monotonic() < limit:
            self.clients.expire()
            await pause(_DRAIN_POLL_S)
        if len(self.held):
            logger.warning("event=handles_released_at_stop count=%d", len(self.held))
            await self.renewal.release(list(self.held))

    # Periodic work

    async def _expire_clients(self) -> None:
        while True:
            await pause(_EXPIRY_PERIOD_S)
            self.clients.expire()
            if self._users is not None:
                self._users.look()

    async def _renew(self) -> None:
        while True:
            await pause(self.config.renew_schedule_period_millis / 1000)
            self.renewal.renew_due()

    async def _look_at_producers(self) -> None:
        """Tell brokers of the transactional producers, at once when there is a new one."""
        while True:
            await self._look_due.wait(self.config.transaction_heartbeat_period_second)
            is_new, gone = await self._producers.look()
            if is_new:
                await self._instance.heartbeat_all()
            for group in gone:
                await self._instance.unregister(group, None)

    # Parts

    def _counted(self, method: Streaming) -> Streaming:
        """Return `method`, counted while it runs, and refused at a stop."""

        async def counted(call: Call, request: Any, write: Callable[[Any], Awaitable[None]]) -> None:
            if self._is_stopping:
                raise Refusal(wire.TOO_MANY_REQUESTS, "this proxy is being stopped, please use another one")
            self._receiving += 1
            try:
                await method(call, request, write)
            finally:
                self._receiving -= 1

        return counted

    def _admit(self, call: Call, request: Any) -> None:
        """Raise Refusal unless the caller may do what it asks for."""
        if self._gate is not None:
            self._gate.admit(call, request)

    def _client_died(self, client_id: str) -> None:
        self.renewal.release_client(client_id)

    def _broker_at(self, address: str) -> str | None:
        """Return the broker group of the broker at `address`."""
        return self._instance.broker_at(address)

    def _spawn(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("event=proxy_task_failed", exc_info=task.exception())


def _client_settings(config: ProxyConfig, auth: AuthSettings) -> ClientSettings:
    """Return the settings of the proxy as a client of brokers.  Raises ConfigError."""
    if not config.namesrv_addr.strip():
        raise ConfigError("namesrvAddr: no name server; give -n HOST:PORT, or namesrvAddr in rmq-proxy.json")
    return ClientSettings(
        namesrv=config.namesrv_addr,
        poll_name_server_interval_s=float(config.topic_route_service_cache_refresh_seconds),
        heartbeat_broker_interval_s=float(config.transaction_heartbeat_period_second),
        credentials=auth.inner_credentials(),
    )
