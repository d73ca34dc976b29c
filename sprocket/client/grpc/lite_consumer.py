"""The consumer of lite topics over gRPC.

Source: RocketMQ 5.5.0, `ClientActivity.syncLiteSubscription`, `ReceiveMessageActivity`.
"""

from collections.abc import Sequence
from typing import Any, Final

from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.errors import ClientError
from sprocket.client.grpc.grpc_instance import GrpcInstance
from sprocket.client.grpc.pops import GrpcPops
from sprocket.client.grpc.simple_consumer import OverGrpc
from sprocket.client.lite.subscriptions import LiteSubscriptions
from sprocket.client.lite_consumer import LiteConsumer
from sprocket.client.pop.pop_requests import PopRequests, Target
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.settlement import Settlement
from sprocket.common.clock import Clock
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.bodies.lite import LiteSubscriptionDTO, OffsetOption, OffsetOptionType

_FIELDS: Final = {
    OffsetOptionType.POLICY: "policy",
    OffsetOptionType.OFFSET: "offset",
    OffsetOptionType.TAIL_N: "tail_n",
    OffsetOptionType.TIMESTAMP: "timestamp",
}


class GrpcLitePops(GrpcPops):
    """Sender of one group's requests to the proxy, which tells all brokers of the parent topic of a change."""

    is_lite = True

    def __init__(self, instance: GrpcInstance, group: str, topic: str, consumer: Settlement) -> None:
        super().__init__(instance, group, consumer)
        self._proxy = Target(topic, "")
        self.subscriptions = LiteSubscriptions(
            group, topic, lambda: instance.client_id, self._tell, self._way, self._places, instance.clock
        )

    async def pop(
        self, target: Target, subscription: SubscriptionData, max_messages: int, invisible_s: float, wait_s: float
    ) -> list[PoppedMessage]:
        """Receive up to `max_messages` of any subscribed lite topics, after the proxy knows which these are."""
        await self.subscriptions.sync(self._proxy)
        try:
            return await super().pop(target, subscription, max_messages, invisible_s, wait_s)
        except ClientError:
            # Perhaps a broker was restarted behind the proxy, and does not know the client any more.
            self.subscriptions.forget(self._proxy)
            raise

    async def _places(self) -> Sequence[Target]:
        return [self._proxy]

    def _way(self, place: Target) -> object:
        return self._grpc.session.opened

    async def _tell(self, place: Target, change: LiteSubscriptionDTO) -> None:
        request = wire.SyncLiteSubscriptionRequest(
            action=wire.LiteSubscriptionAction.Value(change.action),
            topic=self._grpc.resource(change.topic),
            group=self._grpc.resource(change.group),
            lite_topic_set=change.lite_topic_set or (),
            version=change.version,
            offset_option=_option(change.offset_option),
        )
        await self._grpc.ask("SyncLiteSubscription", request)


def _option(option: OffsetOption | None) -> Any:
    if option is None:
        return None
    made = wire.OffsetOption()
    setattr(made, _FIELDS[option.type], option.value)
    return made


class GrpcLiteConsumer(OverGrpc, LiteConsumer):
    """`LiteConsumer` whose messages come from a proxy."""

    _kind = wire.LITE_PUSH_CONSUMER

    def _new_instance(self, client: ClientSettings, clock: Clock) -> ClientInstance:
        self.grpc = GrpcInstance(
            client, self._describe, group=self.group, clock=clock, denied=lambda error: self._arrived.set(),
            lost=lambda command: self._lose(command.lite_topic),
        )  # fmt: skip
        return self.grpc

    def _new_pops(self, consume_from: ConsumeFrom, ordered: bool) -> PopRequests:
        self._grpc_pops = pops = GrpcLitePops(self.grpc, self.group, self.topic, self)
        self._lite = pops.subscriptions
        return pops

    async def _check_subscriptions(self) -> None:
        await LiteConsumer._check_subscriptions(self)
