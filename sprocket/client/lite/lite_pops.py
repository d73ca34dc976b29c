"""Requests of a consumer of lite topics to brokers.

Source: RocketMQ 5.5.1, `MQClientAPIExt.popLiteMessageAsync`, `syncLiteSubscriptionAsync`.
"""

from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.errors import ClientError
from sprocket.client.lite.subscriptions import LiteSubscriptions
from sprocket.client.pop.lite_popped import lite_popped_messages
from sprocket.client.pop.pop_requests import MAX_POP_NUMS, PopRequests, Target
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.settlement import Settlement
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.bodies.lite import LiteSubscriptionCtlRequestBody, LiteSubscriptionDTO
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.lite import (
    LiteSubscriptionCtlRequestHeader,
    PopLiteMessageRequestHeader,
    PopLiteMessageResponseHeader,
)


class LitePops(PopRequests):
    """Sender of one group's requests; a target's `topic` is the parent."""

    is_lite = True

    def __init__(self, instance: ClientInstance, group: str, topic: str, consumer: Settlement) -> None:
        """`consumer` settles the messages."""
        super().__init__(instance, group, init_mode=0, is_ordered=True, consumer=consumer)
        self._topic = topic
        self.subscriptions = LiteSubscriptions(
            group, topic, lambda: instance.client_id, self._tell, self._way, self._places, instance.clock
        )

    async def pop(
        self, target: Target, subscription: SubscriptionData, max_messages: int, invisible_s: float, wait_s: float
    ) -> list[PoppedMessage]:
        """Pop up to `max_messages` of any subscribed lite topics, after the broker knows which these are."""
        await self.subscriptions.sync(target)
        attempt_id = self._attempt_id(target)
        header = PopLiteMessageRequestHeader(
            client_id=self._instance.client_id,
            consumer_group=self._group,
            topic=target.topic,
            max_msg_num=min(max_messages, MAX_POP_NUMS),
            invisible_time=round(invisible_s * 1000),
            poll_time=round(wait_s * 1000),
            born_time=0,  # the broker's own time: clocks need not agree
            attempt_id=attempt_id,
            broker_name=target.broker_name,
        )
        found = await self._found(target, RequestCode.POP_LITE_MESSAGE, header, wait_s, attempt_id)
        return self._read(target, found, PopLiteMessageResponseHeader, lite_popped_messages)

    async def has_messages(self, target: Target, wait_s: float) -> bool:
        """Raise ClientError: brokers have no such request for lite topics, and `HeldTargets` makes none."""
        raise ClientError("brokers cannot tell of messages in lite topics without delivering them; use receive")

    async def _places(self) -> list[Target]:
        route = await self._instance.route(self._topic)
        return [Target(self._topic, name) for name in sorted({queue.broker_name for queue in route.subscribe})]

    def _way(self, place: Target) -> object:
        address = self._instance.master_address(place.broker_name)
        return None if address is None else self._instance.remoting.open_channel(address)

    async def _tell(self, place: Target, change: LiteSubscriptionDTO) -> None:
        body = dumps(LiteSubscriptionCtlRequestBody([self._instance.names.whole_fields(change)]))
        header = LiteSubscriptionCtlRequestHeader(broker_name=place.broker_name)
        self._success(await self._ask(place, RequestCode.LITE_SUBSCRIPTION_CTL, header, body), place)
