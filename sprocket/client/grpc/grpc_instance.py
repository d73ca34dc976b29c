"""Client of a proxy, in place of name servers and brokers: routes, heartbeats, telemetry.

Source: RocketMQ 5.3.3, `RouteActivity`, `ClientActivity`.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.errors import ClientError, PermissionDenied, TopicNotWritable
from sprocket.client.grpc.calls import CLIENT_VERSION, Calls, refusal_of
from sprocket.client.grpc.convert import resource
from sprocket.client.grpc.session import Session
from sprocket.common.clock import Clock
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import duration
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.client import split_address

logger = logging.getLogger(__name__)

_READABLE: Final = (wire.READ, wire.READ_WRITE)
_WRITABLE: Final = (wire.WRITE, wire.READ_WRITE)
_END_TIMEOUT_S: Final = 1.0


class GrpcInstance(ClientInstance):
    """One client of the proxies in `settings.namesrv`, addresses without scheme.

    `describe` fills what the client reports of itself into its settings.
    """

    def __init__(
        self,
        settings: ClientSettings,
        describe: Callable[[wire.Settings], None],
        *,
        group: str = "",
        clock: Clock | None = None,
        denied: Callable[[PermissionDenied | None], None] = lambda error: None,
        recover: Callable[[wire.RecoverOrphanedTransactionCommand], None] = lambda command: None,
        lost: Callable[[wire.NotifyUnsubscribeLiteCommand], None] = lambda command: None,
    ) -> None:
        """`group` is the consumer group, empty for producers; the others as of `ClientInstance` and `Session`."""
        super().__init__(settings, clock=clock, denied=denied)
        self._endpoints = arguments.addresses("namesrv", settings.namesrv)
        self._describe = describe
        self._group = group
        self.calls = Calls(
            self._endpoints, lambda: self.client_id, settings.credentials, settings.tls,
            lambda: self.clock.wall_ms() / 1000,
        )  # fmt: skip
        self.session = Session(self.calls, self._reported, self.outages, recover, lost)

    async def open(self) -> None:
        """Start the tasks.  Raises TlsUnusable."""
        self.calls.check_tls()
        await super().open()
        self.spawn(self.session.run())

    async def close(self) -> None:
        """Tell the proxy that this client ends, end the tasks and close the channels."""
        if self.is_open:
            with suppress(ClientError):  # the proxy also notices that the stream is gone
                request = wire.NotifyClientTerminationRequest(group=self.resource(self._group))
                await self.calls.call("NotifyClientTermination", request, _END_TIMEOUT_S)
        await super().close()
        await self.calls.close()

    def resource(self, name: str) -> wire.Resource:
        """Return the form of a topic or a group."""
        return resource(name, self.settings.namespace)

    def _reported(self) -> wire.Settings:
        reported = wire.Settings(
            access_point=self._access_point(),
            request_timeout=duration(round(self.settings.api_timeout_s * 1000)),
            user_agent=wire.UA(language=wire.PYTHON, version=CLIENT_VERSION, platform="sprocket"),
        )
        self._describe(reported)
        return reported

    def _access_point(self) -> wire.Endpoints:
        listed = [wire.Address(host=host, port=port) for host, port in map(split_address, self._endpoints)]
        return wire.Endpoints(scheme=wire.DOMAIN_NAME, addresses=listed)

    async def ask(self, name: str, request: Any, *, timeout_s: float | None = None) -> Any:
        """Return the answer of a method whose status is OK.

        Raises BrokerRefused, PermissionDenied, ConnectFailed, ConnectionLost, RemotingTimeout.
        """
        limit_s = self.settings.api_timeout_s if timeout_s is None else timeout_s
        await self.session.ready(limit_s)
        answer = await self.calls.call(name, request, limit_s)
        if answer.status.code != wire.OK:
            raise refusal_of(answer.status, self.calls.address)
        return answer

    # In place of name servers

    async def _fetch_route(self, topic: str) -> TopicRoute:
        request = wire.QueryRouteRequest(topic=self.resource(topic), endpoints=self._access_point())
        answer = await self.calls.call("QueryRoute", request, self.settings.api_timeout_s)
        if answer.status.code != wire.OK:
            raise refusal_of(answer.status, self.calls.address, topic)
        addresses = {queue.broker.name: {MASTER_ID: self.calls.address} for queue in answer.message_queues}
        route = TopicRoute(
            topic, self._queues(topic, answer, _WRITABLE), self._queues(topic, answer, _READABLE), addresses
        )
        self._keep_route(route)
        return route

    @staticmethod
    def _queues(
        topic: str, answer: wire.QueryRouteResponse, permissions: Sequence["wire.Permission"]
    ) -> tuple[MessageQueue, ...]:
        wanted = [queue for queue in answer.message_queues if queue.permission in permissions]
        return tuple(sorted(MessageQueue(topic, queue.broker.name, queue.id) for queue in wanted))

    async def publish_route(self, topic: str, queue_count: int) -> TopicRoute:
        """Return a route with writable queues.  Raises TopicNotFound, TopicNotWritable, and as `ask`."""
        route = await self.route(topic)
        if not route.publish:
            raise TopicNotWritable(topic, route.unwritable)
        return route

    # In place of brokers

    def present_again(self) -> None:
        """Present a new token, as each call does."""
        self.spawn(self.heartbeat_all())

    async def heartbeat_all(self) -> None:
        """Send a heartbeat to the proxy; a failed one gets the next heartbeat."""
        await self.session.ready(self.settings.api_timeout_s)
        kind = self._reported().client_type
        request = wire.HeartbeatRequest(group=self.resource(self._group), client_type=kind)
        try:
            await self.ask("Heartbeat", request)
        except ClientError as error:
            if self.outages.failed("heartbeat", error):
                logger.warning("event=heartbeat_failed proxy=%s reason=%r", self.calls.address, str(error))
        else:
            self.outages.succeeded("heartbeat")

    async def check_access(self, group: str) -> None:
        """Do nothing: the proxy refuses each call itself."""

    async def unregister(self, producer_group: str | None, consumer_group: str | None) -> None:
        """Do nothing: `close` tells the proxy."""
