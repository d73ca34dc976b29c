"""The proxy as a server: its parts, from top to bottom, its start and its stop.

At the start it waits for brokers and says so.  At a stop, new receives are refused, those under way finish, clients
acknowledge what they work on, and what is left is released: no message waits for the end of its invisible time.
Source of the parts: RocketMQ 5.3.3, `ProxyStartup`, `ClusterServiceManager`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToJson

from acl.auth.policy import AuthPolicy
from acl.auth.requests import required
from acl.auth.settings import AuthSettings
from acl.gate import Gate
from acl.gate_settings import GateSettings
from acl.tokens.tokens import LOOK_S
from proxy.access.gate import GrpcGate
from proxy.access.users import SharedUsers
from proxy.activity.ack import AckActivity
from proxy.activity.client import ClientActivity
from proxy.activity.lite import LiteActivity
from proxy.activity.offsets import OffsetActivity
from proxy.activity.recall import RecallActivity
from proxy.activity.receive import ReceiveActivity
from proxy.activity.route import RouteActivity
from proxy.activity.send import SendActivity
from proxy.activity.transaction import OrphanedTransactions, TransactionActivity, TransactionalProducers
from proxy.brokers.brokers import Brokers
from proxy.brokers.caller_connections import LOOK_S as QUOTAS_LOOK_S
from proxy.brokers.metadata import Metadata
from proxy.brokers.retry_topics import RetryTopics
from proxy.clients.commands import ClientCommands
from proxy.clients.connections import Connections
from proxy.clients.grpc_members import grpc_key
from proxy.clients.lite_notices import LiteNotices
from proxy.clients.members import Consumers, Member, Producers
from proxy.clients.memberships import Memberships
from proxy.clients.registry import Clients
from proxy.clients.telemetry_stream import TelemetryStream
from proxy.config import ProxyConfig
from proxy.handles.held_handles import HeldHandles
from proxy.handles.renewal import Renewal, nowhere_else
from proxy.listeners import Listener
from proxy.remoting.client_routes import ClientRoutes
from proxy.remoting.forwarder import Forwarder
from proxy.remoting.lite_routes import LiteRoutes
from proxy.remoting.message_routes import MessageRoutes
from proxy.remoting.relay_routes import RelayRoutes, StoredMessages
from proxy.remoting.remoting_ports import RemotingPorts, TransactionChecks
from proxy.remoting.topic_routes import TopicRoutes
from proxy.server.byte_budget import ByteBudget
from proxy.server.call import Call
from proxy.server.choice import chosen
from proxy.server.dispatcher import Dispatcher, Limits, Methods, Streaming
from proxy.server.intake import Intake
from proxy.server.port import PeerBehind, Port
from proxy.server.write_limit import Answer
from proxy.status import Refusal
from proxy.sync.heartbeat_syncer import HeartbeatSyncer
from proxy.workers.link import Link
from proxy.workers.shared_clients import SharedClients
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.connection.wakeup import Wakeup, pause
from sprocket.client.errors import ClientError
from sprocket.common.clock import Clock
from sprocket.common.descriptors import DescriptorReserve
from sprocket.common.errors import ConfigError, SprocketError
from sprocket.common.free_memory import trim
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.metrics.declared import Metric, gauge
from sprocket.metrics.export import MetricsExport, server_labels
from sprocket.metrics.registry import MetricRegistry
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.in_process import InProcess, nowhere
from sprocket.remoting.tls.settings import TlsSettings

logger = logging.getLogger(__name__)

_EXPIRY_PERIOD_S: Final = 5.0
# If so many clients have gone, the memory that they took goes back to the system.
_MANY_CLIENTS: Final = 64
_WAIT_LOG_S: Final = 5.0
_WAIT_POLL_S: Final = 0.2
_DRAIN_POLL_S: Final = 0.02
# Receives of one client at a time.
MAX_RECEIVES: Final = 4096


class Proxy:
    """One proxy.  `choose` returns a random number below its argument; `tls` is for its connections to servers.

    A worker has a `link` to the other workers of its proxy; `orphaned` is called when their supervisor is gone.
    `in_process` knows the brokers in this process, whose users and policies must be those of `auth`.
    `on_fatal` gets the reason if the proxy has waited for brokers and then cannot serve.
    """

    def __init__(
        self,
        config: ProxyConfig,
        *,
        clock: Clock,
        choose: Callable[[int], int],
        auth: AuthSettings | None = None,
        gate: GateSettings | None = None,
        tls: TlsSettings | None = None,
        link: Callable[[], Awaitable[Link]] | None = None,
        orphaned: Callable[[], None] = lambda: None,
        on_fatal: Callable[[SprocketError], None] = lambda error: None,
        in_process: InProcess = nowhere,
    ) -> None:
        """Raises ConfigError."""
        self.config = config
        auth, gate = auth or AuthSettings(), gate or GateSettings()
        self._clock, self._on_fatal = clock, on_fatal
        self._users = _users(config, auth, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._look_due = Wakeup()
        self.is_serving = self._is_stopping = False
        self._receiving, self._receiving_of = 0, Counter[str]()
        self._ports: list[Port] = []
        limit = config.grpc_max_in_flight_size
        self._intake, self._answers = Intake(limit, config.max_request_bytes), ByteBudget(limit)
        silent_s, lost_s = config.channel_expired_timeout / 1000, config.client_lost_timeout_millis / 1000
        self.clients = Clients(clock.monotonic, silent_s=silent_s, lost_s=lost_s, died=self._client_died)
        self._gate = self._make_grpc_gate(auth, gate)
        self.consumers = Consumers(clock.monotonic, silent_s)
        self.remoting_producers = Producers(clock.monotonic, silent_s)
        remoting_gate = self._make_remoting_gate(auth, gate)
        checks = TransactionChecks(self.remoting_producers, remoting_gate, choose)
        self._commands = ClientCommands(self.clients, config.grpc_proxy_relay_request_timeout_in_seconds)
        self._lite_notices = LiteNotices(self.clients, self.consumers, self._lite_taken_elsewhere)
        self._relay = RelayRoutes(self.consumers, self._commands, lambda: self._instance.client_id, clock.wall_ms)
        orphans = OrphanedTransactions(self.clients, choose, self._broker_of, clock.wall_ms, checks.passed)
        self._producers = TransactionalProducers(self.clients, lambda: self.metadata, lambda: checks.groups)
        self._memberships = Memberships(self._producers, self.consumers, config.register_consumers_at_brokers)
        self._instance = ClientInstance(
            _client_settings(config, auth, tls),
            routes=[*orphans.routes(), *self._relay.for_brokers(), *self._lite_notices.routes()],
            heartbeat=lambda: self._memberships.heartbeat(self._instance.client_id),
            clock=clock,
            in_process=in_process,
        )
        self._descriptors = DescriptorReserve()
        # Connections to brokers in this process need none.
        self.brokers = Brokers(self._instance, None if config.is_local else self._descriptors.for_callers)
        self.metadata = Metadata(self.brokers, config)
        self.held = HeldHandles()
        self._shared = link and self._make_shared(link, orphaned)
        self._connections = Connections(clock.monotonic)
        self.renewal = self._make_renewal()
        self._lite = self._make_lite()
        self.syncer = self._make_syncer()
        self._methods = self._make_methods(choose)
        self.remoting = self._make_remoting(remoting_gate)
        registry = MetricRegistry(self._metrics(), lambda: server_labels(config, _metric_labels(config)))
        self.export = MetricsExport(config, registry.read, clock, host=config.bind_address, scope="broker-meter")

    def _metrics(self) -> list[Metric]:
        """Return the metrics; RocketMQ's proxy has the first."""
        return [
            gauge("rocketmq_proxy_up", "1: the proxy runs", lambda: 1),
            gauge(
                "sprocket_proxy_serving", "1 if there are brokers and calls are served", lambda: int(self.is_serving)
            ),
            gauge("sprocket_proxy_held_messages", "messages whose invisible time is renewed", lambda: len(self.held)),
            gauge("sprocket_proxy_receiving", "calls that wait for messages", lambda: self._receiving),
        ]

    def _make_shared(self, link: Callable[[], Awaitable[Link]], orphaned: Callable[[], None]) -> SharedClients:
        now, tell = self._clock.monotonic, self._lite_notices.tell
        return SharedClients(link, orphaned, self.clients, self.held, now, tell)

    def _make_lite(self) -> LiteActivity:
        sets = self._lite_notices.sets
        lite = LiteActivity(self.brokers, self.metadata, self.clients, self.config, sets, self._spawn)
        self.clients.on_forget.append(lite.gone)
        self.consumers.on_left.append(lambda member, group: lite.left(member.client_id, group))
        return lite

    def _make_renewal(self) -> Renewal:
        elsewhere = nowhere_else if self._shared is None else self._shared.held_elsewhere
        parts = (self.held, self.brokers, self.metadata, self.config, self._connections, self.clients)
        return Renewal(*parts, self._spawn, elsewhere)

    def _make_syncer(self) -> HeartbeatSyncer | None:
        config = self.config
        if config.is_local or not config.heartbeat_syncer_topic_name:
            return None
        address, told = self._own_address, self._told_settings
        return HeartbeatSyncer(self.brokers, self.consumers, config, address, told, self._spawn)

    def _make_grpc_gate(self, auth: AuthSettings, settings: GateSettings) -> GrpcGate | None:
        if self._users is None:
            return None
        policy = AuthPolicy(auth, self._users.tables, required, self._users.tokens)
        cluster = self.config.rocketmq_cluster_name
        return GrpcGate(policy, settings, self._users.tables, self._clock, cluster, self.clients.owned)

    def _make_remoting_gate(self, auth: AuthSettings, settings: GateSettings) -> Gate | None:
        if self._users is None:
            return None
        policy = AuthPolicy(auth, self._users.tables, required, self._users.tokens)
        return Gate((policy,), settings, self._clock, cluster=self.config.rocketmq_cluster_name)

    def _make_remoting(self, gate: Gate | None) -> RemotingPorts:
        config, now = self.config, self._clock.monotonic
        RetryTopics(self.brokers, self.metadata, self.consumers, config.rocketmq_cluster_name, self._spawn)
        topics = TopicRoutes(self._instance.name_servers, config, now)
        limit = config.grpc_max_in_flight_size
        forwarder = Forwarder(self.brokers, topics, config.rocketmq_cluster_name, limit, self._spawn)
        messages = MessageRoutes(
            forwarder, self.metadata, self.consumers, self.remoting_producers, config, self._spawn, self._look_due.set
        )
        clients = ClientRoutes(self.consumers, self.remoting_producers, now, self._look_due.set)
        lite = LiteRoutes(forwarder, self._lite, self._spawn)
        routes = [*messages.routes(), *lite.routes(), *self._relay.for_tools(StoredMessages(self.brokers))]
        return RemotingPorts(config, routes, topics, clients, forwarder, gate)

    def _make_methods(self, choose: Callable[[int], int]) -> Methods:
        brokers, metadata, config = self.brokers, self.metadata, self.config
        route = RouteActivity(brokers, metadata, config)
        client = ClientActivity(self.clients, self.consumers, self._commands, metadata, config, self._look_due.set)
        send = SendActivity(brokers, metadata, config, partial(choose, 1 << 16))
        lite = self._lite
        receive = ReceiveActivity(brokers, metadata, self.clients, self.renewal, config, lite, self._spawn)
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
                "SyncLiteSubscription": lite.sync_lite_subscription,
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
            self._spawn(self._look_at_users(self._users))
        await self.export.bind()
        await self._instance.open()
        is_shared = self._shared is not None
        for listener in [Listener("default", self.config.grpc_server_port), *self.config.named_listeners]:
            port = Port(listener, self.config, self._dispatcher, self._descriptors, self._answers)
            self._ports.append(port)
            await port.open(is_shared=is_shared)
        await self.remoting.open(is_shared=is_shared)
        await self.export.start()
        if self._shared is not None:
            await self._shared.open()
            self._spawn(self._shared.listen())
        if await self._has_brokers():
            await self._serve()
        else:
            self._say_waiting()
            self._spawn(self._serve_later())

    @property
    def listeners(self) -> list[Listener]:
        """The open ports for gRPC; `remoting.listeners` has the others."""
        return [port.listener for port in self._ports]

    def _dispatcher(self, listener: Callable[[], Listener], peer_behind: PeerBehind) -> Dispatcher:
        limits = Limits(
            write_s=self.config.grpc_write_timeout_millis / 1000,
            settings_s=self.config.telemetry_settings_timeout_millis / 1000,
        )
        return Dispatcher(self._methods, listener, self, self._intake, limits, self.brokers.slowed, peer_behind)

    async def _serve(self) -> None:
        for port in self._ports:
            await port.serve()
        await self.remoting.serve()
        self.is_serving = True
        if self.syncer is not None:
            self.syncer.start()
        self._spawn(self._expire_clients())
        self._spawn(self._renew())
        if self._shared is not None:
            self._spawn(self._shared.tell_alive())
        self._spawn(self._look_at_producers())
        self._spawn(self._look_at_quotas())

    async def _serve_later(self) -> None:
        said_at = self._clock.monotonic()
        while not await self._has_brokers():
            if self._clock.monotonic() - said_at >= _WAIT_LOG_S:
                said_at = self._clock.monotonic()
                self._say_waiting()
            await pause(_WAIT_POLL_S)
        try:
            await self._serve()
        except SprocketError as error:
            self._on_fatal(error)
            raise
        logger.info("event=proxy_serving cluster=%s server=%s", self.config.rocketmq_cluster_name, chosen(self.config))

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
        await asyncio.gather(self.remoting.stop(), *(port.stop() for port in self._ports))
        if self.syncer is not None and self.is_serving:
            await self.syncer.leave()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.brokers.callers.close()
        await self._instance.close()
        await self.export.stop()
        if self._shared is not None:
            self._shared.close()
        logger.info("event=proxy_stopped")

    async def _drain(self) -> None:
        for port in self._ports:
            port.say_leaving()
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
            if len(self.clients.expire()) >= _MANY_CLIENTS:
                await asyncio.to_thread(trim)
            self.consumers.expire()
            self.remoting_producers.expire()
            self.remoting.look()

    async def _look_at_users(self, users: SharedUsers) -> None:
        while True:
            await pause(LOOK_S)
            users.look()

    async def _renew(self) -> None:
        while True:
            await pause(self.config.renew_schedule_period_millis / 1000)
            await self.renewal.renew_due()

    async def _look_at_quotas(self) -> None:
        while True:
            await self.brokers.callers.look()
            await pause(QUOTAS_LOOK_S)

    async def _look_at_producers(self) -> None:
        """Tell brokers of the transactional producers and the consumer groups, at once when there is a new one."""
        while True:
            await self._look_due.wait(self.config.transaction_heartbeat_period_second)
            is_new, gone = await self._producers.look()
            is_joined, left = self._memberships.look()
            if is_new or is_joined:
                await self._instance.heartbeat_all()
            for group in gone:
                await self._instance.unregister(group, None)
            for group in left:
                await self._instance.unregister(None, group)

    # Parts

    def _counted(self, method: Streaming) -> Streaming:
        """Return `method`, counted while it runs, and refused at a stop."""

        async def counted(call: Call, request: Any, write: Answer) -> None:
            if self._is_stopping:
                raise Refusal(wire.TOO_MANY_REQUESTS, "this proxy is being stopped, please use another one")
            waiting = self._receiving_of[call.client_id]
            if waiting >= MAX_RECEIVES:
                raise Refusal(wire.TOO_MANY_REQUESTS, f"{waiting} receives of this client wait, send fewer at once")
            self._receiving += 1
            self._receiving_of[call.client_id] += 1
            try:
                await method(call, request, write)
            finally:
                self._receiving -= 1
                self._receiving_of[call.client_id] -= 1
                if not self._receiving_of[call.client_id]:
                    del self._receiving_of[call.client_id]

        return counted

    def prove(self, call: Call, request_name: str) -> str | None:
        """Return the account that calls, if accounts are known.  Raises Refusal unless it has signed, if it must."""
        return None if self._gate is None else self._gate.prove(call, request_name)

    def bind(self, call: Call, stream: TelemetryStream) -> None:
        """Let a stream end with the token of who calls."""
        if self._gate is not None:
            self._gate.bind(call, stream)

    def permit(self, call: Call, request: Any) -> str | None:
        """Return the account that calls, if accounts are known.  Raises Refusal unless it may do what it asks for."""
        account = None if self._gate is None else self._gate.permit(call, request)
        self._connections.seen(call.peer)
        return account

    def _own_address(self) -> str:
        # A client id begins with an address of the machine.
        return self.config.local_serve_addr or self._instance.client_id.partition("@")[0]

    def _told_settings(self, member: Member) -> str | None:
        """Return the settings of a gRPC client as JSON; None for other clients."""
        if member.channel is not None:
            return None
        client = self.clients.get(member.client_id)
        return "" if client is None or client.reported is None else MessageToJson(client.reported, indent=None)

    def _client_died(self, client_id: str) -> None:
        self.renewal.release_client(client_id)
        self.consumers.gone(grpc_key(client_id), "gone")
        if self.config.register_consumers_at_brokers:
            self._look_due.set()

    def _lite_taken_elsewhere(self, client_id: str, group: str, lite_topic: str) -> None:
        if self._shared is not None:
            self._shared.lite_taken(client_id, group, lite_topic)

    def _broker_of(self, channel: RemotingChannel) -> str | None:
        return self._instance.broker_of(channel)

    def _spawn(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            peer_lines.error(logger, "", "event=proxy_task_failed", exc_info=task.exception())


def _users(config: ProxyConfig, auth: AuthSettings, clock: Clock) -> SharedUsers | None:
    """Return the users whose signatures calls must have, None for no users.  Raises ConfigError."""
    if not auth.asks_for_users:
        return None
    if not config.auth_config_path:
        raise ConfigError("authConfigPath: calls must be signed; give the folder of a broker's auth.json")
    return SharedUsers(auth, Path(config.auth_config_path), clock)


def _metric_labels(config: ProxyConfig) -> dict[str, str]:
    return {
        "node_type": "proxy",
        "cluster": config.proxy_cluster_name,
        "node_id": config.proxy_name,
        "proxy_mode": config.proxy_mode.lower(),
    }


def _client_settings(config: ProxyConfig, auth: AuthSettings, tls: TlsSettings | None) -> ClientSettings:
    """Return the settings of the proxy as a client of brokers.  Raises ConfigError."""
    if not config.namesrv_addr.strip():
        raise ConfigError("namesrvAddr: no name server; give -n HOST:PORT, or namesrvAddr in rmq-proxy.json")
    return ClientSettings(
        namesrv=config.namesrv_addr,
        poll_name_server_interval_s=float(config.topic_route_service_cache_refresh_seconds),
        heartbeat_broker_interval_s=float(config.transaction_heartbeat_period_second),
        credentials=auth.inner_credentials(),
        tls=tls,
    )
