"""Part of the administration client: topics, lite topics and consumer groups of single brokers, given by address.

Source of requests: RocketMQ 5.3.3, for lite topics 5.5.0, `MQClientAPIImpl`; of what belongs to users:
`DefaultMQAdminExtImpl`.
"""

from typing import Final

from sprocket.client.admin.admin_requests import AdminRequests, none_if
from sprocket.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupList, SubscriptionGroupTable
from sprocket.remoting.bodies.lite import (
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
)
from sprocket.remoting.bodies.registration import TopicConfigAndMapping
from sprocket.remoting.bodies.topic import (
    PERM_PRIORITY,
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigTable,
    TopicList,
)
from sprocket.remoting.bodies.topic_queue_mapping import TopicConfigAndQueueMapping
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
)
from sprocket.remoting.headers.lite import (
    GetLiteClientInfoRequestHeader,
    GetLiteGroupInfoRequestHeader,
    GetLiteTopicInfoRequestHeader,
    GetParentTopicInfoRequestHeader,
    TriggerLiteDispatchRequestHeader,
)
from sprocket.remoting.message.topic_names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

# Groups that RocketMQ's tools and clients use themselves (`MixAll.PREDEFINE_GROUP_SET`).
_PREDEFINED_GROUPS: Final = frozenset(SYSTEM_GROUPS) | {
    "DEFAULT_PRODUCER", "DEFAULT_CONSUMER", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER",
    "SELF_TEST_P_GROUP",
}  # fmt: skip
_TABLE_TIMEOUT_S: Final = 10.0


class TableRequests(AdminRequests):
    """What `AdminClient` asks about topics and groups.  Every method raises AdminError."""

    # Topics

    async def create_topics(self, broker: str, configs: list[TopicConfig]) -> None:
        """Create topics on a broker, or change them.  Attributes are changes: ``+name`` and ``-name``."""
        body = dumps(CreateTopicListRequestBody(configs))
        await self.ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)

    async def topic_config(self, broker: str, topic: str) -> TopicConfigAndQueueMapping | None:
        """Return a topic of a broker, with its mapping if it is static; None if there is none."""
        header = GetTopicConfigRequestHeader(topic=topic, lo=True)
        answer = self.ask_body(broker, RequestCode.GET_TOPIC_CONFIG, TopicConfigAndQueueMapping, header)
        return await none_if(ResponseCode.TOPIC_NOT_EXIST, answer)

    async def user_topics(self, broker: str, *, with_retry: bool) -> TopicConfigTable:
        """Return the topics of users on a broker; `with_retry`: their retry and dead-letter topics, too."""
        ask, limit_s = self.ask_body, _TABLE_TIMEOUT_S
        found = await ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable, timeout_s=limit_s)
        listed = await ask(broker, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList, timeout_s=limit_s)
        own = SYSTEM_TOPICS | set(listed.topic_list)
        hidden = (SYSTEM_TOPIC_PREFIX,) if with_retry else (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX)
        found.topic_config_table = {
            name: config
            for name, config in found.topic_config_table.items()
            if name not in own and not name.startswith(hidden) and 0 <= config.perm < PERM_PRIORITY
        }
        return found

    async def static_topic_names(self, broker: str) -> list[str]:
        """Return the names of the static topics of a broker, sorted."""
        answer = await self.ask_body(
            broker, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigAndMapping, timeout_s=_TABLE_TIMEOUT_S
        )
        return sorted(answer.topic_queue_mapping_detail_map)

    # Groups

    async def create_groups(self, broker: str, configs: list[SubscriptionGroupConfig]) -> None:
        """Create groups on a broker, or change them, all or none."""
        body = dumps(SubscriptionGroupList(configs))
        await self.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)

    async def create_group(self, broker: str, config: SubscriptionGroupConfig) -> None:
        """Create a group on a broker, or change it."""
        await self.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, dumps(config))

    async def delete_group(self, broker: str, group: str, *, with_offsets: bool) -> None:
        """Delete a group from a broker; `with_offsets`: its offsets, too."""
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=with_offsets)
        await self.ask(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def group_config(self, broker: str, group: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a group on a broker, None if it has no such group.

        A broker that creates groups automatically creates it and returns its default settings.
        """
        header = GetSubscriptionGroupConfigRequestHeader(group=group)
        answer = self.ask_body(broker, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupConfig, header)
        return await none_if(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, answer)

    async def consumer_groups(self, broker: str) -> SubscriptionGroupTable:
        """Return all groups of a broker."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return await self.ask_body(broker, code, SubscriptionGroupTable, timeout_s=_TABLE_TIMEOUT_S)

    async def user_consumer_groups(self, broker: str) -> SubscriptionGroupTable:
        """Return the groups of users on a broker."""
        found = await self.consumer_groups(broker)
        found.subscription_group_table = {
            name: config
            for name, config in found.subscription_group_table.items()
            if not name.startswith(SYSTEM_GROUP_PREFIX) and name not in _PREDEFINED_GROUPS
        }
        return found

    # Lite topics

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
