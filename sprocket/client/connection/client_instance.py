"""Client of a cluster that producers and consumers share code with: connections, routes and heartbeats.

Source: RocketMQ 5.3.3, `MQClientInstance`.  Routes are kept until a refresh replaces them, even while no name server
answers.  Heartbeats run in their own task, independent of the application's handlers.
"""

import asyncio
import logging
import math
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from threading import get_ident

from sprocket.client import arguments
from sprocket.client.connection.identity import Identity, new_identity
from sprocket.client.connection.name_servers import NameServers
from sprocket.client.connection.outages import Outages
from sprocket.client.connection.topic_route import TopicRoute, default_topic_route, subscribe_address, topic_route
from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.connection.wire_names import NamingClient, WireNames
from sprocket.client.errors import (
    AnswerUnreadable,
    BrokerNotFound,
    ClientClosed,
    ClientError,
    IllegalArgument,
    PermissionDenied,
    TlsUnusable,
    TopicNotFound,
    TopicNotWritable,
    is_access_refusal,
    refusal,
)
from sprocket.common.cancellation import outcome_of
from sprocket.common.clock import Clock, SystemClock
from sprocket.common.errors import ConfigError
from sprocket.remoting.addresses import names_at
from sprocket.remoting.bodies.client import HeartbeatData, MessageQueue
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER, NO_BROKER
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import Introduce, RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    HeartbeatRequestHeader,
    UnregisterClientRequestHeader,
)
from sprocket.remoting.in_process import InProcess, nowhere
from sprocket.remoting.message.topic_names import AUTO_CREATE_TOPIC
from sprocket.remoting.renewed_token import RenewedToken
from sprocket.remoting.routes import Route
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls

logger = logging.getLogger(__name__)

# Environment variable with the name servers of clients that are given none (`MixAll.NAMESRV_ADDR_ENV`).
NAMESRV_ADDR = "NAMESRV_ADDR"
_FIRST_POLL_S = 1.0
# Interval and duration of refreshes of a route that has lost a broker, to find a restarted broker soon.
_DIMINISHED_POLL_S = 1.0
_DIMINISHED_LIMIT_S = 120.0
# How long to do the same after a broker failed: its group may soon have another master.
_FAILED_LIMIT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Times of a client under RocketMQ's names, in seconds here.  Source: RocketMQ 5.3.3, `ClientConfig`."""

    namesrv: str | Sequence[str]
    poll_name_server_interval_s: float = 30.0
    heartbeat_broker_interval_s: float = 30.0
    persist_consumer_offset_interval_s: float = 5.0
    api_timeout_s: float = 3.0  # mqClientApiTimeout
    connect_timeout_s: float = 3.0
    instance_name: str | None = None  # None: a unique name
    credentials: Credentials | None = None  # with them every request is signed, as `AclClientRPCHook` does
    tls: TlsSettings | None = None  # with them every connection is TLS; `TlsSettings.for_client` makes them
    namespace: str = ""  # of all topics and groups, which applications then name without it

    def __post_init__(self) -> None:
        """Raises IllegalArgument."""
        arguments.servers("namesrv", self.namesrv)
        arguments.check(self, _CHECKS)


_CHECKS = {
    "poll_name_server_interval_s": arguments.timeout,
    "heartbeat_broker_interval_s": arguments.timeout,
    "persist_consumer_offset_interval_s": arguments.timeout,
    "api_timeout_s": arguments.timeout,
    "connect_timeout_s": arguments.timeout,
    "instance_name": arguments.or_none(arguments.text),
    "credentials": arguments.or_none(arguments.of_kind(Credentials)),
    "tls": arguments.or_none(arguments.of_kind(TlsSettings)),
    "namespace": arguments.namespace,
}


def settings_of(namesrv: str | Sequence[str], client: ClientSettings | None) -> ClientSettings:
    """Return the settings of a client that was given one of both; with neither, those of NAMESRV_ADDR.

    Raises IllegalArgument for both, or if there is no address.
    """
    if client is None:
        return ClientSettings(namesrv=namesrv or os.environ.get(NAMESRV_ADDR, ""))
    arguments.optional("client", client, ClientSettings)
    if namesrv:
        raise IllegalArgument("namesrv and client are both given; pass ClientSettings(namesrv=...) alone as client")
    return client


class ClientInstance:
    """One client of a cluster.  `heartbeat` makes the heartbeat's body; None sends none."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        routes: list[Route] | None = None,
        heartbeat: Callable[[], HeartbeatData | None] = lambda: None,
        on_route: Callable[[TopicRoute], None] = lambda route: None,
        heartbeat_to_slaves: bool = False,
        clock: Clock | None = None,
        denied: Callable[[PermissionDenied | None], None] = lambda error: None,
        connection_changed: Callable[[str, bool], None] = lambda address, is_open: None,
        on_lost: Callable[[ClientClosed], None] = lambda error: None,
        in_process: InProcess = nowhere,
    ) -> None:
        """`denied` gets the refusals of access control for this client's own requests; see `Outages`.

        `on_lost` gets the error if tasks of the client end that it cannot do without; see `keep`.
        `in_process` knows the servers in this process; see `RemotingClient`.
        `connection_changed` gets the address of a connection that was lost (False) or restored (True).
        """
        self._connection_changed = connection_changed
        self._on_lost = on_lost
        self.lost: ClientClosed | None = None
        self._lost: set[str] = set()  # addresses of lost connections
        self.settings = settings
        self.clock = clock or SystemClock()
        self.outages = Outages(self.clock.monotonic, denied)
        self.identity: Identity
        self._tls = None if settings.tls is None else ClientTls(settings.tls)
        self._in_process = in_process
        self.names = WireNames(settings.namespace)
        self.remoting = NamingClient(
            self.names, routes, connect_timeout_s=settings.connect_timeout_s, on_open=self._channel_opened,
            on_close=self._channel_closed, credentials=settings.credentials, tls=self._tls,
            in_process=in_process,
        )  # fmt: skip
        self.name_servers = NameServers(
            self.remoting, arguments.addresses("namesrv", settings.namesrv), settings.api_timeout_s
        )
        self._is_open = False
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # in which it was opened, and its thread
        self._thread = 0
        self._heartbeat = heartbeat
        self._on_route = on_route
        self._heartbeat_to_slaves = heartbeat_to_slaves
        self._routes: dict[str, TopicRoute] = {}
        self._addresses: dict[str, dict[int, str]] = {}
        self._master_changes: dict[str, float] = {}  # monotonic s of the last one by broker name
        self.route_changes = 0  # what was looked up in routes is still true while this is the same
        self._refreshing: dict[str, asyncio.Task[TopicRoute]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._heartbeat_due = Wakeup()
        self._poll_due = Wakeup()
        # topic: lost members of broker groups, loop time to give up at
        self._diminished: dict[str, tuple[set[tuple[str, int]], float]] = {}

    @property
    def is_open(self) -> bool:
        """Whether the client is open, and the caller in its event loop.  Each send asks: `get_running_loop` is slow."""
        loop = self._loop
        return self._is_open and loop is not None and loop.is_running() and get_ident() == self._thread

    @property
    def client_id(self) -> str:
        return self.identity.client_id

    def further_connections(self, introduce: Introduce) -> RemotingClient:
        """Return a client of the same servers with connections of its own, each of which begins with `introduce`."""
        return RemotingClient(
            connect_timeout_s=self.settings.connect_timeout_s, credentials=self.settings.credentials, tls=self._tls,
            in_process=self._in_process, introduce=introduce,
        )  # fmt: skip

    async def open(self) -> None:
        """Start the tasks without connecting.  Raises TlsUnusable for invalid TLS files."""
        self.remoting.check_loop()
        if self._tls is not None:
            try:
                self._tls.start()
            except ConfigError as error:
                raise TlsUnusable(str(error)) from None
        self.identity = await new_identity(self.clock, self.settings.instance_name)
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self._is_open = True
        if isinstance(self.settings.credentials, RenewedToken):
            self.settings.credentials.join(self)
        self.keep(self._poll_routes())
        self.keep(self._send_heartbeats())

    async def close(self) -> None:
        """End the tasks and close every connection.  Raises ClientError in another event loop."""
        self.remoting.check_loop()
        self._is_closed = self._is_closed or self._is_open
        self._is_open = False
        refreshing = list(self._refreshing.values())
        for task in [*self._tasks, *refreshing]:
            task.cancel()
        await asyncio.gather(*self._tasks, *refreshing, return_exceptions=True)
        await self.remoting.close()

    def check_open(self) -> None:
        """Raise ClientClosed unless the client is open, and ClientError in another event loop."""
        if self._is_open:
            self.remoting.check_loop()
            if self.lost is not None:
                raise self.lost
            return
        if self._is_closed:
            raise ClientClosed("the client is closed; make a new one")
        raise ClientClosed("the client is not open; use it inside `async with`, or call start()")

    def spawn(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        """Run `work` until it ends or the client closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def keep(self, work: Coroutine[object, object, None]) -> None:
        """Run `work` until the client closes.  If it ends before, the client is lost: `lost` says why."""
        task = self.spawn(work)
        task.add_done_callback(self._lose)

    def _lose(self, task: "asyncio.Task[None]") -> None:
        if not self._is_open or self.lost is not None:
            return
        why = "were cancelled by the program or its framework" if task.cancelled() else f"failed: {task.exception()!r}"
        self.lost = ClientClosed(f"the tasks of the client {why}; close it, and make a new one")
        logger.error("event=client_lost client=%s reason=%r", self.client_id, str(self.lost))
        self._on_lost(self.lost)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("event=client_task_failed", exc_info=task.exception())

    # Routes

    def cached_route(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    async def route(self, topic: str) -> TopicRoute:
        """Return the known route, else that of a name server.  Raises as `refresh_route`."""
        return self._routes.get(topic) or await self.refresh_route(topic)

    async def publish_route(self, topic: str, queue_count: int) -> TopicRoute:
        """Return a route with writable queues; for an unknown topic the route of brokers that create topics.

        Raises TopicNotFound when there is neither, TopicNotWritable, NameServerUnreachable, BrokerRefused.
        """
        route = self._routes.get(topic)
        if route is not None and route.publish:
            return route
        try:
            route = await self.refresh_route(topic)
        except TopicNotFound as not_found:
            try:
                data = await self.name_servers.topic_route(AUTO_CREATE_TOPIC)
            except TopicNotFound:
                if await self._has_brokers():
                    raise not_found from None
                raise TopicNotFound(topic, str(self.name_servers), has_brokers=False) from None
            route = default_topic_route(topic, data, queue_count)
            self._keep_route(route)
        if not route.publish:
            raise TopicNotWritable(topic, route.unwritable)
        return route

    async def _has_brokers(self) -> bool:
        """Return whether a name server knows any broker; True if no name server answers."""
        try:
            return bool((await self.name_servers.cluster_info()).broker_addr_table)
        except ClientError:
            return True

    async def check_access(self, group: str) -> None:
        """Ask one broker of the cluster about `group`: while no topic has a route, nothing else tells of a refusal.

        Raises PermissionDenied if access control refuses this client; any other failure says nothing about that.
        """
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        try:
            brokers = (await self.name_servers.cluster_info()).broker_addr_table.values()
            address = next((found for each in brokers if (found := each.master_or_slave()) is not None), None)
            if address is None:
                return
            response = await self.remoting.invoke(
                address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, timeout_s=self.settings.api_timeout_s
            )
        except ClientError as error:
            if isinstance(error, PermissionDenied):
                raise
            return
        if is_access_refusal(response.code, response.remark):
            raise refusal(response.code, response.remark, address)

    async def refresh_route(self, topic: str) -> TopicRoute:
        """Ask a name server; callers at the same time share one request.

        Raises TopicNotFound, NameServerUnreachable, BrokerRefused, ClientClosed; what was known before stays.
        """
        task = self._refreshing.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch_route(topic))
            self._refreshing[topic] = task
            task.add_done_callback(lambda done: self._refreshed(topic, done))
        ended = ClientClosed(f"topic {topic}: the client was closed while a name server was asked")
        return await outcome_of(task, ended)

    def request_refresh(self, topic: str) -> None:
        """Refresh the route of `topic` soon, without waiting for it."""
        if self.is_open and topic not in self._refreshing:
            self.spawn(self._refresh_quietly(topic))

    def watch_route(self, topic: str) -> None:
        """Refresh the route of `topic` now, and every second for a while: one of its brokers failed."""
        self.request_refresh(topic)
        if topic not in self._diminished:
            self._poll_due.set()
        lost, limit = self._diminished.get(topic, (set(), 0.0))
        self._diminished[topic] = lost, max(limit, asyncio.get_running_loop().time() + _FAILED_LIMIT_S)

    async def _fetch_route(self, topic: str) -> TopicRoute:
        try:
            data = await self.name_servers.topic_route(topic)
        except TopicNotFound:
            self._route_known(topic)
            raise
        except ClientError as error:
            if self.outages.failed(("route", topic), error):
                logger.warning("event=route_refresh_failed topic=%s reason=%r", topic, str(error))
            raise
        self._route_known(topic)
        try:
            route = topic_route(topic, data)
        except ValueError as error:
            raise AnswerUnreadable(f"the route of topic {topic}: {error}") from None
        self._keep_route(route)
        return route

    def _route_known(self, topic: str) -> None:
        over = self.outages.succeeded(("route", topic))
        if over is not None:
            logger.info("event=route_refresh_recovered topic=%s after_s=%.1f failures=%d", topic, *over)

    def _refreshed(self, topic: str, task: "asyncio.Task[TopicRoute]") -> None:
        self._refreshing.pop(topic, None)
        if not task.cancelled():
            task.exception()  # retrieve it: the waiting callers have it

    def _keep_route(self, route: TopicRoute) -> None:
        previous = self._routes.get(route.topic)
        if previous == route:
            return
        # Last: if routes differ in a broker's address, the newest is right.
        self._routes.pop(route.topic, None)
        self._routes[route.topic] = route
        if previous is not None:
            self._watch_lost_brokers(previous, route)
        self.route_changes += 1
        before, self._addresses = self._addresses, {}
        for known in self._routes.values():
            self._addresses.update(known.broker_addresses)
        for name, members in before.items():
            if members.get(MASTER_ID) != self.master_address(name):
                self._master_changes[name] = self.clock.monotonic()
        logger.info(
            "event=route_changed topic=%s write_queues=%d read_queues=%d brokers=%s",
            route.topic,
            len(route.publish),
            len(route.subscribe),
            ",".join(sorted(route.broker_addresses)),
        )
        self._on_route(route)

    def _watch_lost_brokers(self, previous: TopicRoute, route: TopicRoute) -> None:
        """Poll more often while the topic lacks masters or slaves that it had before."""
        lost = set(previous.members()) | self._diminished.pop(route.topic, (set(), 0.0))[0]
        lost -= set(route.members())
        if lost:
            self._diminished[route.topic] = (lost, asyncio.get_running_loop().time() + _DIMINISHED_LIMIT_S)
            self._poll_due.set()

    async def _refresh_quietly(self, topic: str) -> None:
        try:
            await self.refresh_route(topic)
        except TopicNotFound:
            pass  # created by the first message that reaches a broker
        except ClientError:
            pass  # logged when it began; the polling goes on for all topics

    async def _poll_routes(self) -> None:
        # Often at first: a new topic or cluster changes soon.
        now = asyncio.get_running_loop().time
        interval_s = min(_FIRST_POLL_S, self.settings.poll_name_server_interval_s)
        all_due = now() + interval_s
        while True:
            soon = now() + _DIMINISHED_POLL_S if self._diminished else all_due
            await self._poll_due.wait(min(soon, all_due) - now())
            is_all = now() >= all_due
            for topic in list(self._routes if is_all else self._diminished):
                await self._refresh_quietly(topic)
            if is_all:
                interval_s = min(interval_s * 2, self.settings.poll_name_server_interval_s)
                all_due = now() + interval_s
            for topic, (_, limit) in list(self._diminished.items()):
                if now() >= limit:
                    del self._diminished[topic]

    # Brokers

    def broker_name_of(self, queue: MessageQueue) -> str:
        """Return the name of the broker that serves `queue`: that of a logical queue is in the topic's route."""
        if queue.broker_name != LOGICAL_BROKER:
            return queue.broker_name
        route = self._routes.get(queue.topic)
        return NO_BROKER if route is None else route.broker_of(queue)

    async def invoke_for(
        self, queue: MessageQueue, code: int, header: Header, *, timeout_s: float | None = None
    ) -> ReceivedResponse:
        """Return the response of the broker of `queue`, as `invoke_master_or_slave`.  Raises as `refresh_route`, too.

        If that broker does not lead the logical queue any more, its new leader is asked.
        """
        name = self.broker_name_of(queue)
        response = await self.invoke_master_or_slave(name, code, header, timeout_s=timeout_s)
        if response.code == ResponseCode.NOT_LEADER_FOR_QUEUE:
            await self.refresh_route(queue.topic)
            if (leader := self.broker_name_of(queue)) != name:
                response = await self.invoke_master_or_slave(leader, code, header, timeout_s=timeout_s)
        return response

    def broker_addresses(self, broker_name: str) -> dict[int, str] | None:
        """Return the addresses of a broker group by broker id."""
        return self._addresses.get(broker_name)

    def master_address(self, broker_name: str) -> str | None:
        return self._addresses.get(broker_name, {}).get(MASTER_ID)

    def masters(self) -> list[str]:
        """Return the addresses of all masters that the routes name."""
        return [members[MASTER_ID] for members in self._addresses.values() if MASTER_ID in members]

    def master_changed_at(self, broker_name: str) -> float:
        """Return when the routes last named another master of a broker group, or none, monotonic s; -inf if never."""
        return self._master_changes.get(broker_name, -math.inf)

    async def broker_at(self, address: str) -> str | None:
        """Return the name of the broker group that has a member at `address`, which may be registered by a name."""
        groups = {name: members.values() for name, members in self._addresses.items()}
        return next(iter(await names_at(address, groups)), None)

    def broker_of(self, channel: RemotingChannel) -> str | None:
        """Return the name of the broker group at the other end of `channel`, a connection of this client."""
        groups = self._addresses.items()
        members = ((name, address) for name, group in groups for address in group.values())
        return next((name for name, address in members if self.remoting.open_channel(address) is channel), None)

    def master_or_slave_address(self, broker_name: str) -> str | None:
        """Return the master's address, or another member's while the routes have no master."""
        return subscribe_address(self._addresses.get(broker_name), MASTER_ID)[0] or None

    async def invoke_master(
        self,
        broker_name: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> ReceivedResponse:
        """Return the response of the master of a broker group.

        Raises BrokerNotFound, ConnectFailed, ConnectionLost, RemotingTimeout.
        """
        address = self.master_address(broker_name)
        return await self._invoke_at(broker_name, address, code, header, body, timeout_s)

    async def invoke_master_or_slave(
        self, broker_name: str, code: int, header: Header, *, timeout_s: float | None = None
    ) -> ReceivedResponse:
        """Return the response of the master, or of another member while the routes have no master.  Raises as above."""
        address = self.master_or_slave_address(broker_name)
        return await self._invoke_at(broker_name, address, code, header, b"", timeout_s)

    async def _invoke_at(
        self,
        broker_name: str,
        address: str | None,
        code: int,
        header: Header | None,
        body: bytes,
        limit_s: float | None,
    ) -> ReceivedResponse:
        if address is None:
            raise BrokerNotFound(broker_name)
        timeout_s = self.settings.api_timeout_s if limit_s is None else limit_s
        return await self.remoting.invoke(address, code, header, body, timeout_s=timeout_s)

    def expect_success(self, response: ReceivedResponse, broker_name: str) -> ReceivedResponse:
        """Return `response` unless it is an error.  Raises BrokerRefused."""
        if response.code != ResponseCode.SUCCESS:
            address = self.master_or_slave_address(broker_name) or broker_name
            raise refusal(response.code, response.remark, address)
        return response

    # Heartbeats

    def _channel_closed(self, address: str) -> None:
        if self.is_open:
            self._lost.add(address)
            self._connection_changed(address, False)

    def _channel_opened(self, address: str) -> None:
        if address in self._lost:
            self._lost.discard(address)
            self._connection_changed(address, True)
        # A restarted broker does not know this client: send a heartbeat at once.
        if any(address in members.values() for members in self._addresses.values()):
            self._heartbeat_due.set()

    async def _send_heartbeats(self) -> None:
        while True:
            await self._heartbeat_due.wait(self.settings.heartbeat_broker_interval_s)
            await self.heartbeat_all()

    def present_again(self) -> None:
        """Present a new token at every connected broker: a connection ends with the last token seen there."""
        self.spawn(self._send_heartbeat(self._heartbeat() or HeartbeatData(self.client_id)))

    async def heartbeat_all(self) -> None:
        """Send a heartbeat to every broker of the known routes; failed ones get the next heartbeat."""
        data = self._heartbeat()
        if data is not None:
            await self._send_heartbeat(data)

    async def _send_heartbeat(self, data: HeartbeatData) -> None:
        body = dumps(self.names.heartbeat(data))
        await asyncio.gather(*(self._heartbeat_one(address, body) for address in self._heartbeat_addresses()))

    def _heartbeat_addresses(self) -> list[str]:
        return [
            address
            for members in self._addresses.values()
            for broker_id, address in members.items()
            if broker_id == MASTER_ID or self._heartbeat_to_slaves
        ]

    async def _heartbeat_one(self, address: str, body: bytes) -> None:
        try:
            limit_s = self.settings.api_timeout_s
            header = HeartbeatRequestHeader()
            response = await self.remoting.invoke(address, RequestCode.HEART_BEAT, header, body, timeout_s=limit_s)
            if response.code != ResponseCode.SUCCESS:
                raise refusal(response.code, response.remark, address)
        except ClientError as error:
            if self.outages.failed(("heartbeat", address), error):
                logger.warning("event=heartbeat_failed broker=%s reason=%r", address, str(error))
            return
        over = self.outages.succeeded(("heartbeat", address))
        if over is not None:
            logger.info("event=heartbeat_recovered broker=%s after_s=%.1f failures=%d", address, *over)

    async def unregister(self, producer_group: str | None, consumer_group: str | None) -> None:
        """Unregister this client at every connected broker; a broker that does not answer is skipped."""
        header = self.names.whole_fields(
            UnregisterClientRequestHeader(
                client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
            )
        )
        pending = [
            channel.request(RequestCode.UNREGISTER_CLIENT, header, timeout_s=1.0)
            for address in self._heartbeat_addresses()
            if (channel := self.remoting.open_channel(address)) is not None
        ]
        await asyncio.gather(*pending, return_exceptions=True)
