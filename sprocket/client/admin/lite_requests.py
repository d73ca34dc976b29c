"""Part of the administration client: lite topics on single brokers, given by address.

Source of requests: RocketMQ 5.5.0, `MQClientAPIImpl`.
"""

from sprocket.client.admin.admin_requests import AdminRequests
from sprocket.remoting.bodies.lite import (
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
)
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.lite import (
    GetLiteClientInfoRequestHeader,
    GetLiteGroupInfoRequestHeader,
    GetLiteTopicInfoRequestHeader,
    GetParentTopicInfoRequestHeader,
    TriggerLiteDispatchRequestHeader,
)


class LiteRequests(AdminRequests):
    """What `AdminClient` asks about lite topics.  Every method raises AdminError."""

    async def broker_lite_info(self, broker: str) -> GetBrokerLiteInfoResponseBody:
        """Return the sizes of a broker's tables, and its parent topics and their groups."""
        return await self.ask_body(broker, RequestCode.GET_BROKER_LITE_INFO, GetBrokerLiteInfoResponseBody)

    async def parent_topic_info(self, broker: str, parent: str) -> GetParentTopicInfoResponseBody:
        """Return the groups of a parent topic, and how many lite topics it has."""
        header = GetParentTopicInfoRequestHeader(topic=parent)
        return await self.ask_body(broker, RequestCode.GET_PARENT_TOPIC_INFO, GetParentTopicInfoResponseBody, header)

    async def lite_topic_info(self, broker: str, parent: str, lite_topic: str) -> GetLiteTopicInfoResponseBody:
        """Return the extent and the subscribers of a lite topic."""
        header = GetLiteTopicInfoRequestHeader(parent_topic=parent, lite_topic=lite_topic)
        return await self.ask_body(broker, RequestCode.GET_LITE_TOPIC_INFO, GetLiteTopicInfoResponseBody, header)

    async def lite_client_info(
        self, broker: str, parent: str, group: str, client_id: str
    ) -> GetLiteClientInfoResponseBody:
        """Return lite topics that a client subscribes, at most 1000 by name; the count is -1 for an unknown client."""
        header = GetLiteClientInfoRequestHeader(parent_topic=parent, group=group, client_id=client_id)
        return await self.ask_body(broker, RequestCode.GET_LITE_CLIENT_INFO, GetLiteClientInfoResponseBody, header)

    async def lite_group_info(
        self, broker: str, group: str, lite_topic: str | None, top_k: int
    ) -> GetLiteGroupInfoResponseBody:
        """Return the lag of a group in one lite topic; without one, its lag and the `top_k` largest lags."""
        header = GetLiteGroupInfoRequestHeader(group=group, lite_topic=lite_topic, top_k=top_k)
        return await self.ask_body(broker, RequestCode.GET_LITE_GROUP_INFO, GetLiteGroupInfoResponseBody, header)

    async def trigger_lite_dispatch(self, broker: str, group: str, client_id: str | None) -> None:
        """Have one client of a group, or all of them, look at all their lite topics again."""
        header = TriggerLiteDispatchRequestHeader(group=group, client_id=client_id)
        await self.ask(broker, RequestCode.TRIGGER_LITE_DISPATCH, header)
