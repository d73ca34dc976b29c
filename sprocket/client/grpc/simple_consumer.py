"""The popping consumer over gRPC."""

import logging

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.connection.identity import random_number
from sprocket.client.connection.owner import Owner
from sprocket.client.consume.subscription import Topics
from sprocket.client.grpc.convert import filter_of
from sprocket.client.grpc.grpc_instance import GrpcInstance
from sprocket.client.grpc.pops import GrpcPops
from sprocket.client.grpc.refused import needs_name_server
from sprocket.client.pop.pop_requests import PopRequests
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.pop.pop_targets import HeldTargets, PopTargets
from sprocket.client.pop.popped_message import PoppedMessage, mark_settled
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.send.reply import Reply
from sprocket.client.send_result import SendResult
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.common.clock import Clock
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import duration

logger = logging.getLogger(__name__)


class OverGrpc(SimpleConsumer):
    """What consumers that pop do otherwise over gRPC; `_kind` is how one reports itself."""

    _kind: "wire.ClientType"

    def _new_instance(self, client: ClientSettings, clock: Clock) -> ClientInstance:
        self.grpc = GrpcInstance(
            client, self._describe, group=self.group, clock=clock, denied=lambda error: self._arrived.set()
        )
        return self.grpc

    def _new_pops(self, consume_from: ConsumeFrom, ordered: bool) -> PopRequests:
        self._grpc_pops = GrpcPops(self.grpc, self.group, self)
        return self._grpc_pops

    def _new_targets(self) -> PopTargets:
        return HeldTargets(self.grpc, self._pops, self._subscriptions, self._left_over.extend, random_number())

    async def _check_subscriptions(self) -> None:
        """Do nothing: the proxy checks the filters when it gets the settings."""

    def _describe(self, settings: wire.Settings) -> None:
        settings.client_type = self._kind
        subscription = settings.subscription
        subscription.group.CopyFrom(self.grpc.resource(self.group))
        subscription.long_polling_timeout.CopyFrom(duration(round(self._settings.poll_time_s * 1000)))
        for topic, data in self._subscriptions.items():
            subscription.subscriptions.add(topic=self.grpc.resource(topic), expression=filter_of(data))

    async def dead_letter(self, popped: PoppedMessage, reason: str = "") -> None:
        """Make `popped` a dead letter.  The protocol carries no `reason`: it is logged.  Raises as `ack`."""
        arguments.text("reason", reason)
        mark_settled(popped)
        await self._released(popped)
        await self._grpc_pops.forward(popped, self.grpc.session.server.backoff_policy.max_attempts)
        logger.info("event=dead_letter message=%r reason=%r", popped, reason)

    async def reply(self, popped: PoppedMessage, answer: bytes | Reply, timeout_s: float | None = None) -> SendResult:
        """Raise IllegalArgument: gRPC has no replies."""
        raise needs_name_server("request and reply")


class GrpcSimpleConsumer(OverGrpc):
    """`SimpleConsumer` whose messages come from a proxy."""

    _kind = wire.SIMPLE_CONSUMER

    def __init__(
        self,
        group: str,
        topics: Topics,
        *,
        client: ClientSettings,
        settings: PopSettings | None = None,
        clock: Clock | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Raises IllegalArgument."""
        super().__init__(
            group, topics, consume_from=ConsumeFrom.LAST, settings=settings, client=client, clock=clock, owner=owner
        )
